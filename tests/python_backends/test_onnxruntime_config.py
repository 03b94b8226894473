"""The stand-in reads a configuration; the results are compared with files that ONNX Runtime really opens."""

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
from backend_config import ModelError, check_served_here
from onnx import TensorProto, helper
from onnxruntime_config import (
    RUN_ENTRY,
    SESSION_ENTRY,
    check_accelerators,
    check_signature,
    idle_workers,
    model_file,
    run_options,
    session_options,
    tensor_specs,
)

from tritonkit.repository.optimize.runtimes import onnxruntime_cpu

Level = ort.GraphOptimizationLevel


def parameters(**values: str) -> dict[str, Any]:
    """A configuration with these parameters, as Triton gives it."""
    return {"parameters": {key: {"string_value": text} for key, text in values.items()}}


def test_defaults_are_those_of_the_native_backend() -> None:
    """Without parameters: ONNX Runtime's own thread counts, sequential, all optimizations."""
    options = session_options({})
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (0, 0)
    assert options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert options.graph_optimization_level == Level.ORT_ENABLE_ALL
    assert options.enable_cpu_mem_arena
    assert options.enable_mem_pattern
    assert run_options({}) is None


def test_a_quota_counts_where_the_configuration_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would take a thread for each core that it sees."""
    monkeypatch.setenv("TRITONKIT_CORES", "3")
    assert session_options({}).intra_op_num_threads == 3
    assert session_options(parameters(intra_op_thread_count="1")).intra_op_num_threads == 1


@pytest.mark.parametrize(
    ("version", "entries"),
    [
        ("1.20.1", {"session.intra_op.allow_spinning": "0"}),
        ("1.25.1", {"session.intra_op.allow_spinning": "0"}),
        ("1.26.0", {"session.intra_op.spin_duration_us": "50", "session.force_spinning_stop": "1"}),
        ("2.0.0.dev1", {"session.intra_op.spin_duration_us": "50", "session.force_spinning_stop": "1"}),
    ],
)
def test_worker_threads_spin_for_a_moment_or_not_at_all(version: str, entries: dict[str, str]) -> None:
    """Sessions that share cores with Triton yield them soon while they wait; variants are timed in the same way."""
    assert idle_workers(version) == entries
    assert onnxruntime_cpu.idle_workers(version) == entries


def test_idle_workers_are_those_of_this_version() -> None:
    """The session gets the entries that the installed version knows."""
    options = session_options({})
    for key, value in idle_workers(ort.__version__).items():
        assert options.get_session_config_entry(key) == value


def test_a_stub_takes_twice_its_share_where_a_run_alone_may_have_all() -> None:
    """A stub does not see the runs of others, so its workers yield their cores while they wait."""
    threads = {"intra_op_thread_count": "2", "tritonkit.threads_alone": "16"}
    options = session_options(parameters(**threads))
    assert options.intra_op_num_threads == 4
    for key, value in idle_workers("").items():
        assert options.get_session_config_entry(key) == value


def test_parameters_reach_the_session() -> None:
    """Threads, mode, arena, pattern and the two raw entries are honored."""
    config = parameters(
        intra_op_thread_count="3",
        inter_op_thread_count="2",
        execution_mode="1",
        enable_mem_arena="0",
        enable_mem_pattern="false",
    )
    config["parameters"][SESSION_ENTRY] = {"string_value": "1"}
    config["parameters"][RUN_ENTRY] = {"string_value": "cpu:0"}
    options = session_options(config)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry(SESSION_ENTRY) == "1"
    run = run_options(config)
    assert run is not None
    assert run.get_run_config_entry(RUN_ENTRY) == "cpu:0"


@pytest.mark.parametrize(
    ("level", "meaning"),
    [
        (-1, Level.ORT_ENABLE_BASIC),
        (0, Level.ORT_ENABLE_ALL),
        (1, Level.ORT_ENABLE_EXTENDED),
        (2, Level.ORT_DISABLE_ALL),
    ],
)
def test_graph_level_has_the_native_meaning(level: int, meaning: Any) -> None:
    """Triton's -1, 1 and 2 are basic, extended and off."""
    options = session_options({"optimization": {"graph": {"level": level}}})
    assert options.graph_optimization_level == meaning


