"""The cost of serving in addition to the engine: Triton's throughput over ONNX Runtime's in process, and for a tiny
network over Triton's own with a backend that computes nothing."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.ceiling import ceiling_repository
from bench.programs import ROOT, output
from bench.report import Ratio, Report
from bench.setting import chosen
from bench.variants import PLAIN, resnet50_repository
from tritonkit.client import Client
from tritonkit.errors import ClientError, UsageError
from tritonkit.machine import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.setting import Setting

__all__ = ["run"]

TINY, SENTENCES, RESNET = "digits_network", "sentences_network", "resnet50_network"
MODELS = (TINY, SENTENCES, RESNET)
CONCURRENCIES = (1, 8, 32)
AIMS = {8: 0.85, 32: 0.95}
OF_LIMIT = 0.90
SWEEP_SECONDS = 0.6  # for each batch size, to find the best
ENGINE_SECONDS = 1.5  # for the best, before and after each load


@dataclass(frozen=True)
class _Served:
    """One model as it is served: its file, the threads its server may use, and the empty model like it."""

    name: str
    onnx: Path
    threads: int
    batches: Sequence[int]
    ceiling: str = ""


@dataclass(frozen=True)
class _Loaded:
    """One load of a model, that of its ceiling (empty without one), and the engine's items per second around both."""

    served: Mapping[str, Any]
    ceiling: Mapping[str, Any]
    engine: float


def run(setting: Setting) -> Report:
    """Throughput of served models as a ratio to the same engine in process, and of a tiny one to Triton's ceiling."""
    models = chosen("--models", setting.models, MODELS if setting.address is None else MODELS[:2])
    ratios: list[Ratio] = []
    with _serving(setting) as (address, repository, ceiling), Client(address) as client:
        for name in models:
            model = _model(client, repository, name, ceiling if name == TINY else "")
            best = _best_batch(setting, model)
            rounds = [_round(setting, address, model, best) for _ in range(setting.rounds)]
            for callers in CONCURRENCIES:
                loads = [loads_of[callers] for loads_of in rounds]
                ratios.append(_ratio(model, best, loads, callers))
                if model.ceiling:
                    ratios.append(_of_ceiling(model, loads, callers))
    return Report(
        "serving",
        "items per second through Triton over the engine alone on the same cores; latencies in ms, "
        "of this machine and this run",
        ratios,
    )


@contextmanager
def _serving(setting: Setting) -> Iterator[tuple[str, Path, str]]:
    """Address, repository and the ceiling's name; a server given by --address has no ceiling."""
    if setting.address is not None:
        yield setting.address, setting.repository, ""
        return
    from tritonkit.serve import serve

    with (
        tempfile.TemporaryDirectory(prefix="tritonkit-serving-") as folder,
        ceiling_repository(setting.repository, TINY, SENTENCES) as (repository, ceiling),
    ):
        built = resnet50_repository(Path(folder), {"variant": PLAIN})
        shutil.copytree(built / RESNET, repository / RESNET)
        with serve(repository, grpc_port=0, metrics_port=0, root=ROOT, backend="native") as endpoint:
            yield endpoint.grpc, repository, ceiling


def _model(client: Client, repository: Path, name: str, ceiling: str) -> _Served:
    config = client.config(name)
    files = sorted(
        (path for path in (repository / name).glob("*/model.onnx") if path.parent.name.isdecimal()),
        key=lambda path: int(path.parent.name),
    )
    if not files:
        raise UsageError(
            str(repository / name),
            found="no <version>/model.onnx",
            todo="build the models first: python tools/build_repo.py",
        )
    largest = max(1, config.max_batch_size)
    return _Served(
        name=name,
        onnx=files[-1],
        threads=_threads(config),
        batches=[2**n for n in range(largest.bit_length())],
        ceiling=ceiling,
    )


def _threads(config: Any) -> int:
    """The threads that all instances of a model may use together; every core if it does not say."""
    threads = int(config.parameters["intra_op_thread_count"].string_value or 0)
    instances = sum(max(1, group.count) for group in config.instance_group) or 1
    return threads * instances or os.cpu_count() or 1


