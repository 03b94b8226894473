"""The openvino stand-in reads a configuration; the results are compared with networks that OpenVINO really opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from backend_config import ModelError, TensorSpec
from openvino import opset13 as op
from openvino_config import batch_sizes, check_device, model_file, pads_batches, properties
from openvino_network import input_specs, precision, read_network, sized


def parameters(**values: str) -> dict[str, Any]:
    """A configuration with these parameters, as Triton gives it."""
    return {"parameters": {key: {"string_value": text} for key, text in values.items()}}


def tensor(name: str, dtype: str, dims: list[int], **more: Any) -> dict[str, Any]:
    """An input or output as Triton's configuration has it."""
    return {"name": name, "data_type": f"TYPE_{dtype}", "dims": dims, **more}


def affine(folder: Path, shape: list[int], weights: tuple[int, int] = (4, 2)) -> Path:
    """y = x W, float; the file of a saved network."""
    x = op.parameter(shape, np.float32, "x")
    x.output(0).set_names({"x"})
    y = op.matmul(x, op.constant(np.ones(weights, np.float32)), False, False)
    y.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([y], [x]), folder / "model.xml", compress_to_fp16=False)
    return folder / "model.xml"


BATCHED = {"max_batch_size": 8, "input": [tensor("x", "FP32", [4])], "output": [tensor("y", "FP32", [2])]}


def test_threads_are_shared_among_the_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native backend's instances share one number of threads and streams; so do our processes."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    assert properties({}) == {
        "INFERENCE_NUM_THREADS": 6,
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    two = {"instance_group": [{"count": 2}, {"count": 5, "passive": True}]}
    assert properties(two)["INFERENCE_NUM_THREADS"] == 3
    configuration = parameters(INFERENCE_NUM_THREADS="4", NUM_STREAMS="4") | two
    options = properties(configuration)
    assert (options["INFERENCE_NUM_THREADS"], options["NUM_STREAMS"]) == (2, "2")
    one = parameters(INFERENCE_NUM_THREADS="1", NUM_STREAMS="AUTO") | two
    assert (properties(one)["INFERENCE_NUM_THREADS"], properties(one)["NUM_STREAMS"]) == (1, "1")


def test_a_stub_takes_twice_its_share_where_a_run_alone_may_have_all() -> None:
    """A stub does not see the runs of others."""
    threads = {"INFERENCE_NUM_THREADS": "8", "tritonkit.threads_alone": "8"}
    options = properties(parameters(**threads) | {"instance_group": [{"count": 4}]})
    assert options["INFERENCE_NUM_THREADS"] == 4


def test_parameters_reach_openvino(tmp_path: Path) -> None:
    """A network compiled with them reports them, in any case of letters, and unknown ones are nothing."""
    configuration = parameters(
        INFERENCE_NUM_THREADS="1",
        NUM_STREAMS="1",
        PERFORMANCE_HINT="throughput",
        HINT_BF16="yes",
        SKIP_OV_DYNAMIC_BATCHSIZE="YES",
        NEVER_HEARD_OF="7",
    )
    core = openvino.Core()
    compiled = core.compile_model(affine(tmp_path, [-1, 4]), "CPU", properties(configuration))
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert compiled.get_property("NUM_STREAMS") == 1
    assert compiled.get_property("PERFORMANCE_HINT") == "THROUGHPUT"
    assert compiled.get_property("ENABLE_CPU_PINNING") is False
    expected = "bf16" if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "f32"
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("INFERENCE_NUM_THREADS", "two", "a non-negative number"),
        ("COMPILATION_NUM_THREADS", "-1", "a non-negative number"),
        ("NUM_STREAMS", "MANY", "either AUTO/NUMA/<int_value>"),
        ("PERFORMANCE_HINT", "FAST", "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT"),
        ("HINT_BF16", "NO", "YES"),
        ("INFERENCE_PRECISION_HINT", "int8", "f32/bf16/f16"),
    ],
)
def test_unfit_parameter_is_refused(name: str, text: str, expected: str) -> None:
    """The message has the parameter, what was found, and what the native backend expects."""
    with pytest.raises(ModelError, match=f"parameter {name}: found '{text}', wanted {expected}"):
        properties(parameters(**{name: text}))


