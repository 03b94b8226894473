"""Step contracts: tensors that depend on parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PROJECT, WriteModel
from tritonkit.errors import SpecError
from tritonkit.repository.modelspec import ResolvedStep

MODEL = """
name: net
network: {{onnx: model.onnx}}
pipeline:
- {{step: {step}, parameters: {parameters}}}
- network
"""
STEP = """
description: A step
parameters:
  size: {{type: int, default: 3, help: "Length"}}
  kind: {{type: str, default: FP32, choices: [FP32, UINT8], help: "Dtype"}}
  name: {{type: str, default: FP32, help: "Any text"}}
  maybe: {{type: int, help: "Not always there"}}
inputs:
  x: {{dtype: FP32, shape: [1]}}
outputs:
  y: {{dtype: {dtype}, shape: [{size}]}}
"""


def resolved(write_model: WriteModel, parameters: str = "{}", step: str = "decode_image") -> ResolvedStep:
    """The only step of a pipeline with these parameters."""
    spec = write_model(MODEL.format(step=step, parameters=parameters), model__onnx=b"")
    resolved_step = spec.steps[0]
    assert resolved_step is not None
    return resolved_step


def own_step(folder: Path, dtype: str = "$kind", size: str = "$size") -> None:
    """Write a step `mine` into the model's folder."""
    place = folder / "models" / "net" / "steps" / "mine"
    place.mkdir(parents=True)
    (place / "step.yaml").write_text(STEP.format(dtype=dtype, size=size))


@pytest.mark.parametrize(
    ("parameters", "tensor"),
    [
        ("{}", ("FP32", (3, 224, 224))),
        ("{dtype: FP32, height: 8}", ("FP32", (3, 8, 224))),
        ("{dtype: UINT8, channels: 1}", ("UINT8", (1, 224, 224))),
    ],
)
def test_pixels_have_the_dtype_that_is_asked_for(
    write_model: WriteModel, parameters: str, tensor: tuple[str, tuple[int, ...]]
) -> None:
    """decode_image gives FP32 by default, UINT8 where the spec says so."""
    step = resolved(write_model, parameters)
    assert step.outputs == {"pixels": tensor}
    assert step.inputs == {"image": ("BYTES", (1,))}
    assert step.parameters["dtype"] == tensor[0]


def test_another_dtype_is_refused(write_model: WriteModel) -> None:
    """A dtype that the step does not give is refused with the ones it does."""
    with pytest.raises(SpecError, match="FP32, UINT8") as caught:
        resolved(write_model, "{dtype: FP16}")
    assert caught.value.where.endswith("pipeline.decode_image.parameters.dtype")


def test_a_step_of_ones_own_may_depend_on_its_parameters(write_model: WriteModel, root: Path) -> None:
    """Dtype and shape of a step in the model's folder follow its parameters."""
    own_step(root)
    step = resolved(write_model, "{kind: UINT8, size: 5}", "mine")
    assert step.outputs == {"y": ("UINT8", (5,))}


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"dtype": "$missing"}, "y has the dtype $missing"),
        ({"dtype": "$size"}, "y has the dtype $size"),
        ({"dtype": "$name"}, "wanted: a str parameter whose choices are dtypes"),
        ({"size": "$missing"}, "y has the size $missing"),
        ({"size": "$kind"}, "y has the size $kind"),
        ({"size": "$maybe"}, "wanted: an int parameter"),
    ],
)
def test_a_contract_that_names_no_fitting_parameter_is_refused(
    write_model: WriteModel, root: Path, tensor: dict[str, str], message: str
) -> None:
    """`$name` must be a parameter that always has a value of the right kind."""
    own_step(root, **tensor)
    with pytest.raises(SpecError) as caught:
        resolved(write_model, step="mine")
    assert message in f"{caught.value}"
    assert "mine/step.yaml" in caught.value.where


def test_every_shipped_contract_is_read() -> None:
    """The steps that ship keep to the rules for contracts."""
    from tritonkit.repository.modelspec import StepContract
    from tritonkit.repository.modelspec.document import read_document

    contracts = sorted((PROJECT / "python_backends" / "steps").glob("*/step.yaml"))
    assert len(contracts) == 4
    for file in contracts:
        assert read_document(file, StepContract).outputs
