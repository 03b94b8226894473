"""The cost of the container: ratios of its calls to those of the embedded server, and of one pinned to its cores.

The limit applies to the container's own address, which clients in other containers use. A port that docker publishes on
loopback is one more copy of every byte, by docker's userland proxy; its figures are shown too.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.docker import address, command, container, need_image, published
from bench.report import Ratio, Report
from bench.start import start_round, start_shares
from tritonkit.errors import ServerStartError
from tritonkit.machine import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.setting import Setting

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
CALLERS = (1, 32)
SENTENCE = "Where is the parcel that I ordered two weeks ago?"
AT_MOST_P50, AT_LEAST_RATE = 1.10, 0.92
AT_LEAST_OF_PINNED, AT_LEAST_OF_THREADS = 0.95, 0.95
"""With a quota of one core: ratios to a server pinned to one, and to the same quota with threads for all cores."""
EMBEDDED, PINNED = "embedded", "pinned to one core"
ONE, ONE_PINNED = "quota of one core", "quota of one core, TRITON_PIN"
ALL_THREADS = "quota of one core, threads for all"


def run(setting: Setting) -> Report:
    """The container with a pod's limits, as ratios to the embedded server: latency, throughput, one core, start."""
    need_image()
    with tempfile.TemporaryDirectory() as folder:
        items = _items(Path(folder))
        ratios = [*_all_cores(setting, items), *(_one_core(setting, items) if cores() > 1 else [])]
    ratios += start_shares([start_round(setting.repository) for _ in range(setting.rounds)])
    return Report(
        "container",
        "calls of the container over the embedded server's, in turns; latencies in ms, rates per s and seconds of this "
        "machine and this run",
        ratios,
    )


def _all_cores(setting: Setting, items: Mapping[str, Path]) -> list[Ratio]:
    """Latency and throughput of the container and of its published port, as ratios to the embedded server's."""
    with (
        container(setting.repository, cores(), "--publish", "127.0.0.1::8001") as name,
        _embedded(setting.repository) as embedded,
    ):
        addresses = {"container": address(name), "published port": published(name), EMBEDDED: embedded}
        ratios = []
        for model, item in items.items():
            rounds = _rounds(setting, addresses, model, item)
            for server, promised in (("container", True), ("published port", False)):
                ratios += [
                    _ratio(rounds, model, server, EMBEDDED, 1, at_most=AT_MOST_P50 if promised else None),
                    _ratio(rounds, model, server, EMBEDDED, 32, at_least=AT_LEAST_RATE if promised else None),
                ]
        return ratios


def _one_core(setting: Setting, items: Mapping[str, Path]) -> list[Ratio]:
    """A quota of one core, as a ratio to a server pinned to one; also with threads for all cores within the quota."""
    # A name that no model has, so each model is served with `config.pbtxt`, which is for all cores.
    with (
        container(setting.repository, 1) as one,
        container(setting.repository, 1, "--env", "TRITON_PIN=1") as one_pinned,
        container(setting.repository, 1, words=("--model-config-name=all-cores",)) as threads,
        _pinned(),
        _embedded(setting.repository) as pinned,
        _unpinned(),
    ):
        addresses = {ONE: address(one), ONE_PINNED: address(one_pinned), ALL_THREADS: address(threads), PINNED: pinned}
        ratios = []
        for model, item in items.items():
            rounds = _rounds(setting, addresses, model, item)
            ratios += [
                _ratio(rounds, model, ONE_PINNED, PINNED, 32, at_least=AT_LEAST_OF_PINNED),
                _ratio(rounds, model, ONE_PINNED, PINNED, 1),
                _ratio(rounds, model, ONE, PINNED, 32, at_least=AT_LEAST_OF_PINNED),
                _ratio(rounds, model, ONE, PINNED, 1),
                _ratio(rounds, model, ONE, ALL_THREADS, 32, at_least=AT_LEAST_OF_THREADS),
                _ratio(rounds, model, ONE, ALL_THREADS, 1),
            ]
        return ratios


_ALLOWED = os.sched_getaffinity(0)


@contextmanager
def _pinned() -> Iterator[None]:
    """Limit programs started in the block to one core, and let them count one."""
    os.sched_setaffinity(0, {min(_ALLOWED)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, _ALLOWED)


@contextmanager
def _unpinned() -> Iterator[None]:
    """Let programs started in the block, such as callers, use all cores again."""
    os.sched_setaffinity(0, _ALLOWED)
    yield


@contextmanager
def _embedded(repository: Path) -> Iterator[str]:
    from tritonkit.serve import serve

    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=ROOT) as endpoint:
        yield endpoint.grpc


def _items(folder: Path) -> dict[str, Path]:
    """The models that clients call, with a real item each."""
    text = folder / "sentence"
    text.write_text(SENTENCE)
    return {"digits": ROOT / "models" / "digits" / "examples" / "seven.png", "sentences": text}


def _rounds(
    setting: Setting, addresses: Mapping[str, str], model: str, item: Path
) -> list[dict[tuple[str, int], dict[str, Any]]]:
    """Run each load on each server once a round; the first server changes from round to round."""
    made = []
    for turn in range(setting.rounds):
        order = sorted(addresses, reverse=turn % 2 == 1)
        made.append(
            {
                (server, callers): _load(addresses[server], model, callers, setting.seconds, item)
                for callers in CALLERS
                for server in order
            }
        )
    return made


def _load(address: str, model: str, callers: int, seconds: float, item: Path) -> dict[str, Any]:
    words = [address, model, f"--concurrency={callers}", f"--seconds={seconds}"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = command(sys.executable, "-m", "bench.load", *words, f"--item={item}", env=os.environ | {"PYTHONPATH": path})
    measured: dict[str, Any] = json.loads(done)
    if measured["failures"]:
        raise ServerStartError(
            f"model {model} at {address}",
            found=f"{measured['failures']} requests failed",
            details=measured["first_failure"],
        )
    return measured


def _ratio(
    rounds: Sequence[Mapping[tuple[str, int], Any]],
    model: str,
    server: str,
    over: str,
    callers: int,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Ratio:
    """p50 of one caller, or the throughput of many."""
    key, what = ("p50_ms", "p50, 1 caller") if callers == 1 else ("per_s", f"throughput, {callers} callers")
    facts = {
        name: round(statistics.median(times[name, callers][key] for times in rounds), 2) for name in (server, over)
    }
    quotients = [times[server, callers][key] / times[over, callers][key] for times in rounds]
    return Ratio(f"{model}, {server} / {over}, {what}", quotients, at_most, at_least, facts)
