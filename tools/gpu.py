"""Measure this project on an NVIDIA GPU in one command: `python3 tools/gpu.py`, or `make gpu`.

It makes the environments, builds the models or takes those of a bundle, times the engine in process, serves, loads and
runs the tests marked gpu, within eight minutes. It prints the tables of docs/gpu.md and puts them there. The standard
library of Python 3.11 or 3.12 suffices.

Exit codes: 0 every goal is reached; 1 a step failed, or a goal is not reached; 2 nothing was run.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info[:2] not in ((3, 11), (3, 12)):
    sys.stderr.write(
        "tools/gpu.py: this is Python {}.{}; Triton's Python backend needs 3.11 or 3.12:"
        " run this with python3.11 or python3.12\n".format(*sys.version_info)
    )
    sys.exit(2)
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import argparse  # noqa: E402

from bench.gpu.archive import ArchiveError  # noqa: E402
from bench.gpu.bundle import bundle, size_of  # noqa: E402
from bench.gpu.places import Place  # noqa: E402
from bench.gpu.run import SECONDS, check_room, run  # noqa: E402
from bench.gpu.steps import Refusal, StepError  # noqa: E402


def main(words: list[str] | None = None) -> int:
    """Run, or make a bundle."""
    options = _parser().parse_args(words)
    place = Place(options.folder.resolve(), options.wheels and options.wheels.resolve(), options.rehearse)
    try:
        if place.wheels is not None and not any(place.wheels.glob("*.whl")):
            raise Refusal(f"--wheels {place.wheels}: there are no wheels; name a folder that has some")
        if options.bundle is None:
            return run(place, resume=options.resume, seconds=options.seconds, out=options.json)
        check_room(place.folder)
        pythons = options.pythons.split(",")
        parts = bundle(place, options.bundle, size_of(options.split), pythons, not options.without_cuda)
    except (Refusal, ArchiveError, StepError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; --resume goes on after the last step that is done", file=sys.stderr)
        return 130
    print(f"{len(parts)} archives in {options.bundle}; on the other machine: python3 join.py FOLDER")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from these wheels alone, without an index")
    parser.add_argument("--resume", action="store_true", help="keep the steps that an interrupted run has done")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure there")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for all steps together ({SECONDS:.0f})")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".tritonkit" / "gpu", help="environments, models and state"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="run all steps on the CPU with small networks: is everything here?"
    )
    group = parser.add_argument_group("a bundle for a machine without a network")
    group.add_argument("--bundle", type=Path, metavar="DIR", help="write it there, and run nothing")
    group.add_argument("--split", default="2GB", metavar="SIZE", help="the largest archive (2GB)")
    group.add_argument("--pythons", default="3.11,3.12", metavar="VERSIONS", help="those of the other machine")
    group.add_argument(
        "--without-cuda", action="store_true", help="leave out CUDA's libraries: the other machine's PyTorch has them"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
