"""Batching, sequences and signatures: the choices, and the refusals before a server starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2

from tests.repository.render.cases import Case, make_case
from tritonkit.client.wire.signature import signature_from
from tritonkit.errors import RenderError, SpecError
from tritonkit.repository.render import DEFAULT_MAX_BATCH_SIZE, render_config
from tritonkit.repository.render.batching import PADDED_MAX_BATCH_SIZE

VECTOR = {"inputs": {"x": ["FP32", [4]]}, "outputs": {"y": ["FP32", [4]]}}


def net(serving: dict[str, Any], root: Path, **more: Any) -> Case:
    """A network served as given, x FP32 [4] -> y FP32 [4] by default."""
    model = {"name": "net", "network": {"onnx": "model.onnx"}, "serving": serving}
    return make_case("net", {"model": model, "signature": VECTOR, **more}, root)


def refused(case: Case) -> RenderError:
    """The error that planning a case ends with."""
    with pytest.raises(RenderError) as error:
        case.plans()
    return error.value


@pytest.mark.parametrize(
    ("serving", "batched", "size"),
    [
        ({}, True, DEFAULT_MAX_BATCH_SIZE),
        ({}, False, 0),
        ({"max_batch_size": 5}, True, 5),
        ({"dynamic_batching": {"preferred_batch_size": [128]}}, True, 128),
        ({"sequence_batching": {"oldest": {"max_candidate_sequences": 2, "preferred_batch_size": [99]}}}, True, 99),
    ],
)
def test_largest_batch(serving: dict[str, Any], batched: bool, size: int, tmp_path: Path) -> None:
    """64 by default, more where a preferred size is larger, 0 without a batch axis."""
    (plan,) = net(serving, tmp_path, signature={**VECTOR, "batched": batched}).plans()
    assert plan.max_batch_size == size


def test_fewer_cores_are_planned_where_they_matter(tmp_path: Path) -> None:
    """Fewer cores are planned for some numbers below the machine's; the spec's values are the same everywhere."""
    (plan,) = net({}, tmp_path / "open", cores=4).plans()
    threads = {n: p.parameters["intra_op_thread_count"] for n, p in plan.fewer_cores.items()}
    assert threads == {1: "1", 2: "2", 3: "3"}
    (plan,) = net({"threads": 2}, tmp_path / "threads", cores=4).plans()
    counts = {n: [g.count for g in p.instances] for n, p in plan.fewer_cores.items()}
    assert counts == {1: [1], 2: [1], 3: [1]}
    both = {"threads": 1, "instance_group": [{"count": 4}]}
    (plan,) = net(both, tmp_path / "both", cores=4).plans()
    alone = {n: p.parameters.get("tritonkit.threads_alone") for n, p in plan.fewer_cores.items()}
    assert alone == {1: None, 2: "2", 3: "3"}
    assert {p.instances for p in plan.fewer_cores.values()} == {plan.instances}
    off = both | {"parameters": {"tritonkit.threads_alone": "0"}}
    (plan,) = net(off, tmp_path / "off", cores=4).plans()
    assert plan.fewer_cores == {}
    (plan,) = net({}, tmp_path / "many", cores=64).plans()
    assert list(plan.fewer_cores) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]


def test_largest_batch_for_openvino(tmp_path: Path) -> None:
    """NVIDIA's backend pads every batch to the largest, so a small one is chosen; it may pad."""
    openvino = {"file": "model.xml", "variant": "openvino-int8"}
    (plan,) = net({}, tmp_path, **openvino).plans()
    assert plan.max_batch_size == PADDED_MAX_BATCH_SIZE
    assert plan.parameters["ENABLE_BATCH_PADDING"] == "YES"
    (one,) = net({"max_batch_size": 1}, tmp_path / "one", **openvino).plans()
    assert "ENABLE_BATCH_PADDING" not in one.parameters
    own = {"parameters": {"ENABLE_BATCH_PADDING": "NO"}}
    (strict,) = net(own, tmp_path / "own", **openvino).plans()
    assert strict.parameters["ENABLE_BATCH_PADDING"] == "NO"


