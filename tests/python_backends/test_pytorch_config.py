"""The pytorch stand-in reads a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from backend_config import ModelError
from pytorch_config import Options, model_file, positions, read_options, tensor_specs


def parameters(**values: str) -> dict[str, Any]:
    """A configuration with these parameters, as Triton gives it."""
    return {"parameters": {key: {"string_value": text} for key, text in values.items()}}


def test_defaults_are_those_of_the_native_backend() -> None:
    """Inference mode and optimized execution on, threads and the executor left to PyTorch."""
    assert read_options({}) == Options(0, 0, True, True, None, None, None)


def test_parameters_are_read() -> None:
    """Every parameter that means something on a CPU."""
    config = parameters(
        INTRA_OP_THREAD_COUNT="3",
        INTER_OP_THREAD_COUNT="2",
        INFERENCE_MODE="false",
        DISABLE_OPTIMIZED_EXECUTION="true",
        ENABLE_JIT_EXECUTOR="1",
        ENABLE_JIT_PROFILING="0",
        ENABLE_TENSOR_FUSER="off",
        ENABLE_WEIGHT_SHARING="true",
    )
    assert read_options(config) == Options(3, 2, False, False, True, False, False)


@pytest.mark.parametrize(("name", "text"), [("INTRA_OP_THREAD_COUNT", "two"), ("INFERENCE_MODE", "maybe")])
def test_unfit_parameter_is_refused(name: str, text: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ModelError, match=f"parameter {name}: found '{text}', wanted"):
        read_options(parameters(**{name: text}))


@pytest.mark.parametrize(
    ("names", "arguments", "places"),
    [
        (["b", "a"], ["a", "b"], {"b": 1, "a": 0}),
        (["INPUT__1", "INPUT__0"], ["a", "b"], {"INPUT__1": 1, "INPUT__0": 0}),
        (["x", "y"], ["a", "b"], {"x": 0, "y": 1}),
        (["x__0", "y"], ["a", "b"], {"x__0": 0, "y": 1}),
        (["x__one", "y__0"], ["a", "b"], {"x__one": 0, "y__0": 1}),
        (["OUTPUT__0"], [], {"OUTPUT__0": 0}),
        (["logits"], [], {"logits": 0}),
    ],
)
def test_naming_conventions(names: list[str], arguments: list[str], places: dict[str, int]) -> None:
    """Names count by name, by `__N`, or else in order, as in the native backend."""
    assert positions(names, arguments) == places


@pytest.mark.parametrize("names", [["a"], ["x__0", "x__2"], ["x__1", "y__1"]])
def test_inputs_that_do_not_fill_the_arguments_are_refused(names: list[str]) -> None:
    """Every argument of forward gets one input."""
    with pytest.raises(ModelError, match="the model takes 2"):
        positions(names, ["p", "q"])


def test_tensors_are_those_of_the_configuration() -> None:
    """Names in order, the batch axis in front; a datatype without a tensor is refused."""
    x = {"name": "x", "data_type": "TYPE_FP32", "dims": [3, -1]}
    one = {"name": "s", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}
    specs = tensor_specs({"input": [x, one]}, "input", batched=True)
    assert {name: spec.dims for name, spec in specs.items()} == {"x": (-1, 3, -1), "s": (-1,)}
    text = {"name": "t", "data_type": "TYPE_STRING", "dims": [1]}
    with pytest.raises(ModelError, match="input 't' is BYTES"):
        tensor_specs({"input": [text]}, "input", batched=True)


def test_model_file(tmp_path: Path) -> None:
    """default_model_filename, else the default; without a file, its path."""
    (tmp_path / "1").mkdir()
    for name in ("model.pt", "other.pt"):
        (tmp_path / "1" / name).touch()
    assert model_file(tmp_path, "1", {}, "model.pt").name == "model.pt"
    named = {"default_model_filename": "other.pt"}
    assert model_file(tmp_path, "1", named, "model.pt").name == "other.pt"
    with pytest.raises(ModelError, match=r"no file .*2/model\.pt"):
        model_file(tmp_path, "2", {}, "model.pt")
