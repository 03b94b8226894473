"""`python -m bench [NAME] [--json FILE] [--address HOST:PORT] [--repository DIR] [--rounds N]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import (
    client,
    container,
    flags,
    gateway,
    generate,
    loadgen,
    locust,
    mapped,
    overhead,
    pipeline,
    plan,
    serverless,
    serving,
    spinning,
    tune,
    variants,
)
from bench.chaos import experiment
from bench.families import measure
from bench.gpu import engines
from bench.peers import compare
from bench.report import Report, print_report, write_json
from bench.setting import Setting
from tritonkit.errors import TritonkitError

BENCHES = {
    "overhead": overhead.run,
    "serving": serving.run,
    "pipeline": pipeline.run,
    "map": mapped.run,
    "flags": flags.run,
    "spinning": spinning.run,
    "container": container.run,
    "locust": locust.run,
    "loadgen": loadgen.run,
    "tune": tune.run,
    "plan": plan.run,
    "gateway": gateway.run,
    "lambda": serverless.run,
    "client": client.run,
    "generate": generate.run,
    "variants": variants.run,
    "gpu": engines.run,
    "peers": compare.run,
    "families": measure.run,
    "chaos": experiment.run,
}
ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Run one measurement; 0 if it ran and its limits hold, 1 if one does not, else an error's code."""
    options = _parser().parse_args(arguments)
    if options.name is None:
        for name, run in BENCHES.items():
            print(f"{name:10} {(run.__doc__ or '').splitlines()[0]}")
        return 0
    setting = Setting(
        repository=options.repository,
        address=options.address,
        rounds=options.rounds,
        seconds=options.seconds,
        engine_python=options.engine_python or _engine_python(),
        peers=options.peers,
        models=options.models,
        minutes=options.minutes,
        kills=0.0 if options.soak else options.kills,
        seed=options.seed,
        svg=options.svg,
    )
    try:
        report: Report = BENCHES[options.name](setting)
    except TritonkitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: nothing is left running", file=sys.stderr)
        return 130
    print_report(report)
    if options.json is not None:
        write_json(report, options.json)
    return 0 if report.holds else 1


def _engine_python() -> Path:
    """The Python that Triton's models run in, so that both sides use one ONNX Runtime."""
    server = ROOT / ".venv-server" / "bin" / "python"
    return server if server.exists() else Path(sys.executable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=BENCHES, help="none lists them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    parser.add_argument("--address", metavar="HOST:PORT", help="a server that runs already; default: start one")
    parser.add_argument("--repository", type=Path, default=ROOT / "model_repository")
    parser.add_argument("--rounds", type=_above_zero, default=5, help="repeats, interleaved (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one load measurement (3)")
    parser.add_argument("--engine-python", type=Path, help="runs the engine alone; default: .venv-server's")
    parser.add_argument("--peers", type=_names, default=[], metavar="A,B", help="for `peers`: only these servers")
    parser.add_argument(
        "--models",
        type=_names,
        default=[],
        metavar="A,B",
        help="of `peers`, `serving`, `loadgen`, `tune`, `plan`, `lambda` and `families`: these models or pages alone",
    )
    _add_chaos(parser.add_argument_group("of `chaos`"))
    return parser


def _add_chaos(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--minutes", type=float, default=5.0, help="with faults (5)")
    group.add_argument("--kills", type=float, default=6.0, help="faults in a minute (6); 0: none")
    group.add_argument("--soak", action="store_true", help="the same as --kills 0")
    group.add_argument("--seed", type=int, default=1, help="seed of the faults' targets, kinds and times (1)")
    group.add_argument("--svg", type=Path, metavar="FILE", help="answers per second as a picture")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _above_zero(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