def test_only_the_cpu_is_here() -> None:
    """Another device would need an image with its drivers."""
    check_device({})
    check_device(parameters(TARGET_DEVICE="cpu"))
    with pytest.raises(ModelError, match="TARGET_DEVICE: found NPU, wanted CPU"):
        check_device(parameters(TARGET_DEVICE="npu"))


def test_extension_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The message has the parameter and the path."""
    config = BATCHED | parameters(CPU_EXTENSION_PATH="/none/lib.so")
    with pytest.raises(ModelError, match=r"CPU_EXTENSION_PATH: .*/none/lib\.so"):
        read_network(openvino.Core(), affine(tmp_path, [-1, 4]), config)


def test_padding_is_the_native_backends_switch() -> None:
    """YES in any case of letters; anything else is no, and a model without batches needs none."""
    assert pads_batches({"max_batch_size": 4} | parameters(ENABLE_BATCH_PADDING="yes"))
    assert not pads_batches({"max_batch_size": 4} | parameters(ENABLE_BATCH_PADDING="1"))
    assert not pads_batches({"max_batch_size": 4})
    assert pads_batches({})


def test_sizes_to_compile() -> None:
    """One, the preferred ones, the largest, each once."""
    preferred = {"dynamic_batching": {"preferred_batch_size": ["4", "8"]}}
    assert batch_sizes({"max_batch_size": 8} | preferred) == (1, 4, 8)
    assert batch_sizes({"max_batch_size": 16}) == (1, 16)
    assert batch_sizes({"max_batch_size": 0}) == ()


def test_model_file(tmp_path: Path) -> None:
    """default_model_filename, a folder too, else model.xml."""
    version = tmp_path / "3"
    (version / "model.saved_model").mkdir(parents=True)
    (version / "model.xml").touch()
    assert model_file(tmp_path, "3", {}) == version / "model.xml"
    named = {"default_model_filename": "model.saved_model"}
    assert model_file(tmp_path, "3", named) == version / "model.saved_model"
    with pytest.raises(ModelError, match=r"no file .*4/model\.xml; wanted the OpenVINO model"):
        model_file(tmp_path, "4", {})


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    """The message has the file and the parser's reason, not OpenVINO's source lines."""
    file = affine(tmp_path, [-1, 4])
    file.write_text(file.read_text()[:500])
    with pytest.raises(ModelError, match=r"OpenVINO cannot load .*model\.xml: \w[^\n]* at offset"):
        read_network(openvino.Core(), file, BATCHED)


def test_matching_network_is_read(tmp_path: Path) -> None:
    """Its batch axis is free, whatever the file says; its specs are the configuration's."""
    for shape in ([-1, 4], [1, 4]):
        model = read_network(openvino.Core(), affine(tmp_path, shape), BATCHED)
        assert input_specs(model, BATCHED) == {"x": TensorSpec("x", "FP32", (-1, 4))}
        assert model.output("y").get_partial_shape().to_string() == "[?,2]"


def test_other_datatypes_are_converted(tmp_path: Path) -> None:
    """Clients send and get the configuration's datatype, as in the native backend."""
    config = BATCHED | {"input": [tensor("x", "UINT8", [4])], "output": [tensor("y", "FP16", [2])]}
    model = read_network(openvino.Core(), affine(tmp_path, [-1, 4]), config)
    answer = openvino.compile_model(model, "CPU")(np.full((1, 4), 7, np.uint8))
    assert answer["y"].dtype == np.float16
    assert answer["y"].tolist() == [[28, 28]]


def test_io_layers_are_reshaped_on_request(tmp_path: Path) -> None:
    """RESHAPE_IO_LAYERS takes the sizes of the configuration; without it they must fit the file's."""
    file = affine(tmp_path, [1, 3, 4])
    wide = BATCHED | {"input": [tensor("x", "FP32", [9, 4])], "output": [tensor("y", "FP32", [9, 2])]}
    with pytest.raises(ModelError, match=r"input 'x': config.pbtxt says \[-1, 9, 4\]"):
        read_network(openvino.Core(), file, wide)
    wide |= parameters(RESHAPE_IO_LAYERS="yes")
    model = read_network(openvino.Core(), file, wide)
    assert model.input("x").get_partial_shape().to_string() == "[?,9,4]"
    narrow = wide | {"input": [tensor("x", "FP32", [9, 5])]}
    with pytest.raises(ModelError, match="the model cannot take inputs of"):
        read_network(openvino.Core(), file, narrow)