@pytest.mark.parametrize(
    ("name", "text"), [("intra_op_thread_count", "two"), ("execution_mode", "2"), ("enable_mem_arena", "maybe")]
)
def test_unfit_parameter_is_refused(name: str, text: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ModelError, match=f"parameter {name}: found '?{text}'?, wanted"):
        session_options(parameters(**{name: text}))


def check_served(config: dict[str, Any], kind: str) -> None:
    """The check of a configuration before a file is opened."""
    check_served_here(config, kind, "onnxruntime")
    check_accelerators(config)


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({}, "GPU", "instance kind GPU"),
        ({"batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}]}, "CPU", "batch_input"),
        ({"batch_output": [{}]}, "CPU", "batch_output"),
        ({"sequence_batching": {"state": [{}]}}, "CPU", "sequence_batching.state"),
        ({"input": [{"name": "x", "allow_ragged_batch": True}]}, "CPU", "allow_ragged_batch"),
        *(
            ({"optimization": {"execution_accelerators": {f"{device}": [{"name": name}]}}}, "CPU", f"{device} '{name}'")
            for device, name in (("cpu_execution_accelerator", "openvino"), ("gpu_execution_accelerator", "tensorrt"))
        ),
    ],
)
def test_what_only_the_native_backend_can_is_refused(config: dict[str, Any], kind: str, message: str) -> None:
    """Nothing that the stand-in cannot do is silently left out."""
    with pytest.raises(ModelError, match=message):
        check_served(config, kind)


def test_plain_cpu_model_is_served() -> None:
    """The configuration that Triton writes for a plain model passes."""
    accelerators = {"gpu_execution_accelerator": [], "cpu_execution_accelerator": []}
    optimization = {"execution_accelerators": accelerators}
    check_served({"optimization": optimization, "batch_input": [], "input": []}, "CPU")


def test_model_file(tmp_path: Path) -> None:
    """default_model_filename, else model.onnx, else the file inside a folder of that name."""
    version = tmp_path / "3"
    (version / "model.onnx").mkdir(parents=True)
    (version / "model.onnx" / "model.onnx").touch()
    (version / "other.onnx").touch()
    assert model_file(tmp_path, "3", {}) == version / "model.onnx" / "model.onnx"
    named = {"default_model_filename": "other.onnx"}
    assert model_file(tmp_path, "3", named) == version / "other.onnx"
    with pytest.raises(ModelError, match=r"no file .*4/model\.onnx"):
        model_file(tmp_path, "4", {})


