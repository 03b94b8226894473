"""What serving costs on top of the engine: Triton's throughput over ONNX Runtime's in process."""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.programs import output
from bench.report import Ratio, Report
from bench.setting import Setting, served
from tritonkit.client import Client
from tritonkit.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["run"]

MODELS = ("digits_network", "sentences_network")
CONCURRENCIES = (1, 8, 32)
PROMISED = {("sentences_network", 32): 0.80}
ENGINE_SECONDS = 0.6  # for each batch size, before and again after the loads of a round


@dataclass(frozen=True)
class _Served:
    """One model as it is served: its file, and the threads its server may use."""

    name: str
    onnx: Path
    threads: int
    batches: Sequence[int]


def run(setting: Setting) -> Report:
    """Throughput of served models over the same engine in process, at its best batch size."""
    ratios: list[Ratio] = []
    with served(setting, MODELS) as address, Client(address) as client:
        for name in MODELS:
            model = _model(client, setting.repository, name)
            rounds = [_round(setting, address, model) for _ in range(setting.rounds)]
            ratios += [_ratio(model, rounds, callers) for callers in CONCURRENCIES]
    return Report(
        "serving",
        "items per second through Triton over the engine alone on the same cores; latencies in ms, "
        "of this machine and this run",
        ratios,
    )


def _model(client: Client, repository: Path, name: str) -> _Served:
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
    load = {callers: _load(setting, address, model.name, callers) for callers in CONCURRENCIES}
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
        at_least=PROMISED.get((model.name, callers)),
        facts={
            "effective batch": _median(loads, "effective_batch"),
            "p50, p95, p99 ms": [_median(loads, f"p{point}_ms") for point in (50, 95, 99)],
            "engine's best batch": statistics.mode(batch for batch, _ in bests),
            "engine": f"ONNX Runtime {rounds[0]['engine']['onnxruntime']}, {model.threads} threads",
        },
    )


def _best(engine: Mapping[str, Any]) -> tuple[int, float]:
    """The batch size with the most items per second in this round, and that rate."""
    batch, rate = max(engine["items_per_s"].items(), key=lambda pair: pair[1])
    return int(batch), rate


def _median(loads: Sequence[Mapping[str, float]], key: str) -> float:
    return round(statistics.median(load[key] for load in loads), 2)
