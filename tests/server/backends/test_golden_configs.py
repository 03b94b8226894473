"""Every golden configuration in front of a real Triton: it loads, or is refused for a known reason."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
import torch
from onnx import TensorProto, helper, save_model
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tests.conftest import PROJECT
from tests.parts import SERVER
from tests.ports import free_port
from tests.repository.render.cases import FEATURES, GOLDEN, HERE, Case, read_case
from tests.server.raw import library_path
from tests.waiting import PATIENCE_S, eventually
from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.render import ModelPlan

# What Triton says to the configurations that this machine cannot serve: no GPU, and in the embedded
# server ONNX Runtime without accelerators.
NO_GPU = "has kind KIND_GPU but no GPUs are available"
NO_SUCH_GPU = "unsupported gpu id 0"
NO_TENSORRT = "unable to find backend library for backend 'tensorrt'"
NO_VLLM = "unable to find backend library for backend 'vllm'"
NOT_READ = "failed to poll from model repository"
REFUSED = {
    "accelerator_openvino": "cpu_execution_accelerator 'openvino' found",
    "accelerator_tensorrt": NO_GPU,
    "cuda_graphs": NO_GPU,
    "ensemble_gpu": NO_SUCH_GPU,
    "instance_gpu": NO_SUCH_GPU,
    "model_operations": "model_operations: ONNX Runtime cannot load /opt/libs/libone.so",
    "instance_profile": NO_TENSORRT,
    "llm_vllm": NO_VLLM,
    "llm_vllm_parallel": NO_VLLM,
    "shape_tensor": NO_TENSORRT,
    "tensorrt_plan": NO_TENSORRT,
    "ensemble_fields": NOT_READ,
    "model_metrics": NOT_READ,
    "repository_agents": NOT_READ,
}
# Why a configuration could not be read stands in the log alone.
LOGGED = {
    "ensemble_fields": 'Message type "inference.ModelEnsembling" has no field named "max_inflight_requests"',
    "model_metrics": 'Message type "inference.ModelConfig" has no field named "model_metrics"',
    "repository_agents": "libtritonrepoagent_checksum.so",
}
if not any(SERVER.glob("lib/python3.*/site-packages/torch")):
    REFUSED["torchscript"] = "torch is not installed in the server's environment"
_DTYPES = {"FP32": TensorProto.FLOAT, "INT64": TensorProto.INT64, "INT32": TensorProto.INT32, "BOOL": TensorProto.BOOL}


@dataclass(frozen=True)
class Triton:
    """A running server in explicit model control mode, and its repository."""

    client: InferenceServerClient
    repository: Path
    log: Path


def write_network(signature: Signature, file: Path) -> None:
    """An ONNX file of a signature: every output is the first input, or its largest value."""
    lead: list[Any] = ["batch"] if signature.batched else [1] if signature.single else []

    def value(tensor: Any) -> Any:
        axes = tensor.axes or ("",) * len(tensor.shape)
        shape = [axis or size for size, axis in zip(tensor.shape, axes, strict=True)]
        return helper.make_tensor_value_info(tensor.name, _DTYPES[tensor.dtype], lead + shape)

    first = signature.inputs[0].name
    nodes = [
        helper.make_node("Identity", [first], [output.name])
        if output.shape
        else helper.make_node("ReduceMax", [first], [output.name], axes=[1], keepdims=0)
        for output in signature.outputs
    ]
    graph = helper.make_graph(nodes, "net", [value(t) for t in signature.inputs], [value(t) for t in signature.outputs])
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def write_torchscript(file: Path) -> None:
    """A TorchScript file of one input and one output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and what the pytorch backend loads
        torch.jit.trace(torch.nn.Identity(), torch.zeros(3, 4)).save(file)