def session_of(
    inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, tuple[int, list[Any]]]
) -> ort.InferenceSession:
    """A session whose outputs are the inputs of the same place, passed through."""
    nodes = [helper.make_node("Identity", [x], [y]) for x, y in zip(inputs, outputs, strict=True)]
    graph = helper.make_graph(
        nodes,
        "pass",
        [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
        [helper.make_tensor_value_info(name, *info) for name, info in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def tensor(name: str, dtype: str, dims: list[int], **more: Any) -> dict[str, Any]:
    """An input or output as Triton's configuration has it."""
    return {"name": name, "data_type": f"TYPE_{dtype}", "dims": dims, **more}


SESSION = session_of(
    {"x": (TensorProto.FLOAT, ["n", 4, "t"]), "s": (TensorProto.STRING, ["n", 1])},
    {"y": (TensorProto.FLOAT, ["n", 4, "t"]), "z": (TensorProto.STRING, ["n", 1])},
)
GOOD = {
    "max_batch_size": 8,
    "input": [tensor("x", "FP32", [4, -1]), tensor("s", "STRING", [1])],
    "output": [tensor("y", "FP32", [4, -1]), tensor("z", "STRING", [1])],
}


def check(session: ort.InferenceSession, config: dict[str, Any]) -> None:
    """check_signature on a session."""
    check_signature(
        config,
        tensor_specs(session.get_inputs()),
        tensor_specs(session.get_outputs()),
        tensor_specs(session.get_overridable_initializers()),
    )


def test_matching_configuration_passes() -> None:
    """Equal names, types and dims; a fixed configured input axis fits a free one in the file."""
    check(SESSION, GOOD)
    check(SESSION, {**GOOD, "output": GOOD["output"][:1]})
    check(SESSION, {**GOOD, "input": [tensor("x", "FP32", [4, 16]), tensor("s", "STRING", [1])]})
    flat = tensor("x", "FP32", [16], reshape={"shape": [4, 4]})
    check(SESSION, {**GOOD, "input": [flat, tensor("s", "STRING", [1])]})
    control = {"control_input": [{"name": "s", "control": []}]}
    check(SESSION, {**GOOD, "input": GOOD["input"][:1], "sequence_batching": control})


X, S = GOOD["input"]
Y, Z = GOOD["output"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": [X]}, "input 's' is in the ONNX file and not in config.pbtxt"),
        ({"input": [X, S, tensor("q", "FP32", [1])]}, "input 'q' is in config.pbtxt and not in"),
        ({"output": [tensor("q", "FP32", [1])]}, r"output 'q' .* which has \['y', 'z'\]"),
        ({"input": [tensor("x", "FP16", [4, -1]), S]}, "input 'x': .* says FP16, .* has FP32"),
        ({"output": [Y, tensor("z", "INT64", [1])]}, "output 'z': .* says INT64, .* has BYTES"),
        ({"input": [tensor("x", "FP32", [5, -1]), S]}, r"'x': .* says \[-1, 5, -1\].*\[-1, 4, -1\]"),
        ({"input": [tensor("x", "FP32", [4]), S]}, r"'x': .* says \[-1, 4\].*\[-1, 4, -1\]"),
        ({"output": [tensor("y", "FP32", [4, 7]), Z]}, r"'y': .* says \[-1, 4, 7\]"),
        ({"input": [X, tensor("s", "STRING", [1], optional=True)]}, "'s': optional"),
        ({"max_batch_size": 0}, r"'x': .* says \[4, -1\] \(dims\)"),
    ],
)
def test_first_difference_is_named(change: dict[str, Any], message: str) -> None:
    """Names, then types, then shapes, with both sides in the message."""
    with pytest.raises(ModelError, match=message):
        check(SESSION, {**GOOD, **change})


def test_fixed_batch_cannot_be_batched() -> None:
    """A file with batch 1 is refused for max_batch_size above 0, with the way out."""
    fixed = session_of({"x": (TensorProto.FLOAT, [1, 4])}, {"y": (TensorProto.FLOAT, [1, 4])})
    config = {"input": [tensor("x", "FP32", [4])], "output": [tensor("y", "FP32", [4])]}
    with pytest.raises(ModelError, match="set max_batch_size to 0"):
        check(fixed, {**config, "max_batch_size": 4})
    whole = {"input": [tensor("x", "FP32", [1, 4])], "output": [tensor("y", "FP32", [1, 4])]}
    check(fixed, {**whole, "max_batch_size": 0})


def test_scalar_is_configured_as_one() -> None:
    """Rank 0 in the file is dims [1] in the configuration."""
    scalar = session_of({"x": (TensorProto.FLOAT, [])}, {"y": (TensorProto.FLOAT, [])})
    config = {"max_batch_size": 0, "output": [tensor("y", "FP32", [1])]}
    check(scalar, {**config, "input": [tensor("x", "FP32", [1])]})
    with pytest.raises(ModelError, match=r"says \[2\]"):
        check(scalar, {**config, "input": [tensor("x", "FP32", [2])]})


def test_type_that_triton_cannot_carry_is_refused() -> None:
    """bfloat16 has no numpy type in the Python backend."""
    odd = session_of({"x": (TensorProto.BFLOAT16, ["n"])}, {"y": (TensorProto.BFLOAT16, ["n"])})
    with pytest.raises(ModelError, match=r"'x' is a tensor\(bfloat16\)"):
        tensor_specs(odd.get_inputs())
