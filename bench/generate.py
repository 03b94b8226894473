"""Language models: Triton's streams against the engine in process, continuous batching against static, prefix cache."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bench.generation_network import CONTINUOUS, MAX_SEQUENCES, MAX_TOKENS, STATIC, built
from bench.programs import ROOT
from bench.report import Ratio, Report
from tritonkit.client import AsyncClient, AsyncModel
from tritonkit.errors import ClientError
from tritonkit.perf.diagnose.metrics import read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.setting import Setting

__all__ = ["run"]

IN_FLIGHT = {1: None, 8: 0.9, 32: 0.9}
"""Concurrent sequences, and the least share of the engine's tokens a second that Triton must reach."""
PROMPT, NEW = 32, 48
"""Tokens of a prompt and of an answer, if both are the same for all."""
TURNS = 3
"""Runs of both sides in a round, whose times are added up."""
FIRST_CALLS, SHARED_CALLS = 40, 8
ADDED_MS = 5.0
SKEWED, ASKED, MEAN, SIGMA = 384, 4, 24, 2.0
"""Requests of the comparison with static batching, tokens of each prompt; lengths of answers are lognormal: most are
short, a few long."""
LEAST_THROUGHPUT, MOST_P99 = 2.0, 0.5
SHARED, OWN = 500, 8
"""Tokens that all prompts begin with, and tokens of each one's own."""
MOST_CACHED = 0.3
_PREFILL = "prefill"
_VOCABULARY = 40_000
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Timed:
    """Seconds until the first token and the last of each of some requests that began together."""

    first_s: Sequence[float]
    done_s: Sequence[float]

    @property
    def whole_s(self) -> float:
        """Until the last one ended."""
        return max(self.done_s)


Ask: TypeAlias = "Callable[[Sequence[Sequence[int]], Sequence[int]], Timed]"
"""Sends prompts, as tokens, with the number of tokens that each answer must have."""
Figures: TypeAlias = Mapping[str, float]
"""Figures of one round, by name."""


def run(setting: Setting) -> Report:
    """Tokens a second, the time to the first token, continuous against static batching, and the prefix cache."""
    from tritonkit.serve import serve

    setting.refuse_address()
    repository = built()
    with (
        serve(repository, grpc_port=0, metrics_port=0) as endpoint,
        _engine(setting, repository / CONTINUOUS) as engine,
        _served(endpoint.grpc, CONTINUOUS) as served,
        _served(endpoint.grpc, STATIC) as batched,
    ):
        prompts = _Prompts()
        for ask in (engine, served, batched):
            ask(prompts.some(2), [NEW] * 2)
        rounds = [_round(prompts, engine, served, batched, endpoint.metrics) for _ in range(setting.rounds)]
    return Report(
        "generate",
        f"a network of SmolLM2-360M's shape with random weights, INT8; prompts of {PROMPT} tokens, answers of {NEW},"
        f" greedy; skewed: {SKEWED} requests of {ASKED} tokens together, answers lognormal with mean {MEAN} and sigma"
        f" {SIGMA}, at most {MAX_TOKENS} tokens, {MAX_SEQUENCES} sequences in a batch",
        _ratios(rounds),
    )