LENGTHS = {"inputs": {"x": ["FP32", ["length"]]}, "outputs": {"y": ["FP32", ["length"]]}}


def padded(pad: dict[str, float], root: Path, **more: Any) -> Case:
    """A network whose requests may differ in length."""
    network = {"onnx": "model.onnx", "free_axes": {"length": {"max": 9, "pad": pad}}}
    model = {"name": "net", "network": network, "serving": more.pop("serving", {})}
    return make_case("net", {"signature": LENGTHS, **more, "model": model}, root)


def test_lengths_are_padded_where_our_backends_serve(tmp_path: Path) -> None:
    """Lengths are not padded for the nvidia target, which has NVIDIA's backends, nor without batches."""
    (plan,) = padded({"x": 0}, tmp_path).plans()
    assert [tensor.ragged for tensor in (*plan.inputs, *plan.outputs)] == [True, False]
    assert json.loads(plan.parameters["tritonkit.pad"]) == {"x": {"axis": 0, "value": 0}, "y": {"axis": 0}}
    for name, more in (("nvidia", {"target": "nvidia"}), ("one", {"serving": {"max_batch_size": 1}})):
        (plan,) = padded({"x": 0}, tmp_path / name, **more).plans()
        assert not plan.inputs[0].ragged
        assert "tritonkit.pad" not in plan.parameters


def test_a_bound_of_positions_needs_padding(tmp_path: Path) -> None:
    """It is rendered next to the lengths, and refused where nothing is padded; NVIDIA's backends know neither."""
    bound = {"serving": {"max_batch_tokens": 4096}}
    (plan,) = padded({"x": 0}, tmp_path, **bound).plans()
    assert plan.parameters["tritonkit.max_batch_tokens"] == "4096"
    (plan,) = padded({"x": 0}, tmp_path / "nvidia", target="nvidia", **bound).plans()
    assert "tritonkit.max_batch_tokens" not in plan.parameters
    error = refused(net({"max_batch_tokens": 4096}, tmp_path / "plain"))
    assert "serving.max_batch_tokens" in str(error)
    assert "free_axes.AXIS.pad" in str(error)


def test_padding_of_what_is_no_input_is_refused(tmp_path: Path) -> None:
    """An ONNX file's inputs are known when it was read."""
    error = refused(padded({"z": 0}, tmp_path))
    assert "network.free_axes.length.pad" in str(error)
    assert "one for each input with that axis: x" in str(error)


@pytest.mark.parametrize(("dtype", "value"), [("INT64", 0.5), ("BYTES", 0), ("FP16", 0)])
def test_padding_must_fit_the_type(dtype: str, value: float, tmp_path: Path) -> None:
    """A value is not rounded, and there is no text to fill up with."""
    signature = {**LENGTHS, "inputs": {"x": [dtype, ["length"]]}}
    error = refused(padded({"x": value}, tmp_path, signature=signature))
    assert f"{value} for x, which is {dtype}" in str(error)


def test_what_nvidias_openvino_backend_cannot_pad_is_said(tmp_path: Path) -> None:
    """A note for the nvidia target, whose server has the native backend, about inputs with a free axis."""
    free = {"inputs": {"x": ["FP32", ["length"]]}, "outputs": {"y": ["FP32", [4]]}}
    facts = {"file": "model.xml", "variant": "openvino-fp32"}
    for target, signature, count in (("nvidia", free, 1), ("cpu", free, 0), ("gpu", free, 0), ("nvidia", VECTOR, 0)):
        case = net({"model_warmup": "off"}, tmp_path / f"{target}{count}", target=target, signature=signature, **facts)
        assert sum("does not pad inputs" in note for note in case.plans()[0].notes) == count


