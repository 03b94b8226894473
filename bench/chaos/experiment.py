"""Minutes of checked load, with or without faults, and a report of the results."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.chaos.callers import Call, Load
from bench.chaos.faults import Fault, Faults, moments
from bench.chaos.judge import MARGIN_S, Explained, explain, per_second, steady_s
from bench.chaos.known import learn
from bench.chaos.leftovers import Leftovers, count, end
from bench.chaos.parts import Sample, sample
from bench.chaos.picture import drawn
from bench.chaos.pings import Pings
from bench.chaos.stack import Running, started
from bench.report import Ratio, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.setting import Setting

__all__ = ["run"]

_CALM_S, _CALM_SHARE = 5.0, 0.2
"""Load without faults before the first and after the last, for memory and files, and no more than this share of it."""
_SAMPLED_S = 5.0
_MIB = 1 << 20


@dataclass(frozen=True)
class _Seen:
    """Observations of a stack.

    Args:
        pings: when a replica left a ping unanswered. still: when the machine stood still.
        samples: samples of the running stack; the first and the last are of a calm one.
        left: leftovers before the first fault, after the last, and after the end.
        exit_code: the exit code of `tritonkit up`.
    """

    calls: Sequence[Call]
    faults: Sequence[Fault]
    pings: Sequence[tuple[float, float]]
    still: Sequence[tuple[float, float]]
    samples: Sequence[Sample]
    left: tuple[Leftovers, Leftovers, Leftovers]
    exit_code: int | None


def run(setting: Setting) -> Report:
    """Answers, failures and recovery of a stack whose parts are killed and stopped at random."""
    setting.refuse_address()
    with started(setting.repository) as running:
        observed = _watched(setting, running)
    explained = explain(observed.calls, observed.faults, observed.pings, observed.still)
    right, other = per_second(observed.calls)
    if setting.svg is not None:
        whole = drawn(right[:-1], other[:-1], observed.faults)  # not the second in which it was over
        setting.svg.write_text(whole, encoding="utf-8")
    return Report(
        "chaos",
        f"{setting.minutes:g} minutes, {len(observed.faults)} faults of seed {setting.seed}, checked answers",
        _ratios(observed, explained),
        more=_facts(setting, observed, explained, right, other),
        notes=_notes(observed, explained),
    )


def _watched(setting: Setting, running: Running) -> _Seen:
    """Load with faults between two calm ends, then the end of the stack."""
    truth = learn(running)
    samples = []
    calm_s = min(_CALM_S, _CALM_SHARE * 60 * setting.minutes)
    with Load(running, truth, setting.seed) as load, Pings(running, load) as pings:
        faults = Faults(running, truth, load, setting.seed)
        time.sleep(calm_s)
        samples.append(sample(running, load.now_s()))
        before = count(running)
        last_s = load.now_s() + 60 * setting.minutes
        number = round(setting.kills * setting.minutes)
        due = moments(setting.seed, number, load.now_s(), last_s)
        while load.now_s() < last_s:
            until_s = min(last_s, load.now_s() + _SAMPLED_S, *due[:1])
            time.sleep(max(0.0, until_s - load.now_s()))
            if due and load.now_s() >= due[0]:
                due.pop(0)
                _say(faults.strike())
            else:
                samples.append(sample(running, load.now_s()))
        faults.settle()
        time.sleep(MARGIN_S if faults.done else 0.0)
        time.sleep(calm_s)
        samples.append(sample(running, load.now_s()))
        after = count(running)
    exit_code = end(running)
    return _Seen(load.calls, faults.done, pings.spans, pings.still, samples, (before, after, count(running)), exit_code)


def _say(fault: Fault | None) -> None:
    if fault is not None:
        member = fault.member
        print(f"{fault.at_s:6.1f} s {fault.signal} {member.part} {member.instance}", flush=True)


def _ratios(observed: _Seen, explained: Explained) -> list[Ratio]:
    """Figures with a limit, then the seconds until each kind of part answered right again."""
    end = observed.left[2]
    wrong = sum(not call.right for call in observed.calls)
    lost = sum(fault.recovered_s is None for fault in observed.faults)
    limited = {
        "wrong answers": wrong,
        "failed calls that no fault explains": len(explained.unexplained),
        "parts that did not answer right again": lost,
        "processes left": end.processes + end.zombies,
        "regions of shared memory left": end.regions,
        "folders of Python environments left": end.environments,
    }
    ratios = [Ratio(name, [float(value)], at_most=0.0) for name, value in limited.items()]
    for part in sorted({fault.member.part for fault in observed.faults}):
        for signal in ("SIGKILL", "SIGSTOP"):
            some = [f for f in observed.faults if (f.member.part, f.signal) == (part, signal)]
            took = [fault.recovered_s for fault in some if fault.recovered_s is not None]
            if took:
                ratios.append(Ratio(f"{signal} of {part}: seconds until it answers right", took))
    return ratios


def _facts(
    setting: Setting, observed: _Seen, explained: Explained, right: Sequence[int], other: Sequence[int]
) -> dict[str, Any]:
    """Facts for the JSON report."""
    names = ("before", "after", "ended")
    return {
        "minutes": setting.minutes,
        "kills_per_minute": setting.kills,
        "seed": setting.seed,
        "margin_s": MARGIN_S,
        "answers": dict(Counter(f"{c.door} {c.model}" for c in observed.calls if c.right and not c.cause)),
        "wrong": [asdict(call) for call in observed.calls if not call.right],
        "failed": [
            {"part": part, "door": door, "cause": cause, "calls": len(calls), "words": calls[0].words}
            for (part, door, cause), calls in sorted(explained.by.items())
        ],
        "unexplained": [asdict(call) for call in explained.unexplained],
        "faults": [_fault(observed, fault) for fault in observed.faults],
        "unanswered_pings_s": list(observed.pings),
        "still_s": list(observed.still),
        "samples": [asdict(sample) for sample in observed.samples],
        "left": {name: asdict(left) for name, left in zip(names, observed.left, strict=True)},
        "exit_code": observed.exit_code,
        "right_per_s": list(right),
        "failed_per_s": list(other),
    }


def _fault(observed: _Seen, fault: Fault) -> dict[str, Any]:
    member = fault.member
    return {
        "part": member.part,
        "replica": member.replica,
        "instance": member.instance,
        "signal": fault.signal,
        "at_s": fault.at_s,
        "stopped_s": fault.stopped_s,
        "recovered_s": fault.recovered_s,
        "steady_s": steady_s(observed.calls, fault),
    }


def _notes(observed: _Seen, explained: Explained) -> list[str]:
    """Failures by cause, memory and files, and the verdict in a line."""
    answers = sum(call.right and not call.cause for call in observed.calls)
    wrong = sum(not call.right for call in observed.calls)
    failed = sum(map(len, explained.by.values()))
    rows = [
        f"{len(calls):7} {door}: {cause}, by {part}; one at {calls[0].began_s:.1f} s: {calls[0].words[:80]}"
        for (part, door, cause), calls in sorted(explained.by.items())
    ]
    rows += [
        f"unexplained at {call.began_s:.1f} to {call.ended_s:.1f} s, {call.door} {call.model}: {call.words}"
        for call in explained.unexplained[:20]
    ]
    rows += _held(observed.samples)
    rows.append("left before, after, at the end: " + " | ".join(map(_in_words, observed.left)))
    rows.append(
        f"{answers} right answers, {wrong} wrong, {failed} failed and explained,"
        f" {len(explained.unexplained)} unexplained; {len(observed.faults)} faults"
    )
    return rows


def _held(samples: Sequence[Sample]) -> list[str]:
    """Memory and open files of each part at both calm ends, and the growth between the first and the last quarter."""
    first, last = samples[0], samples[-1]
    quarter = max(1, len(samples) // 4)
    early, late = samples[:quarter], samples[-quarter:]
    rows = []
    for part in sorted(first.pss_bytes | last.pss_bytes):
        memory = [sample.pss_bytes.get(part, 0) / _MIB for sample in (first, last)]
        files = [sample.files.get(part, 0) for sample in (first, last)]
        grown = _mean(late, part) - _mean(early, part)
        more = _mean_files(late, part) - _mean_files(early, part)
        rows.append(
            f"{part:28} {memory[0]:5.0f} to {memory[1]:5.0f} MiB ({grown / _MIB:+.1f} between quarters),"
            f" {files[0]} to {files[1]} files ({more:+.1f})"
        )
    shared = f"{first.shared_bytes / _MIB:.0f} to {last.shared_bytes / _MIB:.0f} MiB"
    return [*rows, f"{'shared memory':28} {shared}"]


def _mean(samples: Sequence[Sample], part: str) -> float:
    return statistics.mean(sample.pss_bytes.get(part, 0) for sample in samples)


def _mean_files(samples: Sequence[Sample], part: str) -> float:
    return statistics.mean(sample.files.get(part, 0) for sample in samples)


def _in_words(left: Leftovers) -> str:
    return ", ".join(f"{value} {name}" for name, value in asdict(left).items())
