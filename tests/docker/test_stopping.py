"""The end of a container with callers on its connections, without Kubernetes' preStop."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from tests.docker.conftest import address_of, docker, health, run, serving
from tests.server.models import ModelText, ensemble, held, write_repository
from tests.server.own.test_stopping import PER_S, REFUSED, infer, outcome_of
from tests.server.steady import steady
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.timeout(600)
BEGUN, GATE = Path("/tmp/begun"), Path("/tmp/gate")  # noqa: S108 (in the container)
"""Files of the model: it has begun with a request that takes time, and it may go on."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A model, one of whose two instances may be held, and an ensemble that calls it twice."""
    models = {"one": held(BEGUN, GATE, 2), "both": ensemble("one", "one")}
    return write_repository(tmp_path / "models", models)


def test_docker_stop_tells_callers_to_go_elsewhere(server_image: None, repository: Path) -> None:
    """200 calls a second of an ensemble on one connection: answered or UNAVAILABLE until the container is gone; what
    was in flight is answered, and it ends with exit code 0."""
    with serving(repository) as name, grpc.insecure_channel(address_of(name)) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with steady(lambda: outcome_of(stub.ModelInfer, infer("both")), PER_S) as stream:
            eventually(lambda: stream.answers["OK"] > 0)
            slow = stub.ModelInfer.future(infer("both", 0.5))
            eventually(lambda: run("docker", "exec", name, "test", "-s", str(BEGUN)).returncode == 0, "it is begun")
            with ThreadPoolExecutor(1) as pool:
                stopped = pool.submit(docker, "stop", "--time", "70", name)
                try:
                    eventually(lambda: stream.answers[REFUSED] > 0, "calls that are refused")
                finally:
                    docker("exec", name, "touch", str(GATE))
                stopped.result(PATIENCE_S)
        assert struct.unpack("<4f", slow.result().raw_output_contents[0]) == (0.5, 1, 2, 3)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", name) == "0"
    assert {word.partition(":")[0] for word in stream.answers} == {"OK", "UNAVAILABLE"}


def test_where_connections_have_an_age_callers_may_go_first(server_image: None, repository: Path) -> None:
    """Not ready from the signal on, and calls are answered as ever until connections have had the time to end; a
    second signal does not wait for that."""
    age = ("--env", "TRITON_CONNECTION_AGE_S=10")
    with serving(repository, *age) as name, grpc.insecure_channel(address_of(name)) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        docker("kill", "--signal", "TERM", name)
        eventually(lambda: "about to end" in health(name))
        assert outcome_of(stub.ModelInfer, infer("both")) == "OK"
        docker("kill", "--signal", "TERM", name)
        with steady(lambda: outcome_of(stub.ModelInfer, infer("both")), PER_S) as stream:
            assert docker("wait", name) == "0"
    assert {word.partition(":")[0] for word in stream.answers} <= {"OK", "UNAVAILABLE"}


def test_a_model_that_did_not_load_does_not_hold_up_the_end(server_image: None, repository: Path) -> None:
    """Nothing of it is there to wait for: it ends by itself, in less than a drain that runs out."""
    write_repository(repository, {"bad": ModelText(code="import nothing_of_that_name\n")})
    with serving(repository, ready=False) as name:
        eventually(lambda: "not ready: model bad" in run("docker", "logs", name).stderr)
        docker("stop", "--time", "25", name)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", name) == "0"
