"""Publishing while a server runs, and making it take what was published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.cli.running import failed, tritonkit
from tests.server.steady import Stream, steady
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.client.reload import reload_models
from tritonkit.errors import InferenceError, ModelNotFound
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import Endpoint, serve
from tritonkit.testing import FakeModel, MemoryTransport

PER_S = 200

MODEL = """
name: constant
network:
  onnx: net.onnx
  inputs: {pixels: {dtype: FP32, shape: [1, 8, 8]}}
  outputs: {logits: {dtype: FP32, shape: [10]}}
serving: {max_batch_size: 8}
pipeline:
  - step: decode_image
    parameters: {height: 8, width: 8, channels: 1}
  - network
  - step: top_k
    parameters: {k: 1, labels: labels.txt}
example: {image: {file: seven.png}}
"""


def always(digit: int) -> bytes:
    """An ONNX file that takes every image for the same digit."""
    favor = [float(number == digit) for number in range(10)]
    nodes = [
        helper.make_node("Constant", [], ["favor"], value_floats=favor),
        helper.make_node("Constant", [], ["all"], value_ints=[1, 2, 3]),
        helper.make_node("Constant", [], ["flat"], value_ints=[-1, 1]),
        helper.make_node("ReduceMin", ["pixels", "all"], ["low"], keepdims=0),
        helper.make_node("Reshape", ["low", "flat"], ["column"]),
        helper.make_node("Add", ["column", "favor"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


class Project:
    """A project whose one model, an ensemble, says which version of its network answered."""

    def __init__(self, root: Path, shipped: Path) -> None:
        self.root = root
        self.folder = root / "models" / "constant"
        self.folder.mkdir(exist_ok=True)
        (self.folder / "model.yaml").write_text(MODEL)
        for file in ("labels.txt", "examples/seven.png"):
            source = shipped / "models" / "digits" / file
            (self.folder / source.name).write_bytes(source.read_bytes())
        self.image = (self.folder / "seven.png").read_bytes()
        self.publish(0)

    def publish(self, digit: int) -> None:
        """Build and publish a version that answers with this digit."""
        (self.folder / "net.onnx").write_bytes(always(digit))
        build_repository(self.root, ("constant",))


@pytest.fixture
def published(root: Path, project: Path) -> Project:
    """The project with its first version published."""
    (root / ".venv-server").symlink_to(project / ".venv-server")
    return Project(root, project)


@pytest.fixture
def endpoint(published: Project) -> Iterator[Endpoint]:
    """A server of that project."""
    ports = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
    repository = published.root / "model_repository"
    with serve(repository, **ports, root=published.root, finalize_timeout_s=0) as endpoint:
        yield endpoint


def await_answers(stream: Stream, answer: str) -> None:
    """Wait until a stream has had many of one kind."""
    eventually(lambda: stream.answers[answer] > PER_S, f"many answers {answer}")


def test_no_request_fails_while_versions_change(published: Project, endpoint: Endpoint) -> None:
    """200 requests a second over two new versions: none fails, and every version
    was seen: the ensemble's answer tells which network gave it."""
    with Client(endpoint.grpc, timeout_s=PATIENCE_S) as client:
        model = client.model("constant")

        def call() -> str:
            return str(model.predict(image=published.image)["label"][0, 0].decode())

        with steady(call, PER_S) as stream:
            for digit in (1, 2):
                await_answers(stream, str(digit - 1))
                published.publish(digit)
                done = tritonkit("reload", "constant", "--address", endpoint.grpc, "--json", cwd=published.root)
                assert done.returncode == 0, done.stderr
                # The command has returned: from now on the new version answers.
                assert call() == str(digit)
            await_answers(stream, "2")
    assert stream.failures == []
    assert set(stream.answers) == {"0", "1", "2"}