def write_model(plan: ModelPlan, case: Case, repository: Path) -> None:
    """The model's folder with its golden text and something that runs behind it."""
    folder = repository / plan.name
    folder.mkdir()
    single = GOLDEN / f"{case.feature}.pbtxt"
    golden = single if single.is_file() else GOLDEN / f"{case.feature}.{plan.name}.pbtxt"
    shutil.copyfile(golden, folder / "config.pbtxt")
    for version in plan.version_policy.specific or (1, 2):
        (folder / str(version)).mkdir()
        for name in plan.version_files:
            file = folder / str(version) / name
            if name == "model.onnx":
                write_network(case.artifact.signature, file)
            elif name == "model.xml":
                write_network(case.artifact.signature, file.with_suffix(".onnx"))
                openvino.save_model(openvino.convert_model(file.with_suffix(".onnx")), file)
            elif name == "model.pt":
                write_torchscript(file)
            else:
                shutil.copyfile(HERE / "steps" / "zeros.py", file)
    contents = {name: source.read_bytes() for name, source in plan.model_files.items()}
    contents |= {f"warmup/{name}": content for name, content in plan.warmup_files.items()}
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Every golden case, laid out in a folder of its own."""
    return {name: read_case(name, tmp_path_factory.mktemp(name)) for name in FEATURES}


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory, cases: dict[str, Case]) -> Iterator[Triton]:
    """One tritonserver over all golden models, none loaded yet."""
    root = tmp_path_factory.mktemp("triton")
    (root / "repository").mkdir()
    for case in cases.values():
        for plan in case.plans():
            write_model(plan, case, root / "repository")
    prefix = f"tk_golden_{os.getpid()}_"
    port = free_port()
    with (root / "log").open("w") as log:
        process = _start(root, port, prefix, log)
    try:
        client = InferenceServerClient(f"127.0.0.1:{port}")
        _wait(client, process, root / "log")
        yield Triton(client, root / "repository", root / "log")
        client.close()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for region in Path("/dev/shm").glob(f"{prefix}*"):  # noqa: S108
            region.unlink()


def _start(root: Path, port: int, prefix: str, log: Any) -> subprocess.Popen[bytes]:
    packages = next(SERVER.glob("lib/python3.*/site-packages"))
    server = packages / "pytriton" / "tritonserver"
    backends = root / "backends"
    (backends / "python").mkdir(parents=True)
    stub = server / "python_backend_stubs" / packages.parent.name.removeprefix("python")
    for file in (*(server / "backends" / "python").iterdir(), stub / "triton_python_backend_stub"):
        if file.is_file():
            shutil.copy(file, backends / "python")
    ours = PROJECT / "python_backends" / "backends"
    for twin in ours.glob("*/model.py"):
        shutil.copytree(twin.parent, backends / twin.parent.name)
        for shared in ours.glob("*.py"):
            shutil.copy(shared, backends / twin.parent.name)
    return subprocess.Popen(
        [
            server / "bin" / "tritonserver",
            f"--model-repository={root / 'repository'}",
            f"--backend-directory={backends}",
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",
            "--rate-limit=execution_count",
            f"--cache-directory={server / 'caches'}",
            "--cache-config=local,size=1048576",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={port}",
            "--allow-http=false",
            "--allow-metrics=false",
            f"--backend-config=python,shm-region-prefix-name={prefix}",
        ],
        env={
            "PATH": f"{SERVER / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": library_path(packages),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _wait(client: InferenceServerClient, process: subprocess.Popen[bytes], log: Path) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()[-4000:]
        with suppress(InferenceServerException):
            return bool(client.is_server_ready())
        return False

    eventually(is_ready, f"Triton is ready: {log}")


def _load(triton: Triton, model: str) -> str | None:
    """Triton's message if it refuses the model."""
    try:
        triton.client.load_model(model)
    except InferenceServerException as error:
        return str(error.message())
    return None


@pytest.mark.parametrize("feature", FEATURES)
def test_loads_or_is_refused_for_the_documented_reason(feature: str, triton: Triton, cases: dict[str, Case]) -> None:
    """A golden configuration loads and is ready, or Triton gives the reason in the table."""
    name = cases[feature].spec.name
    message = _load(triton, name)
    if feature in REFUSED:
        assert message is not None
        assert REFUSED[feature] in message
        assert LOGGED.get(feature, "") in triton.log.read_text()
        return
    assert message is None
    assert triton.client.is_model_ready(name)
    triton.client.unload_model(name, unload_dependents=True)
    # Triton 2.51 with a rate limiter can crash where a model is loaded while another's instances still end.
    eventually(lambda: not _leaving(triton), "all models have left")