def test_a_tensorrt_plan_is_refused_for_tritonkits_server(tmp_path: Path) -> None:
    """The message names the other target and another variant."""
    facts = {"file": "model.plan", "variant": "tensorrt-fp16"}
    error = refused(net({}, tmp_path, target="gpu", **facts))
    assert "a TensorRT plan, with target gpu" in str(error)
    assert "--target nvidia" in str(error)


@pytest.mark.parametrize(("size", "batched"), [(8, False), (0, True)])
def test_batch_size_against_the_network_is_refused(size: int, batched: bool, tmp_path: Path) -> None:
    """The size must fit the axes the artifact has."""
    error = refused(net({"max_batch_size": size}, tmp_path, signature={**VECTOR, "batched": batched}))
    assert error.where.endswith("models/net/model.yaml serving.max_batch_size")


@pytest.mark.parametrize(
    ("serving", "on"),
    [
        ({}, True),
        ({"dynamic_batching": False}, False),
        ({"dynamic_batching": {"max_queue_delay": "1ms"}}, True),
        ({"sequence_batching": {}}, False),
        ({"decoupled": True}, False),
        ({"decoupled": True, "dynamic_batching": {}}, True),
    ],
)
def test_dynamic_batching_is_on_unless_something_speaks_against_it(
    serving: dict[str, Any], on: bool, tmp_path: Path
) -> None:
    """On by default; off for sequences, decoupled models, and where the spec says so."""
    (plan,) = net(serving, tmp_path).plans()
    assert (plan.dynamic_batching is not None) == on


@pytest.mark.parametrize("declared", [True, False])
def test_idempotent_is_what_the_client_reads(declared: bool, tmp_path: Path) -> None:
    """The spec's declaration is in the configuration, where the client reads it."""
    (plan,) = net({"idempotent": declared}, tmp_path).plans()
    text = render_config(plan, source="m", target="cpu", cores=2)
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    metadata = service_pb2.ModelMetadataResponse(name="net")
    assert signature_from(metadata, config).idempotent is declared


def test_dynamic_batching_is_off_without_a_batch_axis(tmp_path: Path) -> None:
    """Without a batch axis nothing can be joined, and requesting it is refused."""
    unbatched = {**VECTOR, "batched": False}
    (plan,) = net({}, tmp_path, signature=unbatched).plans()
    assert plan.dynamic_batching is None
    error = refused(net({"dynamic_batching": {}}, tmp_path, signature=unbatched))
    assert error.where.endswith("serving.dynamic_batching")


def test_default_batching_prefers_no_size(tmp_path: Path) -> None:
    """Preferred sizes come from measurements, never from a guess."""
    (plan,) = net({}, tmp_path).plans()
    assert plan.dynamic_batching is not None
    assert plan.dynamic_batching.preferred_batch_size == ()


def test_inputs_and_outputs_come_from_the_artifact(tmp_path: Path) -> None:
    """Names, dtypes and dims are those of the file, free sizes as -1."""
    signature = {"inputs": {"ids": ["INT64", ["n"]]}, "outputs": {"h": ["FP16", ["n", 8]]}}
    (plan,) = net({"model_warmup": "off"}, tmp_path, signature=signature).plans()
    assert [str(t) for t in (*plan.inputs, *plan.outputs)] == ["ids INT64 [-1]", "h FP16 [-1,8]"]


def test_a_scalar_is_served_as_one(tmp_path: Path) -> None:
    """Triton has no rank 0, and no reshape to it without batches: [1] stands in the configuration."""
    signature = {"batched": False, "inputs": {"x": ["FP32", []]}, "outputs": {"y": ["FP32", []]}}
    (plan,) = net({}, tmp_path, signature=signature).plans()
    assert [tensor.dims for tensor in (*plan.inputs, *plan.outputs)] == [(1,), (1,)]


def test_an_artifact_without_a_backend_is_refused(tmp_path: Path) -> None:
    """The error names the file that was found and those that Triton's backends read."""
    error = refused(net({}, tmp_path, file="model.bin"))
    assert "model.bin" in error.found
    assert "model.onnx" in error.wanted


