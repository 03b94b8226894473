"""`docker compose up`: built, served, watched, drained, revived, and closed to whom it should be."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit
from tests.deploy.conftest import OWNER, SERVER_IMAGE, SERVER_USER, Stack, docker, give
from tests.server.steady import steady
from tests.server.test_reload import PER_S, Project
from tritonkit.client import Client
from tritonkit.errors import InferenceError

pytestmark = pytest.mark.timeout(900)

SHARED_MEMORY = "/dev/shm"  # noqa: S108 (where POSIX shared memory is on Linux)


def digit(stack: Stack) -> bytes:
    """What the shipped model says about the picture of a seven."""
    image = (stack.checkout / "models/digits/examples/seven.png").read_bytes()
    with Client(stack.grpc) as client:
        label: bytes = client.model("digits").predict(image=image)["label"][0, 0]
        return label


def test_a_fresh_checkout_comes_up_and_answers(stack: Stack) -> None:
    """The builder filled the repository, Triton serves both models, and what the builder wrote belongs
    to the owner of the checkout."""
    assert stack.state("{{.State.ExitCode}}", "builder") == "0"
    assert digit(stack) == b"7"
    with Client(stack.grpc) as client:
        embedding = client.model("sentences").predict(text="Where is my parcel?")["embedding"]
    assert embedding.shape == (1, 384)
    if os.geteuid() == 0:
        made = [*(stack.checkout / "model_repository").rglob("*"), stack.key_file]
        assert {path.stat().st_uid for path in made} == {OWNER}
    assert stack.key_file.stat().st_mode & 0o777 == 0o600


def test_prometheus_has_triton_s_counters(stack: Stack) -> None:
    """It scrapes `nv_inference_request_success` of what was asked."""
    digit(stack)
    query = urllib.parse.quote('nv_inference_request_success{model="digits"}')
    url = f"http://127.0.0.1:{stack.ports['PROMETHEUS_PORT']}/api/v1/query?query={query}"
    deadline = time.monotonic() + 30
    value = 0.0
    while value < 1:
        assert time.monotonic() < deadline, "it never had the counter"
        time.sleep(0.5)
        found = json.loads(urllib.request.urlopen(url, timeout=5).read())["data"]["result"]
        value = max((float(entry["value"][1]) for entry in found), default=0.0)
    rules = url.partition("query")[0] + "rules?type=alert"
    groups = json.loads(urllib.request.urlopen(rules, timeout=5).read())["data"]["groups"]
    assert "ReplicaDown" in {rule["name"] for group in groups for rule in group["rules"]}


def test_the_second_builder_run_does_nothing(stack: Stack) -> None:
    """It says so, and no file of the repository is touched."""

    def state() -> dict[Path, tuple[int, int]]:
        folder = stack.checkout / "model_repository"
        return {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.rglob("*")}

    before = state()
    done = stack.compose("run", "--rm", "builder")
    assert done.returncode == 0, done.stderr
    assert "nothing to change" in done.stdout + done.stderr
    assert state() == before


def test_the_server_is_confined(stack: Stack) -> None:
    """Not root, no capabilities, a root filesystem nobody can write, the limits that were computed."""
    for place in ("/x", "/opt/tritonserver/x", "/models/x", "/handover/x"):
        assert "Read-only" in stack.inside("touch", place).stderr
    assert stack.inside("touch", "/tmp/x").returncode == 0  # noqa: S108 (a tmpfs)
    status = stack.inside("sh", "-c", "cat /proc/[0-9]*/status").stdout
    assert set(re.findall(r"Uid:\s+(\d+)", status)) == {str(SERVER_USER)}
    assert set(re.findall(r"CapEff:\s+(\w+)", status)) == {"0" * 16}
    limits = (stack.checkout / "deploy/docker/resources.yml").read_text()
    shm, memory = (int(mib) << 20 for mib in re.findall(r": (\d+)m", limits))
    assert stack.state("{{.HostConfig.ShmSize}} {{.HostConfig.Memory}}") == f"{shm} {memory}"
    ports = stack.state("{{json .HostConfig.PortBindings}}")
    assert {b["HostIp"] for bound in json.loads(ports).values() for b in bound} == {"127.0.0.1"}


def test_native_backends_serve_where_the_image_has_them(stack: Stack) -> None:
    """The network's backend is in tritonserver's process and no stub runs one; an image that was built without
    a compiler says that stand-ins serve."""
    has = stack.inside("test", "-d", "/opt/tritonserver/native-backends").returncode == 0
    loaded = stack.inside("sh", "-c", "cat /proc/[0-9]*/maps").stdout
    stubs = stack.inside("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    warned = "Python stand-ins serve" in stack.compose("logs", "triton").stdout
    assert ("/libtriton_onnxruntime.so" in loaded) is has
    assert ("/digits_network/" not in stubs) is has
    assert warned is not has


def test_the_server_image_is_small_and_without_torch(images: None) -> None:
    """Under 1.2 GB, and nothing of PyTorch in its Python."""
    assert int(docker("image", "inspect", "-f", "{{.Size}}", SERVER_IMAGE)) < 1.2e9
    code = "import importlib.util as u; print(*[m for m in ('torch', 'onnx') if u.find_spec(m)])"
    argv = ("--entrypoint", "python3", SERVER_IMAGE, "-c", code)
    assert docker("run", "--rm", *argv) == ""


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "repository/index"),
        ("POST", "repository/models/digits/load"),
        ("POST", "repository/models/digits/unload"),
        ("GET", "systemsharedmemory/status"),
        ("GET", "cudasharedmemory/status"),
        ("GET", "logging"),
        ("GET", "trace/setting"),
    ],
)
def test_http_calls_that_change_the_server_are_not_served(
    stack: Stack, method: str, path: str
) -> None:
    """Without the key, with another one, and with the right one: the proxy says 403 or 404."""
    for headers in ({}, {"admin-key": "0" * 48}, {"admin-key": stack.key_file.read_text().strip()}):
        request = urllib.request.Request(f"{stack.http}/v2/{path}", method=method, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=5)
        caught.value.close()
        assert caught.value.code in (403, 404)


def test_the_key_is_in_no_argument_of_the_container(stack: Stack) -> None:
    """Users of the host see the container's processes, and not its key."""
    key = stack.key_file.read_text().strip()
    listed = stack.inside("sh", "-c", "cat /proc/[0-9]*/cmdline").stdout
    assert "tritonserver" in listed
    assert key not in listed


