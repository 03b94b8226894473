"""What serving costs on top of the engine: Triton's throughput over ONNX Runtime's in process, and for a
tiny network over Triton's own with a backend that computes nothing."""

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
from bench.variants import PLAIN, resnet50_repository
from tritonkit.client import Client
from tritonkit.errors import ClientError, UsageError
from tritonkit.machine import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.setting import Setting

__all__ = ["run"]

TINY, SENTENCES, RESNET = "digits_network", "sentences_network", "resnet50_network"
CONCURRENCIES = (1, 8, 32)
AIMS = {8: 0.85, 32: 0.95}
OF_LIMIT = 0.90
ENGINE_SECONDS = 0.6  # for each batch size, before and again after the loads of a round


@dataclass(frozen=True)
class _Served:
    """One model as it is served: its file, the threads its server may use, and the empty model like it."""

    name: str
    onnx: Path
    threads: int
    batches: Sequence[int]
    ceiling: str = ""


def run(setting: Setting) -> Report:
    """Throughput of served models over the same engine in process, and of a tiny one over Triton's ceiling."""
    ratios: list[Ratio] = []
    with _serving(setting) as (address, repository, ceiling), Client(address) as client:
        for name in (TINY, SENTENCES, RESNET) if ceiling else (TINY, SENTENCES):
            model = _model(client, repository, name, ceiling if name == TINY else "")
            rounds = [_round(setting, address, model) for _ in range(setting.rounds)]
            ratios += [_ratio(model, rounds, callers) for callers in CONCURRENCIES]
            if model.ceiling:
                ratios += [_of_ceiling(model, rounds, callers) for callers in CONCURRENCIES]
    return Report(
        "serving",
        "items per second through Triton over the engine alone on the same cores; latencies in ms, "
        "of this machine and this run",
        ratios,
    )


@contextmanager
def _serving(setting: Setting) -> Iterator[tuple[str, Path, str]]:
    """Address, repository and the ceiling's name; a server that was given has no ceiling."""
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
        with serve(
            repository, grpc_port=0, metrics_port=0, root=ROOT, backend="native"
        ) as endpoint:
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
    """The threads all instances of a model may use together; every core where it says nothing."""
    each = int(config.parameters["intra_op_thread_count"].string_value or 0)
    instances = sum(max(1, group.count) for group in config.instance_group) or 1
    return each * instances or os.cpu_count() or 1


def _round(setting: Setting, address: str, model: _Served) -> dict[Any, Any]:
    """One measurement of each contender, in separate processes, one after the other.

    The engine runs before and after the loads: what drifts on the machine meanwhile meets both sides.
    """
    before = _engine(setting, model)
    load: dict[Any, Any] = {
        callers: _load(setting, address, model.name, callers) for callers in CONCURRENCIES
    }
    if model.ceiling:
        load |= {
            (model.ceiling, callers): _load(setting, address, model.ceiling, callers)
            for callers in CONCURRENCIES
        }
    after = _engine(setting, model)
    rates = {
        batch: (rate + after["items_per_s"][batch]) / 2
        for batch, rate in before["items_per_s"].items()
    }
    return {"engine": before | {"items_per_s": rates}, **load}


def _engine(setting: Setting, model: _Served) -> dict[str, Any]:
    return output(
        setting.engine_python,
        "bench.inprocess",
        str(model.onnx),
        f"--threads={model.threads}",
        f"--batches={','.join(map(str, model.batches))}",
        f"--seconds={ENGINE_SECONDS}",
    )


def _load(setting: Setting, address: str, model: str, callers: int) -> dict[str, Any]:
    measured = output(
        Path(sys.executable),
        "bench.load",
        address,
        model,
        f"--concurrency={callers}",
        f"--seconds={setting.seconds}",
    )
    if measured["failures"]:
        raise ClientError(
            f"model {model}, {callers} callers",
            found=f"{measured['failures']} requests failed under load",
            details=measured["first_failure"],
        )
    return measured


def _ratio(model: _Served, rounds: Sequence[Mapping[Any, Any]], callers: int) -> Ratio:
    bests = [_best(each["engine"]) for each in rounds]
    loads = [each[callers] for each in rounds]
    return Ratio(
        f"{model.name}, {callers} callers / engine",
        [load["per_s"] / rate for load, (_, rate) in zip(loads, bests, strict=True)],
        at_least=AIMS.get(callers) if model.name != TINY else None,
        facts={
            "effective batch": _median(loads, "effective_batch"),
            "p50, p95, p99 ms": [_median(loads, f"p{point}_ms") for point in (50, 95, 99)],
            "engine's best batch": statistics.mode(batch for batch, _ in bests),
            "load generator": _generator(loads),
            "engine": f"ONNX Runtime {rounds[0]['engine']['onnxruntime']}, {model.threads} threads",
        },
    )


def _of_ceiling(model: _Served, rounds: Sequence[Mapping[Any, Any]], callers: int) -> Ratio:
    """Where all cores are busy no server can pass what is left beside the network's own time: a request then
    takes its share of Triton's time and its share of the engine's."""
    pairs = [(each[callers], each[model.ceiling, callers]) for each in rounds]
    limits = [
        1 / (1 + ceiling["per_s"] / _best(each["engine"])[1])
        for each, (_, ceiling) in zip(rounds, pairs, strict=True)
    ]
    shares = [served["per_s"] / ceiling["per_s"] for served, ceiling in pairs]
    return Ratio(
        f"{model.name}, {callers} callers / Triton with an empty backend",
        shares,
        at_least=OF_LIMIT,
        facts={
            "limit by the network's own time": round(statistics.median(limits), 3),
            "of that limit": round(
                statistics.median(
                    share / limit for share, limit in zip(shares, limits, strict=True)
                ),
                3,
            ),
            "p50, p95, p99 ms of the empty backend": [
                _median([ceiling for _, ceiling in pairs], f"p{point}_ms") for point in (50, 95, 99)
            ],
        },
    )


def _generator(loads: Sequence[Mapping[str, Any]]) -> str:
    """Which one, and what it takes of the cores that it shares with the server."""
    name = str(loads[0]["generator"])
    if "generator_share" not in loads[0]:
        return f"{name}, which takes much of the cores itself; install h2load (nghttp2-client)"
    return f"{name}, {100 * _median(loads, 'generator_share') / cores():.0f} % of the cores"


def _best(engine: Mapping[str, Any]) -> tuple[int, float]:
    """The batch size with the most items per second in this round, and that rate."""
    batch, rate = max(engine["items_per_s"].items(), key=lambda pair: pair[1])
    return int(batch), rate


def _median(loads: Sequence[Mapping[str, float]], key: str) -> float:
    return round(statistics.median(load[key] for load in loads), 2)
