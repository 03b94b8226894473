"""ONNX Runtime's workers while they wait: a network alone, and two that share the cores."""

from __future__ import annotations

import threading
import time
from itertools import product
from pathlib import Path
from typing import Any

from bench.inprocess import feed
from bench.report import Ratio, Report
from bench.setting import Setting
from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.machine import cores
from tritonkit.repository.export.onnx_file import session_options

__all__ = ["run"]

BATCHES = (1, 8, 32)
LENGTH = 24
"""Tokens of a text."""
NEVER = "never"
POLICIES = {
    NEVER: {"session.intra_op.allow_spinning": "0"},
    **{
        f"for {us} us within a run": {"session.intra_op.spin_duration_us": us, "session.force_spinning_stop": "1"}
        for us in ("5", "20", "50", "100")
    },
    "always, as by default": {},
}
_REST_S = 0.02


def run(setting: Setting) -> Report:
    """Rates of a network in process, alone and next to its copy, by the time that idle workers spin."""
    files = sorted((setting.repository / "sentences_network").glob("[0-9]*/model.onnx"))
    if not files:
        raise UsageError(
            str(setting.repository / "sentences_network"), found="no model.onnx", todo="python tools/build_repo.py"
        )
    sessions = {name: [_open(files[-1], entries) for _ in range(2)] for name, entries in POLICIES.items()}
    rates: dict[tuple[str, int, int], list[float]] = {}
    for _ in range(setting.rounds):
        for batch, count, name in product(BATCHES, (1, 2), POLICIES):
            rate = _rate(sessions[name][:count], batch, setting.seconds)
            rates.setdefault((name, batch, count), []).append(rate)
    ratios = [
        Ratio(
            f"{_WORDS[count]}, batches of {batch}: spinning {name} / {NEVER}",
            [a / b for a, b in zip(rates[name, batch, count], rates[NEVER, batch, count], strict=True)],
            facts={"items/s": " ".join(f"{rate:.0f}" for rate in rates[name, batch, count])},
        )
        for count, batch, name in product((1, 2), BATCHES, POLICIES)
        if name != NEVER
    ]
    version = need("onnxruntime", "build").__version__
    return Report("spinning", f"sentences_network in process, ONNX Runtime {version}, {cores()} threads each", ratios)


_WORDS = {1: "one network", 2: "two together"}


def _open(file: Path, entries: dict[str, str]) -> Any:
    ort = need("onnxruntime", "build")
    options = session_options()
    options.intra_op_num_threads = cores()
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def _rate(sessions: list[Any], batch: int, seconds: float) -> float:
    """Items per second of all of them together."""
    time.sleep(_REST_S)  # the workers of the one before may still spin
    rates: list[float] = []

    def loop(session: Any) -> None:
        inputs = feed(session, batch, LENGTH)
        session.run(None, inputs)
        runs, started = 0, time.perf_counter()
        while (taken := time.perf_counter() - started) < seconds:
            session.run(None, inputs)
            runs += 1
        rates.append(runs * batch / taken)

    threads = [threading.Thread(target=loop, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)
