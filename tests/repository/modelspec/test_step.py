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
  again: {{type: int, default: {again}, help: "As long"}}
  more: {{type: bool, default: false, help: "Give z, too"}}
  order: {{type: str, default: first, choices: [first, last], help: "Place of the channels"}}
inputs:
  x: {{dtype: FP32, shape: [1]}}
  pair: {{when: {{more: true}}, dtype: FP32, shape: [1], optional: true}}
outputs:
  y: {{dtype: {dtype}, shape: [{size}]}}
  z:
  - {{when: {{more: true, order: first}}, dtype: INT32, shape: [3, -1]}}
  - {{when: {{{when}, more: true}}, dtype: INT32, shape: [-1, 3]}}
"""


def resolved(write_model: WriteModel, parameters: str = "{}", step: str = "decode_image") -> ResolvedStep:
    """The only step of a pipeline with these parameters."""
    spec = write_model(MODEL.format(step=step, parameters=parameters), model__onnx=b"")
    resolved_step = spec.steps[0]
    assert resolved_step is not None
    return resolved_step


def own_step(
    folder: Path, dtype: str = "$kind", size: str = "$size", when: str = "order: last", again: str = "$size"
) -> None:
    """Write a step `mine` into the model's folder."""
    place = folder / "models" / "net" / "steps" / "mine"
    place.mkdir(parents=True)
    (place / "step.yaml").write_text(STEP.format(dtype=dtype, size=size, when=when, again=again))


@pytest.mark.parametrize(
    ("parameters", "tensor"),
    [
        ("{}", ("FP32", (3, 224, 224))),
        ("{dtype: FP32, height: 8}", ("FP32", (3, 8, 224))),
        ("{dtype: UINT8, channels: 1}", ("UINT8", (1, 224, 224))),
        ("{layout: NHWC, height: 8}", ("FP32", (8, 224, 3))),
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


def test_a_size_of_zero_leaves_the_axis_free(write_model: WriteModel, root: Path) -> None:
    """A step may have a parameter that fixes a length, or leaves it to each request."""
    own_step(root)
    assert resolved(write_model, "{size: 0}", "mine").outputs == {"y": ("FP32", (-1,))}


@pytest.mark.parametrize(
    ("parameters", "shape"),
    [("{}", None), ("{order: last}", None), ("{more: true}", (3, -1)), ("{more: true, order: last}", (-1, 3))],
)
def test_a_step_has_the_tensors_of_its_parameters(
    write_model: WriteModel, root: Path, parameters: str, shape: tuple[int, int] | None
) -> None:
    """Without the value that `when` names there is no such tensor; the first form that fits counts."""
    own_step(root)
    step = resolved(write_model, parameters, "mine")
    assert step.outputs.get("z") == (("INT32", shape) if shape else None)
    assert (set(step.inputs), step.optional) == (({"x", "pair"}, {"pair"}) if shape else ({"x"}, set()))


@pytest.mark.parametrize(
    ("parameters", "value"), [("{}", "3"), ("{size: 5}", "5"), ("{again: 2}", "2"), ("{size: 5, again: 7}", "7")]
)
def test_a_default_may_be_another_parameters_value(
    write_model: WriteModel, root: Path, parameters: str, value: str
) -> None:
    """`default: $size` is the size that the spec gives, or its default; the spec may give another value."""
    own_step(root, size="$again")
    step = resolved(write_model, parameters, "mine")
    assert step.parameters["again"] == value
    assert step.outputs == {"y": ("FP32", (int(value),))}


def test_a_spec_cannot_name_another_parameter(write_model: WriteModel, root: Path) -> None:
    """`$size` is a default of step.yaml alone."""
    own_step(root)
    with pytest.raises(SpecError, match=r"again: '.size'"):
        resolved(write_model, "{again: $size}", "mine")


@pytest.mark.parametrize(
    ("side", "name", "wanted"),
    [
        ("inputs", "pair", "more: true"),
        ("outputs", "z", "more: true and order: first or order: last and more: true"),
    ],
)
def test_a_tensor_that_the_parameters_leave_out_is_named(
    write_model: WriteModel, root: Path, side: str, name: str, wanted: str
) -> None:
    """A pipeline that joins it is told which parameters give it."""
    own_step(root)
    text = MODEL.replace("{{step: {step}", f"{{{{step: {{step}}, {side}: {{{{{name}: other}}}}")
    with pytest.raises(SpecError) as caught:
        write_model(text.format(step="mine", parameters="{}"), model__onnx=b"")
    assert (caught.value.wanted, caught.value.where.endswith("pipeline.mine.parameters")) == (wanted, True)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"dtype": "$missing"}, "y has the dtype $missing"),
        ({"dtype": "$size"}, "y has the dtype $size"),
        ({"dtype": "$name"}, "wanted: a str parameter whose choices are dtypes"),
        ({"size": "$missing"}, "y has the size $missing"),
        ({"size": "$kind"}, "y has the size $kind"),
        ({"size": "$maybe"}, "wanted: an int parameter"),
        ({"when": "missing: 3"}, "z has when missing: 3"),
        ({"when": "size: 3"}, "z has when size: 3"),
        ({"when": "order: middle"}, "one with choices and one of them"),
        ({"when": "order: true"}, "z has when order: true"),
        ({"again": "$missing"}, "again has the default $missing"),
        ({"again": "$name"}, "wanted: a parameter of its type"),
        ({"again": "$again"}, "again has the default $again"),
        ({"again": "$maybe"}, "again has the default $maybe, which has no value by default itself"),
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

    adapters = list((PROJECT / "python_backends" / "steps").glob("*/model.py"))
    assert len(adapters) >= 17
    for adapter in adapters:
        assert read_document(adapter.with_name("step.yaml"), StepContract).outputs


TABLE = "{{features: features.yaml, size: 2, columns: {columns}}}"


def table(write_model: WriteModel, columns: str) -> ResolvedStep:
    """A step of a table that takes columns."""
    spec = write_model(
        MODEL.format(step="assemble_features", parameters=TABLE.format(columns=columns)),
        model__onnx=b"",
        features__yaml=b"- {name: age}\n- {name: city size}\n",
    )
    step = spec.steps[0]
    assert step is not None
    return step


def test_columns_are_inputs(write_model: WriteModel) -> None:
    """Each has its type, in place of the record; a name may have a space."""
    step = table(write_model, "[age FP64 optional, city size INT32]")
    assert step.inputs == {"age": ("FP64", (1,)), "city size": ("INT32", (1,))}
    assert step.optional == {"age"}
    assert table(write_model, "[]").inputs == {"record": ("BYTES", (1,))}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("[age]", "'age'"),
        ("[age FP128]", "'age FP128'"),
        ("[age BF16]", "'age BF16'"),
        ("['a, b FP32']", "'a'"),
        ("[' FP32']", "' FP32'"),
        ("[age FP32, age FP64]", "age twice"),
        ("[age FP32 optional]", "all of them are optional"),
        ("[1]", "wanted: tensors"),
    ],
)
def test_columns_that_are_no_inputs_are_refused(write_model: WriteModel, columns: str, message: str) -> None:
    """The message says how one is written."""
    with pytest.raises(SpecError, match=message) as caught:
        table(write_model, columns)
    assert caught.value.where.endswith("pipeline.assemble_features.parameters.columns")