@pytest.mark.parametrize(
    "body", [b"[" * 150_000, json.dumps({"inputs": [{"name": "x"}] * 50_000}).encode()]
)
def test_http_requests_that_kill_triton_do_not_reach_it(stack: Stack, body: bytes) -> None:
    """Brackets without end, inputs without end: a status of the proxy's, and the server lives."""
    pid = stack.state("{{.State.Pid}}")
    request = urllib.request.Request(
        f"{stack.http}/v2/models/digits/infer", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    caught.value.close()
    assert 400 <= caught.value.code < 500
    assert digit(stack) == b"7"
    assert (pid, "0") == (stack.state("{{.State.Pid}}"), stack.state("{{.RestartCount}}"))
    assert "starting again" not in stack.compose("logs", "triton").stdout


def test_the_key_opens_them(stack: Stack) -> None:
    """Over gRPC: an error that says which key is missing, and an answer with it."""
    key = stack.key_file.read_text().strip()
    for wrong in (None, "0" * 48):
        with Client(stack.grpc, admin_key=wrong) as client:
            with pytest.raises(InferenceError, match="restricted") as caught:
                client.models()
            assert "--key-file" in caught.value.todo
            with pytest.raises(InferenceError, match="restricted"):
                client.load("digits")
    with Client(stack.grpc, admin_key=key) as client:
        assert all(status.ready for status in client.models())
    assert "restricted" in failed(tritonkit("models", "--address", stack.grpc, cwd=Path("/")), 5)
    done = tritonkit("models", "--address", stack.grpc, "--key-file", str(stack.key_file))
    assert done.returncode == 0, done.stderr


def test_new_versions_come_without_a_failed_request(stack: Stack, project: Path) -> None:
    """A model the server had not seen is loaded; then 200 requests a second for 30 s over two new
    versions of it: none fails, and each version was seen."""
    published = Project(stack.checkout, project)
    key = ("--address", stack.grpc, "--key-file", str(stack.key_file))
    assert tritonkit("reload", "constant", *key).returncode == 0
    with Client(stack.grpc) as client:
        model = client.model("constant")

        def call() -> str:
            return str(model.predict(image=published.image)["label"][0, 0].decode())

        began = time.monotonic()
        with steady(call, PER_S) as stream:
            for number in (1, 2):
                time.sleep(10)
                published.publish(number)
                done = tritonkit("reload", "constant", *key)
                assert done.returncode == 0, done.stderr
                assert call() == str(number)
            time.sleep(max(5.0, began + 30 - time.monotonic()))
        took_s = time.monotonic() - began
    # Built by this user, not by the checkout's owner.
    give(stack.checkout, OWNER)
    assert stream.failures == []
    assert set(stream.answers) == {"0", "1", "2"}
    assert took_s >= 30
    assert stream.sent >= 0.9 * PER_S * took_s, "the stream fell behind its rate"
    stack.await_health("healthy", 10)


def signal_inside(stack: Stack, signal: str, *words: str) -> None:
    """Send a signal to the processes in the server's container whose command line holds all the words."""
    found = " && ".join(f"grep -aq {word} $process/cmdline" for word in words)
    found = f"[ $process != /proc/$$ ] && {found}"  # the shell's own command line holds them too
    stack.inside(
        "sh", "-c",
        f"for process in /proc/[0-9]*; do {found} && kill -{signal} ${{process#/proc/}}; done",
    )  # fmt: skip


def test_a_dead_stub_is_unhealthy_and_revived(stack: Stack) -> None:
    """Killed inside the container: unhealthy for as long as nothing is done about it; then its model is loaded
    again and answers, the server is the same, and nothing of the dead stub is left in /dev/shm."""
    regions = len(stack.inside("ls", SHARED_MEMORY).stdout.split())
    signal_inside(stack, "STOP", "entry.py", "python3")
    signal_inside(stack, "KILL", "backend_stub", "/digits_top_k/")
    stack.await_health("unhealthy", 60)
    signal_inside(stack, "CONT", "entry.py", "python3")
    stack.await_health("healthy", 60)
    assert digit(stack) == b"7"
    deadline = time.monotonic() + 60
    while len(stack.inside("ls", SHARED_MEMORY).stdout.split()) != regions:
        assert time.monotonic() < deadline, stack.inside("ls", SHARED_MEMORY).stdout
        time.sleep(0.5)
    assert "model digits_top_k: it answers again" in stack.compose("logs", "triton").stdout
    assert stack.state("{{.RestartCount}}") == "0"


def test_requests_in_flight_are_answered_at_the_end(stack: Stack) -> None:
    """Eight batches that take seconds in all are under way when the container is told to stop: all are
    answered, and it ends with exit code 0."""
    text = "a long sentence about many parcels that never came " * 20
    with Client(stack.grpc, timeout_s=60) as client, ThreadPoolExecutor(8) as pool:
        model = client.model("sentences")
        # As much work as a third of the time for it, on whatever machine this is.
        model.predict(text=[text] * 4)
        began = time.monotonic()
        model.predict(text=[text] * 4)
        size = max(1, min(32, int(4 * 7 / 8 / (time.monotonic() - began))))
        batch = [text] * size
        answers = [pool.submit(model.predict, text=batch) for _ in range(8)]
        time.sleep(0.5)
        assert not all(answer.done() for answer in answers), "nothing was in flight"
        stopped = stack.compose("stop", "triton")
        assert stopped.returncode == 0, stopped.stderr
        assert [a.result()["embedding"].shape for a in answers] == [(size, 384)] * 8
    assert stack.state("{{.State.ExitCode}}") == "0"
    again = stack.compose("up", "-d")
    assert again.returncode == 0, again.stderr + stack.compose("logs", "triton").stdout[-3000:]
    stack.await_health("healthy", 120)
    assert digit(stack) == b"7"
