"""When a container of the server's image counts as ready, and becomes so again, with a real Triton in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docker.conftest import address_of, docker, health, run, serving
from tests.fakedriver import WriteTensorRT
from tests.server.models import VECTOR, ModelText, write_repository
from tests.server.openai_models import PARROT
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import ServerUnavailable

pytestmark = pytest.mark.timeout(600)
HEALTH = ("/opt/tritonkit/venv/bin/python3", "-IS", "/opt/tritonkit/health.py")
KILL = """for each in /proc/[0-9]*; do
  [ $each != /proc/$$ ] && grep -aq backend_stub $each/cmdline \\
    && grep -aq /parrot/ $each/cmdline && kill -KILL ${each#/proc/}
done; true"""
"""The shell's own command line has the words too."""
CALLER = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # What another model says of x.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            asked = pb_utils.InferenceRequest(model_name="%s", requested_output_names=["y"], inputs=[x]).exec()
            if asked.has_error():
                answers.append(pb_utils.InferenceResponse([], asked.error()))
                continue
            y = pb_utils.get_output_tensor_by_name(asked, "y").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]))
        return answers
"""
WARM_UP = """model_warmup {
  name: "zeros" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [4] zero_data: true } }
}
"""
ENSEMBLE_OF_PLAN = """ensemble_scheduling { step {
  model_name: "plan" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }
} }
"""
CALLS_PLAN = 'parameters { key: "tritonkit.calls" value { string_value: "plan" } }\n'
BROKEN = "import nothing_of_that_name\n"


@pytest.fixture
def server(server_image: None, tmp_path: Path) -> Iterator[str]:
    """A container as a pod has it, with a model that loads and one that does not."""
    models = {"good": ModelText(), "bad": ModelText(code=BROKEN)}
    repository = write_repository(tmp_path / "models", models)
    with serving(repository, ready=False) as name:
        yield name


def health_check(container: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Output of health.py inside."""
    return run("docker", "exec", container, *HEALTH, *arguments)


def test_a_model_that_does_not_load_keeps_it_from_traffic(server: str) -> None:
    """Triton itself calls the server ready. It is alive, so that nobody restarts it without need, and it says why."""
    eventually(lambda: "not ready: model bad" in run("docker", "logs", server).stderr)
    assert "nothing_of_that_name" in run("docker", "logs", server).stderr
    code = "import health; print(health.ready())"
    python = ("docker", "exec", "--workdir", "/opt/tritonkit", server, HEALTH[0])
    assert run(*python, "-c", code).stdout == "True\n"
    done = health_check(server)
    assert (done.returncode, "a model loads or did not" in done.stdout) == (1, True)
    assert health_check(server, "--alive").returncode == 0


def test_models_that_call_others_are_loaded_after_the_start(server_image: None, tmp_path: Path) -> None:
    """Triton refuses every call while it starts, also those of a warm-up; one such model says whom it calls, the other
    does not."""
    config = 'backend: "python"\n' + VECTOR + WARM_UP
    named = config + 'parameters { key: "tritonkit.calls" value { string_value: "echo" } }\n'
    models = {
        "asks": ModelText(named, CALLER % "echo"),
        "asks_on": ModelText(config, CALLER % "asks"),
        "echo": ModelText(),
    }
    with serving(write_repository(tmp_path / "models", models)) as name, Client(address_of(name)) as client:
        assert client.model("asks_on").predict(x=[[0, 1, 2, 3]])["y"].tolist() == [[0, 1, 2, 3]]


def test_a_dead_stub_ends_the_streams_of_its_model(server_image: None, tmp_path: Path) -> None:
    """Killed while eight streams of a model that never ends are read: each gets an error immediately, the server is
    started again in the same container, and the model answers."""
    repository = write_repository(tmp_path / "models", {"parrot": PARROT, "echo": ModelText()})
    with serving(repository) as name, Client(address_of(name)) as client, ExitStack() as stack:
        endless = client.model("parrot")
        streams = [stack.enter_context(endless.stream(text="SAY ENDLESS /tmp/never", timeout_s=3600)) for _ in range(8)]
        for stream in streams:
            next(stream)
        assert run("docker", "exec", name, "sh", "-c", KILL).returncode == 0
        with ThreadPoolExecutor(8) as pool:
            ends = [pool.submit(list, stream) for stream in streams]
            assert {type(one.exception(PATIENCE_S)) for one in ends} == {ServerUnavailable}
        eventually(lambda: not health(name), "it is ready again")
        text = b"".join(reply["text"].item() for reply in endless.stream(text="SAY a b"))
        assert text == b" a b"
        assert "its streams would never end" in run("docker", "logs", name).stderr
        assert docker("inspect", "-f", "{{.RestartCount}}", name) == "0"


@pytest.fixture
def tensorrt(write_tensorrt: WriteTensorRT, tmp_path: Path) -> list[str]:
    """Options of `docker run` by which a container has a TensorRT 10.5.0; its version is all that it has."""
    folder = tmp_path / "tensorrt"
    folder.mkdir()
    write_tensorrt(folder, 100500)
    return ["--volume", f"{folder}:/tensorrt:ro", "--env", "LD_LIBRARY_PATH=/tensorrt:/opt/tritonserver/lib"]


def write_plans(folder: Path, **models: ModelText) -> Path:
    """A repository with a plan of TensorRT 10.3.0, and these models."""
    write_repository(folder, {"plan": ModelText('backend: "tensorrt"\n' + VECTOR), **models})
    facts = {"tensorrt_version": "10.3.0", "compute_capability": "9.0", "gpu": "NVIDIA H100 80GB HBM3"}
    (folder / "plan" / "1" / "model.plan").write_bytes(b"plan")
    (folder / "plan" / "1" / "plan.json").write_text(json.dumps(facts))
    return folder


def test_a_plan_for_another_tensorrt_is_left_out(server_image: str, tensorrt: list[str], tmp_path: Path) -> None:
    """The models that need it go, too, also one that is loaded late; the container is ready with the others."""
    early = ModelText(f'platform: "ensemble"\n{VECTOR}{ENSEMBLE_OF_PLAN}')
    late = ModelText(f'backend: "python"\n{VECTOR}{CALLS_PLAN}', code=CALLER % "plan")
    repository = write_plans(tmp_path / "models", good=ModelText(), early=early, late=late)
    with serving(repository, *tensorrt) as name:
        lines = run("docker", "logs", name).stderr
        assert "error: model plan: not served: its plan was built by TensorRT 10.3.0, and here is 10.5.0; do: " in lines
        for model in ("early", "late"):
            assert f"error: model {model}: not served: it calls plan, which cannot be served" in lines
        with Client(address_of(name)) as client:
            assert client.model("good").predict(x=[[0, 1, 2, 3]])["y"].tolist() == [[0, 1, 2, 3]]


def test_nothing_but_plans_for_another_tensorrt_is_refused(
    server_image: str, tensorrt: list[str], tmp_path: Path
) -> None:
    """The container ends with the reason."""
    with serving(write_plans(tmp_path / "models"), *tensorrt, ready=False) as name:
        assert docker("wait", name) == "4"
        assert "its plan was built by TensorRT 10.3.0, and here is 10.5.0" in run("docker", "logs", name).stderr