class _Prompts:
    """New prompts, no two of which begin with the same words."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def some(self, count: int, length: int = PROMPT) -> list[list[int]]:
        drawn = self._random.integers(1, _VOCABULARY, (count, length))
        return [[int(token) for token in row] for row in drawn]


def _round(prompts: _Prompts, engine: Ask, served: Ask, static: Ask, metrics: str) -> Figures:
    """Measure everything once, the two sides of each comparison in succession."""
    figures: dict[str, float] = {}
    for count in IN_FLIGHT:
        taken_s = {"engine": 0.0, "served": 0.0}
        for _ in range(TURNS):
            for name, ask in (("engine", engine), ("served", served)):
                taken_s[name] += ask(prompts.some(count), [NEW] * count).whole_s
        for name, seconds in taken_s.items():
            figures[f"{name} {count}"] = TURNS * count * NEW / seconds
    figures["first added"] = _first_added(prompts, served, metrics)
    lengths = _skewed()
    for name, ask in (("continuous", served), ("static", static)):
        timed = ask(prompts.some(len(lengths), ASKED), lengths)
        figures[f"{name} rate"] = sum(lengths) / timed.whole_s
        figures[f"{name} p99"] = float(np.percentile(timed.done_s, 99))
        figures[f"{name} p50"] = float(np.percentile(timed.done_s, 50))
    return {**figures, **_cached(prompts, served)}


def _first_added(prompts: _Prompts, served: Ask, metrics: str) -> float:
    """Median milliseconds from a lone request to its first token, minus the engine's own step by the model's counters.
    Compared with the engine in process, it would be a small difference of two steps that vary.
    """
    added_ms = []
    count, before_s = _prefill(metrics)
    for number in range(1, FIRST_CALLS + 1):
        first_s = served(prompts.some(1), [2]).first_s[0]
        while (prefill := _prefill(metrics))[0] < count + number:  # they are written twice a second
            time.sleep(0.05)
        added_ms.append(1e3 * (first_s - (prefill[1] - before_s)))
        before_s = prefill[1]
    return statistics.median(added_ms)


def _prefill(metrics: str) -> tuple[float, float]:
    """Steps that computed prompts, and the seconds they took."""
    counters = read_metrics(metrics).language[CONTINUOUS].counters
    return counters["steps_total", _PREFILL], counters["step_seconds_total", _PREFILL]


def _cached(prompts: _Prompts, served: Ask) -> Figures:
    """Milliseconds to the first token of long prompts with a common beginning, and of others."""
    (shared,) = prompts.some(1, SHARED)
    served([shared], [2])
    taken: dict[str, list[float]] = {"cold": [], "cached": []}
    for _ in range(SHARED_CALLS):
        for name, beginning in (("cold", prompts.some(1, SHARED)[0]), ("cached", shared)):
            prompt = [*beginning, *prompts.some(1, OWN)[0]]
            taken[name].append(1e3 * served([prompt], [2]).first_s[0])
    return {name: statistics.median(times) for name, times in taken.items()}


def _skewed() -> list[int]:
    drawn = np.random.default_rng(1).lognormal(np.log(MEAN) - SIGMA**2 / 2, SIGMA, SKEWED)
    return [int(length) for length in np.clip(np.rint(drawn), 1, MAX_TOKENS)]


def _ratios(rounds: Sequence[Figures]) -> list[Ratio]:
    def ratio(name: str, over: str, under: str, **more: Any) -> Ratio:
        facts = {key: round(statistics.median(figures[key] for figures in rounds), 1) for key in (over, under)}
        return Ratio(name, [figures[over] / figures[under] for figures in rounds], facts=facts, **more)

    rates = [
        ratio(f"tokens/s, {count} concurrent: Triton / engine", f"served {count}", f"engine {count}", at_least=least)
        for count, least in IN_FLIGHT.items()
    ]
    added = Ratio("first token, ms that Triton adds", [figures["first added"] for figures in rounds], at_most=ADDED_MS)
    return [
        *rates,
        added,
        ratio(
            "skewed lengths, tokens/s: continuous / static", "continuous rate", "static rate", at_least=LEAST_THROUGHPUT
        ),
        ratio("skewed lengths, p99: continuous / static", "continuous p99", "static p99", at_most=MOST_P99),
        ratio("skewed lengths, p50: continuous / static", "continuous p50", "static p50"),
        ratio(f"first token, {SHARED} tokens shared: cached / cold", "cached", "cold", at_most=MOST_CACHED),
    ]


@contextmanager
def _engine(setting: Setting, model: Path) -> Iterator[Ask]:
    """Run the engine in a separate process."""
    from google.protobuf import json_format, text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    parsed = text_format.Parse((model / "config.pbtxt").read_text(), ModelConfig())
    config = json_format.MessageToJson(parsed, preserving_proto_field_name=True)
    version = max((path for path in model.iterdir() if path.name.isdecimal()), key=lambda v: int(v.name))
    process = subprocess.Popen(
        [str(setting.engine_python), "-m", "bench.generation_engine", str(version), config],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # OpenVINO sends nothing about its use if this is set.
        env=os.environ | {"PYTHONPATH": str(ROOT), "CI": "true"},
    )
    to_engine, from_engine = process.stdin, process.stdout
    assert to_engine is not None  # noqa: S101
    assert from_engine is not None  # noqa: S101

    def line() -> dict[str, Any]:
        if not (text := from_engine.readline()):
            raise ClientError("bench.generation_engine", found=f"it ended: {process.wait()}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def ask(prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> Timed:
        to_engine.write(json.dumps({"prompts": prompts, "lengths": lengths}) + "\n")
        to_engine.flush()
        return Timed(**line())

    line()
    try:
        yield ask
    finally:
        to_engine.close()
        process.wait()
        from_engine.close()


@contextmanager
def _served(address: str, model: str) -> Iterator[Ask]:
    """Yield a function that sends prompts to a model as concurrent streams over one connection."""

    async def one(target: AsyncModel, prompt: Sequence[int], length: int) -> tuple[float, float]:
        text = " ".join(f"w{token}" for token in prompt)
        first = count = 0.0
        async for reply in target.stream(text=text, max_tokens=length, ignore_eos=True, temperature=0.0):
            first = first or time.perf_counter()
            count += len(reply["tokens"])
        if count != length:
            raise ClientError(model, found=f"{count:g} tokens", wanted=f"{length}")
        return first, time.perf_counter()

    async def every(target: AsyncModel, prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> Timed:
        started = time.perf_counter()
        moments = await asyncio.gather(*(one(target, *job) for job in zip(prompts, lengths, strict=True)))
        first, done = zip(*moments, strict=True)
        return Timed([at - started for at in first], [at - started for at in done])

    async def opened() -> tuple[AsyncClient, AsyncModel]:
        client = AsyncClient(address, timeout_s=_TIMEOUT_S)
        return client, await client.model(model)

    with asyncio.Runner() as runner:
        client, target = runner.run(opened())
        try:
            yield lambda prompts, lengths: runner.run(every(target, prompts, lengths))
        finally:
            runner.run(client.close())