def _leaving(triton: Triton) -> list[str]:
    """The models on their way out."""
    return [row.name for row in triton.client.get_model_repository_index().models if row.state == "UNLOADING"]


def test_one_value_per_item_reaches_the_client_as_one_axis(triton: Triton, cases: dict[str, Case]) -> None:
    """The rendered reshape gives [batch, 1] where the network gives [batch]."""
    assert _load(triton, "scalar_output") is None
    x = InferInput("x", [2, 4], "FP32")
    x.set_data_from_numpy(np.arange(8, dtype=np.float32).reshape(2, 4))
    answer = triton.client.infer("scalar_output", [x])
    assert answer.as_numpy("peak").tolist() == [[3.0], [7.0]]


@pytest.mark.parametrize("feature", ["openvino_one_by_one", "one_by_one"])
def test_one_item_to_a_request_has_no_axis_of_its_own(triton: Triton, cases: dict[str, Case], feature: str) -> None:
    """The rendered reshape gives [4] where the network takes and gives [1, 4]; the same below a pipeline."""
    assert _load(triton, feature) is None
    network = f"{feature}_network" if cases[feature].spec.steps else feature
    x = InferInput("x", [4], "FP32")
    x.set_data_from_numpy(np.arange(4, dtype=np.float32))
    assert triton.client.infer(network, [x]).as_numpy("y").tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_optional_input_may_be_left_out_of_a_pipeline(triton: Triton, cases: dict[str, Case]) -> None:
    """A step's optional input is the ensemble's: with it or without, the request is answered."""
    assert _load(triton, "optional_step_input") is None
    x, by = InferInput("x", [1, 4], "FP32"), InferInput("by", [1, 4], "FP32")
    for tensor in (x, by):
        tensor.set_data_from_numpy(np.zeros((1, 4), np.float32))
    for inputs in ([x], [x, by]):
        answer = triton.client.infer("optional_step_input", inputs)
        assert answer.as_numpy("logits").tolist() == [[0.0] * 4]


def test_labels_are_those_of_the_model_s_file(triton: Triton, cases: dict[str, Case]) -> None:
    """Callers who want classes get value, index and label; the fields next to them are as the spec has them."""
    assert _load(triton, "tensor_fields") is None
    pixels = InferInput("pixels", [1, 1, 8, 8], "FP32")
    values = np.zeros((1, 1, 8, 8), np.float32)
    values[0, 0, 0, 2] = 7
    pixels.set_data_from_numpy(values)
    output = InferRequestedOutput("logits", class_count=1)
    answer = triton.client.infer("tensor_fields", [pixels], outputs=[output])
    assert answer.as_numpy("logits").reshape(-1).tolist() == [b"7.000000:2:two"]
    config = triton.client.get_model_config("tensor_fields").config
    assert config.input[0].format == config.input[0].FORMAT_NCHW


def test_response_cache_answers_for_the_whole_pipeline(triton: Triton, cases: dict[str, Case]) -> None:
    """The second equal request to an ensemble is a cache hit and runs no step."""
    assert _load(triton, "ensemble") is None
    image = InferInput("image", [1, 1], "BYTES")
    image.set_data_from_numpy(np.array([[b"same"]], dtype=np.object_))
    before = _executions(triton, "ensemble_decode")
    for _ in range(2):
        triton.client.infer("ensemble", [image])

    def hits() -> int:
        stats = triton.client.get_inference_statistics("ensemble").model_stats[0].inference_stats
        return int(stats.cache_hit.count)

    # Triton counts after it has answered.
    eventually(lambda: hits() == 1, "the hit counted")
    eventually(lambda: _executions(triton, "ensemble_decode") > before, "the run counted")
    assert _executions(triton, "ensemble_decode") == before + 1


def _executions(triton: Triton, model: str) -> int:
    count: int = triton.client.get_inference_statistics(model).model_stats[0].execution_count
    return count