X, Y = BATCHED["input"][0], BATCHED["output"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": [tensor("q", "FP32", [4])]}, r"input 'q' .* which has \['x'\]"),
        ({"output": [tensor("q", "FP32", [2])]}, r"output 'q' .* which has \['y'\]"),
        ({"input": []}, "config.pbtxt has 0 inputs, the model has 1"),
        ({"input": [tensor("x", "FP64", [4])]}, "input 'x': unsupported datatype TYPE_FP64"),
        ({"output": [tensor("y", "STRING", [2])]}, "output 'y': unsupported datatype"),
        ({"input": [tensor("x", "FP32", [5])]}, r"'x': .* says \[-1, 5\].*\[-1, 4\]"),
        ({"output": [tensor("y", "FP32", [-1])]}, r"'y': .* says \[8, -1\].*\[8, 2\]"),
        ({"max_batch_size": 0}, r"'x': .* says \[4\] \(dims\)"),
    ],
)
def test_first_difference_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Names, then types, then shapes, with both sides in the message."""
    with pytest.raises(ModelError, match=message):
        read_network(openvino.Core(), affine(tmp_path, [-1, 4]), {**BATCHED, **change})


def test_network_that_cannot_take_a_batch_is_refused(tmp_path: Path) -> None:
    """One whose output keeps its size has nothing to split among requests."""
    x = op.parameter([-1, 4], np.float32, "x")
    x.output(0).set_names({"x"})
    y = op.reduce_sum(x, op.constant([0]), True)
    y.output(0).set_names({"y"})
    file = tmp_path / "model.xml"
    openvino.save_model(openvino.Model([y], [x]), file)
    config = BATCHED | {"output": [tensor("y", "FP32", [4])]}
    with pytest.raises(ModelError, match=r"output 'y': .* says \[8, 4\].*\[1, 4\]"):
        read_network(openvino.Core(), file, config)


def test_sizes_come_from_the_configuration(tmp_path: Path) -> None:
    """A fixed configured size narrows a free axis; a free one leaves nothing to fix."""
    file = affine(tmp_path, [-1, -1, 4])
    config = BATCHED | {"input": [tensor("x", "FP32", [3, 4])], "output": [tensor("y", "FP32", [-1, 2])]}
    model = read_network(openvino.Core(), file, config)
    fixed = sized(model, config, 5)
    assert fixed is not None
    assert fixed.input("x").get_partial_shape().to_string() == "[5,3,4]"
    assert model.input("x").get_partial_shape().to_string() == "[?,?,4]"
    free = config | {"input": [tensor("x", "FP32", [-1, 4])]}
    assert sized(read_network(openvino.Core(), file, free), free, 5) is None


def test_precision_travels_in_the_file(tmp_path: Path) -> None:
    """The device gets the precision a network was saved with, else FP32; the configuration's hint wins."""
    core = openvino.Core()
    model = core.read_model(affine(tmp_path, [-1, 4]))
    assert precision(model) == "f32"
    model.set_rt_info("bf16", ["runtime_options", "INFERENCE_PRECISION_HINT"])
    openvino.save_model(model, tmp_path / "half.xml")
    half = read_network(core, tmp_path / "half.xml", BATCHED)
    assert precision(half) == "bf16"
    for options, of_file, expected in (
        ({}, "f32", "f32"),
        ({}, "bf16", "bf16"),
        ({"HINT_BF16": "YES"}, "f32", "bf16"),
        ({"INFERENCE_PRECISION_HINT": "F32"}, "bf16", "f32"),
        ({"INFERENCE_PRECISION_HINT": "bf16", "HINT_BF16": "YES"}, "f32", "bf16"),
    ):
        chosen = properties(parameters(**options), of_file)
        assert chosen["INFERENCE_PRECISION_HINT"] == expected, (options, of_file)
