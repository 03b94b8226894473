"""`network.fill`: inputs that a file makes itself, of one value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.conftest import WriteModel
from tests.repository.export.graphs import FLOAT, INT64, STRING, node, onnx_bytes
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.filled import fill_inputs
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.optimize import build, plan

LENGTH = ["batch", "length"]
ENCODER = onnx_bytes(
    [
        node("Gather", ["words", "input_ids"], ["a"]),
        node("Gather", ["kinds", "token_type_ids"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Mul", ["c", "scale"], ["y"]),
    ],
    [("token_type_ids", INT64, LENGTH), ("input_ids", INT64, LENGTH), ("scale", FLOAT, ["batch", 1, 2])],
    [("y", FLOAT, [*LENGTH, 2])],
    {"words": np.arange(20, dtype="f").reshape(10, 2), "kinds": np.float32([[100, 100], [200, 200]])},
)
SPEC = "name: net\nnetwork: {onnx: m.onnx, fill: {token_type_ids: 1, scale: 0.5}}\n"


@pytest.mark.parametrize("variant", ["onnx-fp32", "openvino-fp32"])
def test_a_filled_input_is_no_input_any_more(root: Path, write_model: WriteModel, variant: str) -> None:
    """The published file, and every variant of it, makes the input itself, as long as the others are."""
    spec, cache = write_model(SPEC, m__onnx=ENCODER), BuildCache(root / "cache")
    artifact = build(plan(spec, cache, variant=variant), cache)
    assert [(t.name, t.shape) for t in artifact.signature.inputs] == [("input_ids", (-1,))]
    assert artifact.quality is not None
    if variant != "onnx-fp32":
        return
    file = artifact.folder / "model.onnx"
    onnx.checker.check_model(onnx.load(file), full_check=True)
    outputs = run_session(open_session(file, "it"), {"input_ids": np.array([[1, 2, 3]] * 2)}, "it")
    np.testing.assert_array_equal(outputs["y"][1], [[101, 101.5], [102, 102.5], [103, 103.5]])


@pytest.mark.parametrize(
    ("shapes", "dtype", "sizes"),
    [
        ({"x": ["N", None], "f": [None, None]}, FLOAT, (3, 5)),
        ({"x": ["N", "L"], "f": ["L"]}, INT64, (5,)),
        ({"x": ["N", "L"], "f": []}, FLOAT, ()),
        ({"x": ["N", "L"], "f": [2, 3]}, onnx.TensorProto.BOOL, (2, 3)),
    ],
)
def test_sizes_come_from_the_other_inputs(
    shapes: dict[str, list[str | int | None]], dtype: int, sizes: tuple[int, ...]
) -> None:
    """Sizes follow from the names of axes, from their places, or from the file."""
    model = onnx.load_from_string(
        onnx_bytes(
            [node("Identity", ["f"], ["y"]), node("Identity", ["x"], ["z"])],
            [("x", FLOAT, shapes["x"]), ("f", dtype, shapes["f"])],
            [("y", dtype, None), ("z", FLOAT, shapes["x"])],
        )
    )
    fill_inputs(model, {"f": 1}, "spec")
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    output = session.run(["y"], {"x": np.zeros((3, 5), "f")})[0]
    assert output.shape == sizes
    assert (output == 1).all()


@pytest.mark.parametrize(
    ("fill", "kind", "message"),
    [
        ({"token_types": 0}, SpecError, "one of ['x', 'free', 'text']"),
        ({"text": 0}, SpecError, "an input of numbers"),
        ({"free": 0}, BuildError, "no other input has the size of its axis 0 (M)"),
    ],
)
def test_what_cannot_be_filled_is_told(fill: dict[str, int], kind: type[Exception], message: str) -> None:
    """A wrong name, a text, or a size that only the caller knows."""
    model = onnx.load_from_string(
        onnx_bytes(
            [node("Identity", [name], [f"{name}_y"]) for name in ("x", "free", "text")],
            [("x", FLOAT, ["N"]), ("free", FLOAT, ["M"]), ("text", STRING, ["N"])],
            [("x_y", FLOAT, ["N"]), ("free_y", FLOAT, ["M"]), ("text_y", STRING, ["N"])],
        )
    )
    with pytest.raises(kind) as caught:
        fill_inputs(model, fill, "spec")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("torch: n:build, inputs: {y: TENSOR}, outputs: {z: TENSOR}", "belongs to onnx"),
        ("onnx: m.onnx, inputs: {x: TENSOR}", "both have x"),
    ],
)
def test_fill_that_contradicts_is_refused(write_model: WriteModel, network: str, message: str) -> None:
    """The spec says it before anything is built."""
    text = network.replace("TENSOR", "{dtype: FP32, shape: [1]}")
    with pytest.raises(SpecError, match=message):
        write_model(f"name: net\nnetwork: {{fill: {{x: 0}}, {text}}}\n", m__onnx=b"", n__py="")