CONTROLS = {
    "inputs": {"x": ["FP32", [4]], "START": ["INT32", [1]], "h": ["FP32", [2]]},
    "outputs": {"y": ["FP32", [4]], "h_next": ["FP32", [2]]},
}


def sequence(start: str = "INT32", state: str = "FP32", name: str = "START") -> dict[str, Any]:
    """Sequence batching with a start flag and a state."""
    return {
        "sequence_batching": {
            "control_input": {name: {"kind": "start", "dtype": start}},
            "state": [{"input": "h", "output": "h_next", "dtype": state, "shape": [2]}],
        }
    }


def test_tensors_of_the_sequence_batcher_are_no_inputs_of_a_request(tmp_path: Path) -> None:
    """Control inputs and states, which Triton adds itself, are left out of inputs and outputs."""
    (plan,) = net(sequence(), tmp_path, signature=CONTROLS).plans()
    assert [t.name for t in (*plan.inputs, *plan.outputs)] == ["x", "y"]
    assert plan.warmup == ()
    assert "without the states" in plan.notes[0]


@pytest.mark.parametrize(
    ("serving", "found"),
    [
        (sequence(start="BOOL"), "START is BOOL"),
        (sequence(state="FP16"), "h is FP16"),
        (sequence(name="BEGIN"), "BEGIN is INT32"),
    ],
)
def test_control_inputs_and_states_must_be_the_networks(serving: dict[str, Any], found: str, tmp_path: Path) -> None:
    """A tensor of another dtype, or that the network lacks, is refused."""
    assert refused(net(serving, tmp_path, signature=CONTROLS)).found == found


def test_first_values_of_states_are_published(tmp_path: Path) -> None:
    """A file goes to initial_state/ next to config.pbtxt, where Triton reads it."""
    serving = sequence()
    serving["sequence_batching"]["state"][0]["initial"] = "states/h0.bin"
    case = net(serving, tmp_path, signature=CONTROLS, files={"states/h0.bin": "01234567"})
    (plan,) = case.plans()
    assert plan.model_files == {"initial_state/h0.bin": case.spec.folder / "states" / "h0.bin"}


@pytest.mark.parametrize(
    ("serving", "words"),
    [
        ("{response_cache: true, decoupled: true}", "which Triton refuses"),
        ("{response_cache: true, sequence_batching: {}}", "which Triton refuses"),
        ("{idempotent: true, sequence_batching: {}}", "cannot run a request twice"),
        (
            "dynamic_batching: {preserve_ordering: true, priority_levels: 2, default_priority_level: 1}",
            "2 priority_levels",
        ),
        (
            "dynamic_batching: {preserve_ordering: true,"
            " default_queue_policy: {timeout_action: delay, default_timeout: 1s}}",
            "delays requests",
        ),
        (
            "{max_batch_size: 4, sequence_batching: {oldest: {max_candidate_sequences: 2, preferred_batch_size: [8]}}}",
            "preferred_batch_size has 8",
        ),
        ("sequence_batching: {control_input: {C: {kind: corrid}}}", "corrid is FP32"),
        ("sequence_batching: {control_input: {S: {kind: start, dtype: INT64}}}", "start is INT64"),
        ("sequence_batching: {control_input: {S: {kind: start, dtype: INT32, false_true: [0, 0.5]}}}", "for INT32"),
        ("sequence_batching: {control_input: {S: {kind: end, dtype: BOOL, false_true: [0, 2]}}}", "for BOOL"),
        (
            "sequence_batching: {state: [{input: h, output: g, dtype: FP32, shape: [-1], initial: zero}]}",
            "initial is given",
        ),
        ("instance_group: [{kind: cpu, gpus: [0]}]", "gpus are given for kind cpu"),
    ],
)
def test_what_triton_would_refuse_is_refused_in_the_spec(serving: str, words: str, tmp_path: Path) -> None:
    """Combinations that Triton's own validation rejects end before anything is built."""
    with pytest.raises(SpecError) as error:
        net(yaml.safe_load(serving), tmp_path)
    assert words in error.value.found
