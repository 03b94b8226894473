"""The tables of `make gpu`, as docs/gpu.md gets them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.gpu.accuracy import compared
from bench.gpu.goals import GOALS, judge, unreached
from bench.gpu.tables import tables
from bench.pages import between
from tests.bench.test_gpu_goals import EAGER, FP16, TRIAL, served
from tests.conftest import PROJECT

CARD = {"name": "NVIDIA H200", "driver": "580.159.04"}
TF32, INT8 = "resnet50_tf32", "resnet50_int8"


def accuracy(model: str, difference: float, same: int) -> dict[str, Any]:
    """A row of compared answers."""
    figures = {"difference": difference, "same": same, "images": 64}
    return {"round": 0, "what": "accuracy", "model": model} | figures


def test_a_failed_measurement_is_no_figure() -> None:
    """It stands below the tables with its reason."""
    failed = {"round": 0, "what": "served", "model": FP16, "way": "cuda", "callers": 256, "error": "no CUDA pool"}
    text = tables({"card": CARD, "date": "2026-11-27", "generator": "perf_analyzer 2.44.0", "rows": [*TRIAL, failed]})
    assert "- served resnet50_fp16 by CUDA shared memory, 256 callers: no CUDA pool" in text
    assert judge([*TRIAL, failed])[0].figures == judge(TRIAL)[0].figures


def test_the_tables_name_the_card_and_say_what_is_reached() -> None:
    """A row for each goal, for each engine's batch and for each load."""
    text = tables({"card": CARD, "date": "2026-11-27", "generator": "perf_analyzer 2.44.0", "rows": TRIAL})
    assert text.startswith("NVIDIA H200, driver 580.159.04, 2026-11-27; load: perf_analyzer 2.44.0.")
    assert "| ResNet-50 FP16 by gRPC / the engine in process | at least 0.85 | 0.75 (0.75 to 0.75) | **no** |" in text
    assert "| resnet50_fp16, from and to numpy | 1 | 1587 | 0.63 |" in text
    assert "| resnet50_fp16 | shared memory | 256 | 15321 | 16.50, 18.00, 19.00 | 63.0 | 75% |" in text
    assert "| resnet50_fp16 | shared memory | at a rate | 12000 |" in text


def test_nothing_measured_reaches_nothing() -> None:
    """A run whose server did not start has the goals alone."""
    text = tables({"card": CARD, "date": "2026-11-27"})
    assert text.count("not measured |") == len(GOALS)
    assert len(unreached([])) == len(GOALS)


def test_the_page_has_a_place_for_the_tables() -> None:
    """docs/gpu.md has the markers once, and what is between them is replaced."""
    page = between((PROJECT / "docs" / "gpu.md").read_text(), "| a table |", "make gpu")
    assert "<!-- make gpu: begin -->\n\n| a table |\n\n<!-- make gpu: end -->" in page
    assert between(page, "| a table |", "make gpu") == page


def test_variants_of_resnet50_have_one_table() -> None:
    """Lines for one caller and for many have rates, accuracy, and the rate over that of eager PyTorch."""
    rows = [
        *TRIAL,
        served(EAGER, "grpc", 1, 100, (9.6, 10, 11)),
        served(TF32, "grpc", 1, 600, (1.6, 1.8, 2)),
        served(TF32, "grpc", 256, 8000, (30, 33, 35), gpu=0.9),
        served(INT8, "grpc", 256, 9000, (28, 30, 31)),
        accuracy(FP16, 4.2e-4, 64),
        accuracy(INT8, 0.061, 60),
    ]
    text = tables({"card": CARD, "date": "2026-11-27", "rows": rows})
    table = text[text.index("| ResNet-50 | by |") :].split("\n\n")[0].splitlines()[2:]
    assert table == [
        "| PyTorch eager FP32, a Python model | gRPC | 1 | 100 | 9.60, 11.00 |  | weights of its own |  | 1.0 |",
        "| ONNX TF32 | gRPC | 1 | 600 | 1.60, 2.00 |  |  |  | 6.0 |",
        "| ONNX TF32 | gRPC | 256 | 8000 | 30.00, 35.00 | 90% |  |  | 80.0 |",
        "| ONNX FP16 | shared memory | 1 | 1122 | 0.85, 1.13 |  | 0.0004 | 64 of 64 | 11.2 |",
        "| ONNX FP16 | gRPC | 256 | 13083 | 19.30, 23.70 | 64% | 0.0004 | 64 of 64 | 130.8 |",
        "| ONNX FP16 | shared memory | 256 | 15321 | 16.50, 19.00 | 75% | 0.0004 | 64 of 64 | 153.2 |",
        "| ONNX INT8 (QDQ) | gRPC | 256 | 9000 | 28.00, 31.00 |  | 0.06 | 60 of 64 | 90.0 |",
    ]


def test_what_is_missing_is_said_below_the_tables() -> None:
    """A model that is not served, with its reason, and one line for all that the step had no time for."""
    left_out = ["1 callers of mlp_fp32 by grpc", "the answers of resnet50_int8"]
    more = {"not_served": {INT8: "no memory"}, "left_out": left_out}
    text = tables({"card": CARD, "date": "2026-11-27", "rows": TRIAL, **more})
    assert text.endswith(
        "Not measured:\n\n- resnet50_int8: no memory\n"
        "- The step's time was over before 1 callers of mlp_fp32 by grpc, the answers of resnet50_int8."
    )


def test_answers_are_compared_with_those_of_fp32() -> None:
    """The largest difference is a share of the largest logit, whatever its sign."""
    reference = np.array([[1.0, -4.0, 2.0], [0.5, 0.0, 0.25]])
    figures = compared(reference + np.array([[0, 0, 0.1], [-0.4, 0, 0]]), reference)
    assert figures == {"difference": 0.1, "same": 1, "images": 2}