def test_an_ensemble_brings_its_parts(published: Project, endpoint: Endpoint) -> None:
    """Reloading the ensemble says what became of the network below it; without a change nothing is
    loaded; unknown names are refused."""
    published.publish(1)
    with Client(endpoint.grpc, admin_key=endpoint.admin_key) as client:
        done = {model.model: model for model in reload_models(client, ["constant"])}
        assert done["constant_network"].before == ("1",)
        assert done["constant_network"].now == ("2",)
        assert not done["constant"].changed
        again = reload_models(client)
        assert {model.changed for model in again} == {False}
        assert len(again) == 4
        (published.folder / "model.yaml").write_text(MODEL.replace("{max_batch_size: 8}", "{max_batch_size: 4}"))
        build_repository(published.root, ("constant",))
        done = {model.model: model for model in reload_models(client, ["constant"])}
        assert (done["constant_network"].before, done["constant_network"].now) == (("2",), ("2",))
        assert done["constant_network"].outcome == "new configuration"
        with pytest.raises(ModelNotFound, match="no such model") as caught:
            reload_models(client, ["constnat"])
        assert "constant_network" in caught.value.wanted


def test_a_version_that_does_not_load_leaves_the_old_one(published: Project, endpoint: Endpoint) -> None:
    """The command ends with Triton's reason and exit code 5, and the former version answers on."""
    repository = published.root / "model_repository"
    (repository / "constant_network" / "2").mkdir()
    (repository / "constant_network" / "2" / "model.onnx").write_bytes(b"not a model")
    stderr = failed(tritonkit("reload", "--address", endpoint.grpc, cwd=published.root), 5)
    assert "constant" in stderr
    with Client(endpoint.grpc, admin_key=endpoint.admin_key) as client:
        answer = client.model("constant").predict(image=published.image)["label"][0, 0]
        assert answer == b"0"
        with pytest.raises(InferenceError):
            client.load("constant_network")


def test_json_names_versions_and_seconds(published: Project, endpoint: Endpoint) -> None:
    """`tritonkit reload --json` gives one entry per model."""
    done = tritonkit("reload", "--address", endpoint.grpc, "--json", cwd=published.root)
    facts = json.loads(done.stdout)
    assert facts["address"] == endpoint.grpc
    assert {entry["model"] for entry in facts["models"]} == {
        "constant",
        "constant_decode_image",
        "constant_network",
        "constant_top_k",
    }
    assert all(entry["before"] == entry["now"] == ["1"] for entry in facts["models"])


def test_several_servers_are_reloaded(published: Project, endpoint: Endpoint) -> None:
    """Each address of a list, and of a name; a name that has none is an error."""
    port = endpoint.grpc.rpartition(":")[2]
    both = f"{endpoint.grpc},dns:127.0.0.1:{port}"
    done = tritonkit("reload", "constant", "--address", both, "--json", cwd=published.root)
    assert done.returncode == 0, done.stderr
    servers = json.loads(done.stdout)["servers"]
    assert [one["address"] for one in servers] == [endpoint.grpc, f"127.0.0.1:{port}"]
    nobody = tritonkit("reload", "--address", "dns:nobody.invalid:8001", cwd=published.root)
    assert "no address" in failed(nobody, 5)


def test_a_server_in_memory_loads_what_it_has() -> None:
    """Programs that reload can be tested without Triton: a known model loads, another is not found."""
    double = FakeModel({"x": ("FP32", [1])}, {"y": ("FP32", [1])}, lambda inputs: {"y": inputs["x"] * 2})
    with Client(transport=MemoryTransport({"double": double})) as client:
        client.load("double", timeout_s=1)
        with pytest.raises(ModelNotFound):
            client.load("triple")


def test_a_version_that_fails_its_gate_leaves_the_old_one_answering(published: Project, endpoint: Endpoint) -> None:
    """The build ends with exit code 3 and the figures; a reload finds nothing new, and the old version
    answers on."""
    spec = published.folder / "model.yaml"
    spec.write_text(f"{MODEL}quality: {{metric: data:score, at_least: 0.9}}\n")
    (published.folder / "data.py").write_text(
        "def score(outputs, reference):\n"
        "    return float(all((b['logits'].argmax(axis=1) == 0).all() for b in outputs))\n"
    )
    (published.folder / "net.onnx").write_bytes(always(1))
    done = tritonkit("build", "constant", "--root", str(published.root))
    assert done.returncode == 3
    assert "score is 0.0000" in done.stderr
    assert "at least 0.9" in done.stderr
    with Client(endpoint.grpc, admin_key=endpoint.admin_key) as client:
        assert not any(reloaded.changed for reloaded in reload_models(client))
        answer = client.model("constant").predict(image=published.image)
    assert answer["label"][0, 0] == b"0"