def _best_batch(setting: Setting, model: _Served) -> int:
    """The batch size with the most items per second in process, as medians over the rounds.

    The best of single measurements would be the luckiest one: a bar that no second run reaches.
    """
    sweeps = [_engine(setting, model, model.batches, SWEEP_SECONDS) for _ in range(setting.rounds)]
    return max(model.batches, key=lambda batch: statistics.median(sweep[batch] for sweep in sweeps))


def _round(setting: Setting, address: str, model: _Served, best: int) -> dict[int, _Loaded]:
    """Run each load once in a separate process, and the engine before and after it, so that drift affects both sides.
    The ceiling's loads run next to those of its model."""
    loads: dict[int, _Loaded] = {}
    before = _engine(setting, model, [best], ENGINE_SECONDS)[best]
    for callers in CONCURRENCIES:
        load = _load(setting, address, model.name, callers)
        limit = _load(setting, address, model.ceiling, callers) if model.ceiling else {}
        after = _engine(setting, model, [best], ENGINE_SECONDS)[best]
        loads[callers] = _Loaded(load, limit, (before + after) / 2)
        before = after
    return loads


def _engine(setting: Setting, model: _Served, batches: Sequence[int], seconds: float) -> dict[int, float]:
    """Items per second of the engine alone at each of these batch sizes."""
    measured = output(
        setting.engine_python,
        "bench.inprocess",
        str(model.onnx),
        f"--threads={model.threads}",
        f"--batches={','.join(map(str, batches))}",
        f"--seconds={seconds}",
    )
    return {int(batch): rate for batch, rate in measured["items_per_s"].items()}


def _load(setting: Setting, address: str, model: str, callers: int) -> dict[str, Any]:
    measured = output(
        Path(sys.executable), "bench.load", address, model, f"--concurrency={callers}", f"--seconds={setting.seconds}"
    )
    if measured["failures"]:
        raise ClientError(
            f"model {model}, {callers} callers",
            found=f"{measured['failures']} requests failed under load",
            details=measured["first_failure"],
        )
    return measured


def _ratio(model: _Served, best: int, loads: Sequence[_Loaded], callers: int) -> Ratio:
    served = [load.served for load in loads]
    return Ratio(
        f"{model.name}, {callers} callers / engine",
        [load.served["per_s"] / load.engine for load in loads],
        at_least=AIMS.get(callers) if model.name != TINY else None,
        facts={
            "effective batch": _median(served, "effective_batch"),
            "p50, p95, p99 ms": [_median(served, f"p{point}_ms") for point in (50, 95, 99)],
            "engine": f"ONNX Runtime in process, batches of {best}, {model.threads} threads",
            "load generator": _generator(served),
        },
    )


def _of_ceiling(model: _Served, loads: Sequence[_Loaded], callers: int) -> Ratio:
    """The highest share that a server can reach if all cores are busy: a request then takes its share of Triton's time
    and its share of the engine's."""
    limits = [1 / (1 + load.ceiling["per_s"] / load.engine) for load in loads]
    shares = [load.served["per_s"] / load.ceiling["per_s"] for load in loads]
    return Ratio(
        f"{model.name}, {callers} callers / Triton with an empty backend",
        shares,
        at_least=OF_LIMIT,
        facts={
            "limit by the network's own time": round(statistics.median(limits), 3),
            "of that limit": round(
                statistics.median(share / limit for share, limit in zip(shares, limits, strict=True)), 3
            ),
            "p50, p95, p99 ms of the empty backend": [
                _median([load.ceiling for load in loads], f"p{point}_ms") for point in (50, 95, 99)
            ],
        },
    )


def _generator(loads: Sequence[Mapping[str, Any]]) -> str:
    """The load generator, and its share of the cores that it shares with the server."""
    name = str(loads[0]["generator"])
    if "generator_share" not in loads[0]:
        return f"{name}, which takes much of the cores itself; install h2load (nghttp2-client)"
    return f"{name}, {100 * _median(loads, 'generator_share') / cores():.0f} % of the cores"


def _median(loads: Sequence[Mapping[str, float]], key: str) -> float:
    return round(statistics.median(load[key] for load in loads), 2)
