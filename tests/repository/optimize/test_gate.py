"""The advice of a refusal: it depends on which figure is not good enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.repository.export.artifact import Artifact, MeasuredQuality, Signature
from tritonkit.repository.optimize.gate import judge, refuse

TEXT = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
quality: {at_least: 0.9, max_drop: 0.01}
"""


def advice(write_model: WriteModel, variant: str, value: float, reference: float) -> dict[str, str]:
    """The advice for each missed limit, by its field."""
    spec = write_model(TEXT, network__py="")
    measured = MeasuredQuality("accuracy", value, reference, 0.1, 100, against="PyTorch")
    artifact = Artifact("net", variant, Path(), {}, Signature((), (), True), measured, "", {})
    outcome = judge(spec, artifact)
    assert refuse(spec, artifact, outcome).todo == outcome.misses[0].todo
    return {miss.field.removeprefix("quality."): miss.todo for miss in outcome.misses}


def test_a_reference_below_the_bar_wants_training(write_model: WriteModel) -> None:
    """No other variant makes up for a network that is not good enough itself."""
    given = advice(write_model, "onnx-int8-static", 0.85, 0.855)
    assert list(given) == ["at_least"]
    assert "the reference (PyTorch) itself reaches 0.8550: train it longer" in given["at_least"]
    assert "variant" not in given["at_least"]


def test_a_variant_below_the_bar_does_not_want_training(write_model: WriteModel) -> None:
    """The network is good enough: what was lost is the variant's."""
    given = advice(write_model, "onnx-int8-static", 0.85, 0.95)
    assert list(given) == ["at_least", "max_drop"]
    assert "the reference (PyTorch) reaches 0.9500, so it is the variant" in given["at_least"]
    assert "train" not in given["at_least"]
    assert "raise max_drop if that much may be lost" in given["max_drop"]


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("onnx-int8-static", "optimize.calibration"),
        ("openvino-int8", "stay FP32"),
        ("tflite-int8", "optimize.calibration"),
        ("onnx-int8-qat", "optimize.epochs"),
        ("pruned+onnx-int8-static", "optimize.keep_channels"),
        ("distilled", "optimize.student"),
    ],
)
def test_a_drop_names_what_that_variant_can_do(write_model: WriteModel, variant: str, message: str) -> None:
    """Calibration for ranges, epochs for what trains, channels for what is cut."""
    todo = advice(write_model, variant, 0.92, 0.95)["max_drop"]
    assert todo.startswith("choose another variant")
    assert message in todo


def test_other_precisions_without_data_have_another_variant_alone(write_model: WriteModel) -> None:
    """No data changes what OpenVINO's BF16 loses."""
    todo = advice(write_model, "openvino-bf16", 0.92, 0.95)["max_drop"]
    assert "optimize." not in todo


def test_the_default_metric_names_what_moved(write_model: WriteModel) -> None:
    """Boxes in pixels are close, the scores next to them are not: refused, by the name of those columns."""
    spec = write_model(TEXT.replace("at_least: 0.9, ", ""), network__py="")
    parts = {"y columns 0 to 3 of axis 1": 0.9951, "y columns 4 to 23 of axis 1": 0.9754}
    measured = MeasuredQuality("R2", 0.9754, 1.0, 27.0, 16, against="PyTorch", parts=parts)
    signature = Signature((), (), True)
    artifact = Artifact("net", "onnx-int8-static", Path(), {}, signature, measured, "", {})
    (miss,) = judge(spec, artifact).misses
    assert miss.found.startswith("R2 of y columns 4 to 23 of axis 1 is 0.9754 on 16 samples, 0.0246 below")
    assert miss.todo.endswith("it was measured on made-up numbers: give real input with quality.samples")
