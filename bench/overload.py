"""Three times the load that replicas can answer: their remaining answers and latencies, and how soon the rest is
refused."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.h2load import Body, find_h2load, grpc_body, h2load
from bench.programs import ROOT
from bench.report import Ratio
from tritonkit.client.wire.protos import schema
from tritonkit.errors import ClientError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.keys import add_key
from tritonkit.operate.stack import Stack, StackSettings
from tritonkit.operate.stack.state import FOLDER
from tritonkit.serve.ports import check_free

if TYPE_CHECKING:
    from bench.setting import Setting

__all__ = ["overload"]

TIMES, SECONDS = 3.0, 60.0
"""Multiple of the rate that the replicas can answer, and its duration in all rounds together."""
TARGET_TIMES = 10.0
"""The target of latency, in medians of a call alone."""
GOODPUT = 0.9
MOST_FAILED = 0.002
"""Share of requests that may end in neither an answer nor a refusal: a busy machine caused one INTERNAL error."""
CALLERS = 64
CONNECTIONS = 8
MODEL, RUN_S, BATCH = "paced", 0.05, 4
_LONGEST_S, _FLUSHED_S = 300.0, 20.0
_CONFIG = f"""name: "{MODEL}"
backend: "python"
max_batch_size: {BATCH}
input {{ name: "x" data_type: TYPE_FP32 dims: [4] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [4] }}
dynamic_batching {{ }}
"""
# As a model on an accelerator, a run takes its time however busy the cores are: they are the gateway's and the load's.
_CODE = f"""import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep({RUN_S})
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in given]
"""


@dataclass(frozen=True)
class _Door:
    """A gateway, the request that is sent to it, and its record of each request."""

    address: str
    body: Body
    audit: Path


@dataclass(frozen=True)
class _Outcome:
    """Results of an open loop.

    Args:
        per_s: answers in a second.
        answered_ms: an upper bound of the p99 of answers as callers saw it: that of the same number of slowest
        requests. refused_ms: the p99 of refusals at the gateway.
        refused: their share.
        failed: requests that ended otherwise.
    """

    per_s: float
    answered_ms: float
    refused_ms: float
    refused: float
    failed: int


def overload(setting: Setting) -> list[Ratio]:
    """Goodput and latencies with limits from capacity and target, and with the default limit."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tritonkit-bench-")))
        version = folder / "repository" / MODEL / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(_CONFIG)
        (version / "model.py").write_text(_CODE)
        default = _started(stack, folder, "default", "")
        alone_ms = h2load(default.address, default.body, callers=1, seconds=2.0).p50_ms
        target_ms = TARGET_TIMES * alone_ms
        first_per_s = _capacity(default)
        spec = f"limits: {{capacity_per_s: {first_per_s / 2:.1f}, target_ms: {target_ms:.1f}}}\n"
        limited = _started(stack, folder, "limited", spec)
        seconds = max(5.0, SECONDS / setting.rounds)
        rounds: list[tuple[float, _Outcome]] = []
        for _ in range(setting.rounds):
            per_s = _capacity(default)
            rounds.append((per_s, _sent(limited, TIMES * per_s, seconds)))
        loose = _sent(default, TIMES * first_per_s, seconds)
    facts = {
        "capacity: answers/s": round(statistics.median(per_s for per_s, _ in rounds), 1),
        "target, a call alone: ms": [round(target_ms, 1), round(alone_ms, 1)],
        "refused": f"{statistics.median(load.refused for _, load in rounds):.0%}",
        "failed": sum(load.failed for _, load in rounds),
    }
    name = f"{TIMES:g} times the capacity for {seconds * setting.rounds:.0f} s"
    return [
        Ratio(f"{name}: answers/s / capacity", [e.per_s / per_s for per_s, e in rounds], at_least=GOODPUT, facts=facts),
        Ratio(f"{name}: p99 of answers / target", [e.answered_ms / target_ms for _, e in rounds], at_most=1.0),
        Ratio(f"{name}: p99 of refusals / a call alone", [e.refused_ms / alone_ms for _, e in rounds], at_most=1.0),
        Ratio("the same with the default limit: p99 of answers / target", [loose.answered_ms / target_ms]),
    ]


