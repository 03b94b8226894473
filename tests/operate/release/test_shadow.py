"""Two answers to one request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tritonkit.operate.release.rules import parse_rules
from tritonkit.operate.release.shadow import ShadowCounts, difference
from tritonkit.operate.release.shadowed import ShadowJudge

DATATYPES = {np.dtype("float32"): "FP32", np.dtype("int64"): "INT64"}


def answer(version: str = "1", **outputs: Any) -> bytes:
    """A `ModelInferResponse`."""
    message = service_pb2.ModelInferResponse(model_name="net", model_version=version)
    for name, array in outputs.items():
        message.outputs.add(name=name, datatype=DATATYPES[array.dtype], shape=array.shape)
        message.raw_output_contents.append(array.tobytes())
    return bytes(message.SerializeToString())


NUMBERS = np.array([[1.0, -2.0, 100.0]], np.float32)


@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        (answer("2", y=NUMBERS), ""),
        (answer(y=NUMBERS + 0.9), ""),
        (answer(y=NUMBERS + 1.1), "y: other values"),
        (answer(y=np.array([[1.0, np.nan, 100.0]], np.float32)), "y: other values"),
        (answer(y=np.array([[1.0, -np.inf, 100.0]], np.float32)), "y: other values"),
        (answer(y=NUMBERS[:, :2]), "y: float32 [1, 3] became float32 [1, 2]"),
        (answer(y=np.array([[1, 2, 3]])), "y: float32 [1, 3] became int64 [1, 3]"),
        (answer(z=NUMBERS), "outputs y became z"),
        (b"\xff\xff", "an answer that cannot be read"),
        ("INTERNAL", "an answer became INTERNAL"),
    ],
)
def test_differences_are_named(candidate: bytes | str, kind: str) -> None:
    """A version is none; numbers may differ by a hundredth of the largest."""
    assert difference(answer(y=NUMBERS), candidate, 0.01) == kind


def test_failures_are_compared_too() -> None:
    """The same of both is no difference."""
    assert difference("UNAVAILABLE", "UNAVAILABLE", 0.01) == ""
    assert difference("UNAVAILABLE", answer(y=NUMBERS), 0.01) == "UNAVAILABLE became an answer"
    integers = np.array([1, 2])
    assert difference(answer(y=integers), answer(y=integers + 1), 0.5) == "y: other values"
    assert difference(answer(y=NUMBERS[:, :0]), answer(y=NUMBERS[:, :0]), 0) == ""


def test_a_rule_ends_what_differs_too_often() -> None:
    """And says what differs most."""
    judge, counts = ShadowJudge(parse_rules("p99>20ms,differ>1%")), ShadowCounts()
    for _ in range(200):
        counts.add("")
    judge.look(counts)
    assert [finding.broken for finding in judge.findings] == [False]
    for _ in range(20):
        counts.add("y: other values")
    judge.look(counts)
    (finding,) = judge.findings
    assert finding.broken
    assert finding.found == "20 of 220 copies, most often: y: other values"
