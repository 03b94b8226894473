"""The goals of `make gpu`, judged by recorded figures."""

from __future__ import annotations

from typing import Any

import pytest

from bench.gpu.goals import GOALS, judge, unreached
from tests.conftest import PROJECT

FP16, ENCODER, EAGER = "resnet50_fp16", "encoder_fp16", "resnet50_eager"


def engine(model: str, batch: int, per_s: float, copies: bool = False) -> dict[str, Any]:
    """A row of an engine in process."""
    row = {"round": 0, "what": "engine", "model": model, "batch": batch, "copies": copies}
    return row | {"per_s": per_s, "ms": 1000 * batch / per_s}


def served(
    model: str, way: str, callers: int, per_s: float, ms: tuple[float, float, float], **more: Any
) -> dict[str, Any]:
    """A row of the server; without callers it is that of a rate."""
    times = dict(zip(("p50_ms", "p95_ms", "p99_ms"), ms, strict=True))
    what = "served" if callers else "paced"
    row = {"round": 0, "what": what, "model": model, "way": way, "callers": callers, "per_s": per_s}
    return row | times | {"batch": 63.0, "gpu": None} | more


# Of the trial on an H200 (15,321/s by shared memory, 13,083/s by gRPC, one caller 0.85 ms); its engine ran on an H100.
TRIAL = [
    engine(FP16, 64, 17427),
    engine(FP16, 8, 10683),
    engine(FP16, 1, 1587, copies=True),
    served(FP16, "system", 256, 15321, (16.5, 18.0, 19.0), gpu=0.75),
    served(FP16, "grpc", 256, 13083, (19.3, 22.0, 23.7), gpu=0.64),
    served(FP16, "system", 1, 1122, (0.85, 1.0, 1.13)),
    served(ENCODER, "grpc", 256, 29574, (8.4, 12.0, 13.5), gpu=0.70),
    served(FP16, "system", 0, 12000, (9.0, 12.0, 15.0)),
]


def test_recorded_figures_are_judged_as_the_goals_say() -> None:
    """The engine counts at its largest batch; what has only one side is not measured, and not reached."""
    got = [judged.figures[0] if judged.figures else None for judged in judge(TRIAL)]
    assert got == [
        pytest.approx(13083 / 17427),
        pytest.approx(15321 / 17427),
        pytest.approx(0.85 - 1000 / 1587),
        None,
        pytest.approx(15 / 9),
        None,
        pytest.approx(0.75),
    ]
    assert [judged.reached for judged in judge(TRIAL)] == [False, False, True, None, True, None, True]
    assert unreached(TRIAL) == [GOALS[number].title for number in (0, 1, 3, 5)]


def test_both_sides_of_a_ratio_are_of_one_round() -> None:
    """The median of the rounds is judged, and a round without the other side gives nothing."""
    rows = [
        row | {"round": number}
        for number, rate in enumerate((900, 800, 1000))
        for row in (engine(ENCODER, 64, 1000), served(ENCODER, "grpc", 256, rate, (1, 1, 1)))
    ]
    rows.append(served(ENCODER, "grpc", 256, 5, (1, 1, 1)) | {"round": 9})
    judged = judge(rows)[3]
    assert judged.figures == [0.9, 0.8, 1.0]
    assert judged.reached


def test_eager_pytorch_is_compared_with_the_best_variant_at_load() -> None:
    """Only ResNet-50 counts; an encoder's rate has another unit."""
    rows = [*TRIAL, served(EAGER, "grpc", 1, 120, (8, 9, 10))]
    assert judge(rows)[5].figures == [pytest.approx(15321 / 120)]


def test_the_goals_are_those_of_the_page() -> None:
    """docs/gpu.md lists each bar."""
    text = (PROJECT / "docs" / "gpu.md").read_text()
    for goal in GOALS:
        assert f"| {goal.title} |" in text