def _capacity(door: _Door) -> float:
    """Answers in a second to callers that each wait for theirs."""
    load = h2load(door.address, door.body, callers=CALLERS, seconds=4.0, connections=CONNECTIONS)
    return load.per_s


def _sent(door: _Door, per_s: float, seconds: float) -> _Outcome:
    """An open loop: requests leave at their moments, independent of those before them.

    Raises:
        ClientError: h2load failed, or a request ended otherwise than by an answer or a refusal.
    """
    number = round(per_s * seconds)
    before = _lines(door.audit)
    with tempfile.TemporaryDirectory(prefix="tritonkit-h2load-") as name:
        data, log = Path(name) / "body", Path(name) / "log"
        data.write_bytes(door.body.content)
        words = [
            find_h2load(),
            f"--clients={CONNECTIONS}",
            f"--rps={per_s / CONNECTIONS:.2f}",
            "--max-concurrent-streams=250",
            f"--requests={number}",
            f"--data={data}",
            f"--log-file={log}",
            *(f"--header={name}: {value}" for name, value in door.body.headers.items()),
            door.address + door.body.path,
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LONGEST_S)
        if done.returncode:
            raise ClientError(door.address, found=f"h2load ended with {done.returncode}", details=done.stderr[-2000:])
        rows = np.loadtxt(log, np.int64, ndmin=2)
    ends = _audited(door.audit, before, number)
    statuses = Counter(status for status, _, _ in ends)
    failed = number - statuses["OK"] - statuses["UNAVAILABLE"]
    if failed > MOST_FAILED * number or not (statuses["OK"] and statuses["UNAVAILABLE"]):
        raise ClientError(door.address, found=f"by status: {dict(statuses)}", wanted="answers and refusals")
    first, last = min(at for _, at, _ in ends), max(at for _, at, _ in ends)
    in_time = sum(status == "OK" and at + ms / 1e3 <= last for status, at, ms in ends)
    slowest = np.sort(rows[:, 2])[-statuses["OK"] :] / 1e3
    refused = [ms for status, _, ms in ends if status == "UNAVAILABLE"]
    p99 = [float(np.percentile(values_ms, 99)) for values_ms in (slowest, refused)]
    return _Outcome(in_time / (last - first), p99[0], p99[1], len(refused) / number, failed)


def _lines(audit: Path) -> int:
    return len(audit.read_text().splitlines()) if audit.exists() else 0


def _audited(audit: Path, before: int, number: int) -> list[tuple[str, float, float]]:
    """gRPC status, arrival in seconds, and duration in milliseconds of each request since then."""
    deadline = time.monotonic() + _FLUSHED_S
    while (lines := _lines(audit)) < before + number:
        if time.monotonic() > deadline:
            raise ClientError(str(audit), found=f"{lines - before} requests", wanted=f"{number}")
        time.sleep(0.2)
    rows = [json.loads(line) for line in audit.read_text().splitlines()[before:]]
    return [(row["grpc_status"], datetime.fromisoformat(row["time"]).timestamp(), row["duration_ms"]) for row in rows]


def _started(stack: ExitStack, folder: Path, name: str, spec: str) -> _Door:
    """Two replicas behind a gateway with this spec."""
    root = folder / name
    gateway = root / "deploy" / "gateway"
    make_certificates(gateway / "tls", ["127.0.0.1"])
    (root / ".venv-server").symlink_to(ROOT / ".venv-server")
    (gateway / "gateway.yaml").write_text(f"port: {check_free('127.0.0.1', 0)}\n{spec}")
    _, key = add_key(gateway / "keys.json", "bench")
    running = stack.enter_context(
        Stack(StackSettings(root, folder / "repository", replicas=2, gateway=gateway, prometheus=False, redis=False))
    )
    watcher = threading.Thread(target=running.watch)
    watcher.start()
    stack.callback(watcher.join)
    stack.callback(running.ending.set)
    request = schema().ModelInferRequest(model_name=MODEL)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    request.raw_input_contents.append(bytes(16))
    body = grpc_body(request.SerializeToString())
    body = replace(body, headers={**body.headers, "x-api-key": key})
    return _Door(f"https://{running.address}", body, root / FOLDER / "gateway" / "audit.jsonl")
