"""`docker compose up`: built, served, watched, drained, revived, and closed to whom it should be."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.cli.running import failed, tritonkit
from tests.docker.conftest import HOST, OWNER, SERVER_IMAGE, SERVER_USER, Stack, docker, give
from tests.server.own.test_reload import PER_S, Project
from tests.server.steady import Stream, steady
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client, Observer, OpenTelemetryTracing
from tritonkit.errors import InferenceError
from tritonkit.operate.keys import FILE, add_key

pytestmark = pytest.mark.timeout(900)

SHARED_MEMORY = "/dev/shm"  # noqa: S108 (where POSIX shared memory is on Linux)


def caller(stack: Stack, *observers: Observer) -> Client:
    """A client of the gateway, with the key that was made for a start."""
    return Client(stack.gateway, tls=stack.tls, api_key=stack.api_key, observers=observers)


def seven(stack: Stack) -> bytes:
    """The picture of a seven."""
    return (stack.checkout / "models/digits/examples/seven.png").read_bytes()


def digit(stack: Stack, *observers: Observer) -> bytes:
    """The shipped model's answer, through the gateway."""
    with caller(stack, *observers) as client:
        label: bytes = client.model("digits").predict(image=seven(stack))["label"][0, 0]
        return label


def accepts_key(client: Client) -> bool:
    """Whether the gateway knows its key."""
    try:
        return client.is_ready()
    except InferenceError:
        return False


def replica_request(stack: Stack, path: str, body: bytes | None = None, **kept: str) -> None:
    """A request to a replica's own REST, which must be refused; `HTTPError` is raised."""
    headers = {"Host": HOST, **kept}
    if body is not None:
        headers["Content-Type"] = "application/json"
    method = kept.pop("method", None)
    request = urllib.request.Request(f"{stack.http}{path}", body, headers, method=method)
    urllib.request.urlopen(request, timeout=PATIENCE_S)


def test_a_fresh_checkout_comes_up_and_answers(stack: Stack) -> None:
    """The builder filled the repository, two replicas serve both models behind the gateway, and what was made belongs
    to the owner of the checkout."""
    assert stack.state("{{.State.ExitCode}}", "builder") == "0"
    assert len(stack.addresses()) == 2
    assert digit(stack) == b"7"
    with caller(stack) as client:
        embedding = client.model("sentences").predict(text="Where is my parcel?")["embedding"]
    assert embedding.shape == (1, 384)
    gateway = stack.checkout / "deploy/gateway"
    secret = [stack.key_file, gateway / "first.key", gateway / FILE, gateway / "tls/server.key"]
    secret.append(gateway / "tls/ca.key")
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    if os.geteuid() == 0:
        made = [*(stack.checkout / "model_repository").rglob("*"), *gateway.rglob("*"), *secret]
        assert {path.stat().st_uid for path in made} == {OWNER}


def test_strangers_are_refused_and_rest_is_served(stack: Stack) -> None:
    """A wrong key and none are 401, a right one is not; all are in the audit log, and no key is."""
    url = f"https://localhost:{stack.ports['GATEWAY_PORT']}/v2/models/digits"
    trusted = ssl.create_default_context(cafile=str(stack.tls.ca))
    for key in (None, "tk_" + "x" * 43):
        request = urllib.request.Request(url, headers={"x-api-key": key} if key else {})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=PATIENCE_S, context=trusted)
        caught.value.close()
        assert caught.value.code == 401
    key = stack.api_key.reveal()
    request = urllib.request.Request(url, headers={"x-api-key": key})
    answer = urllib.request.urlopen(request, timeout=PATIENCE_S, context=trusted)
    assert json.loads(answer.read())["name"] == "digits"

    def audit() -> str:
        return stack.compose("logs", "--no-color", "gateway").stdout

    # Envoy writes its log a moment after the answer.
    entries = {'"status":401', '"status":200', '"key":"first"'}
    eventually(lambda: entries <= set(re.findall(r'"\w+":"?\w+"?', audit())), "not in the audit log")
    assert key not in audit()


def test_a_key_that_is_added_counts_at_once(stack: Stack) -> None:
    """`tritonkit keys add` on the host; nothing is started again."""
    folder, began = (stack.checkout / "deploy/gateway", stack.state("{{.State.StartedAt}}", "gateway"))
    file = folder / FILE
    if os.geteuid() == 0:
        os.chown(file, 0, 0)
    _, key = add_key(file, "bob", ["digits"])
    give(folder, OWNER)
    with Client(stack.gateway, tls=stack.tls, api_key=key) as client:
        eventually(lambda: accepts_key(client), stack.compose("logs", "gateway-config").stdout)
        assert client.model("digits").predict(image=seven(stack))["label"][0, 0] == b"7"
        with pytest.raises(InferenceError, match="may use it"):
            client.model("sentences").predict(text="not mine")
    assert stack.state("{{.State.StartedAt}}", "gateway") == began


def test_prometheus_sees_every_part(stack: Stack) -> None:
    """Both replicas by name service, the gateway, their counters; it has the rules, and the Alertmanager to tell."""
    digit(stack)
    instances = {f"{address}:8002" for address in stack.addresses()} | {"gateway:8444"}

    def scraped() -> bool:
        targets = stack.ask("PROMETHEUS_PORT", "/api/v1/targets")["data"]["activeTargets"]
        return {t["labels"]["instance"] for t in targets if t["health"] == "up"} == instances

    def counted() -> bool:
        return all(map(stack_counts, ("nv_inference_request_success", "envoy_gateway_requests")))

    def stack_counts(metric: str) -> bool:
        query = urllib.parse.quote(f'sum({metric}{{model="digits"}})')
        series = stack.ask("PROMETHEUS_PORT", f"/api/v1/query?query={query}")["data"]["result"]
        return bool(series) and float(series[0]["value"][1]) >= 1

    eventually(scraped, "it never had all targets")
    eventually(counted, "it never had the counters")
    rules = stack.ask("PROMETHEUS_PORT", "/api/v1/rules?type=alert")["data"]["groups"]
    assert "ReplicaDown" in {rule["name"] for group in rules for rule in group["rules"]}
    managers = stack.ask("PROMETHEUS_PORT", "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    assert [manager["url"] for manager in managers] == ["http://alertmanager:9093/api/v2/alerts"]
    status = stack.ask("ALERTMANAGER_PORT", "/api/v2/status")
    assert "receiver: ticket" in status["config"]["original"]


def test_triton_s_spans_join_the_caller_s_through_the_gateway(stack: Stack) -> None:
    """The collector gets a span of Triton's with the caller's trace, below the client's span."""
    provider, traces = TracerProvider(), []

    def collected() -> bool:
        # Triton drops spans that it cannot send, as before the collector listens: each look follows a call of its own.
        with provider.get_tracer("test").start_as_current_span("caller") as span:
            assert digit(stack, OpenTelemetryTracing(provider)) == b"7"
            traces.append(f"{span.get_span_context().trace_id:032x}")
        log = stack.compose("logs", "--no-color", "collector").stdout
        return re.search(rf"Trace ID\s+: ({'|'.join(traces)})", log) is not None and "InferRequest" in log

    eventually(collected, "no span of the caller's traces")


def test_a_replica_that_is_killed_costs_no_call(stack: Stack) -> None:
    """While 50 requests a second go through the gateway one is killed, and later comes back: all are answered."""
    lost = stack.containers("triton")[1]
    with caller(stack) as client:
        model = client.model("digits")

        def call() -> str:
            return str(model.predict(image=seven(stack), idempotent=True)["label"][0, 0].decode())

        call()
        with steady(call, 50) as stream:
            eventually(lambda: stream.sent > 50, "requests before")
            docker("kill", lost)
            gone_at = stream.sent
            eventually(lambda: stream.sent > gone_at + 400, "requests while it is gone")
            docker("start", lost)
            eventually(
                lambda: docker("inspect", "-f", "{{.State.Health.Status}}", lost) == "healthy", "it did not come back"
            )
    assert stream.failures == []
    assert set(stream.answers) == {"7"}
    assert len(stack.addresses()) == 2


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


@pytest.mark.parametrize("service", ["triton", "gateway"])
def test_servers_are_confined(stack: Stack, service: str) -> None:
    """Not root, no capabilities, a root filesystem nobody can write."""
    mounted = {"triton": ("/models/x", "/handover/x"), "gateway": ("/gateway/x",)}
    for place in ("/x", "/opt/tritonserver/x", *mounted[service]):
        assert "Read-only" in stack.inside("touch", place, service=service).stderr
    assert stack.inside("touch", "/tmp/x", service=service).returncode == 0  # noqa: S108 (a tmpfs)
    status = stack.inside("sh", "-c", "cat /proc/[0-9]*/status", service=service).stdout
    assert set(re.findall(r"Uid:\s+(\d+)", status)) == {str(SERVER_USER)}
    assert set(re.findall(r"CapEff:\s+(\w+)", status)) == {"0" * 16}


def test_replicas_have_their_limits_and_the_gateway_alone_a_port(stack: Stack) -> None:
    """Limits are the computed ones; ports are on loopback; the authority's key is not the gateway's."""
    limits = (stack.checkout / "deploy/docker/resources.yml").read_text()
    shm, memory = (int(mib) << 20 for mib in re.findall(r": (\d+)m", limits))
    assert stack.state("{{.HostConfig.ShmSize}} {{.HostConfig.Memory}}") == f"{shm} {memory}"
    for service in ("triton", "redis", "gateway-config"):
        assert json.loads(stack.state("{{json .HostConfig.PortBindings}}", service)) in (None, {})
    for service in ("gateway", "prometheus", "alertmanager", "collector"):
        ports = json.loads(stack.state("{{json .HostConfig.PortBindings}}", service))
        assert [b["HostIp"] for bound in ports.values() for b in bound] == ["127.0.0.1"], service
    assert stack.state("{{.HostConfig.NetworkMode}}", "gateway-config") == "none"
    files = stack.inside("find", "/gateway", service="gateway").stdout
    assert "/files/tls/server.key" in files
    assert "ca.key" not in files


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
def test_http_calls_that_change_the_server_are_not_served(stack: Stack, method: str, path: str) -> None:
    """Without the key, with another one, and with the right one: the proxy says 403 or 404."""
    for headers in ({}, {"admin-key": "0" * 48}, {"admin-key": stack.key_file.read_text().strip()}):
        with pytest.raises(urllib.error.HTTPError) as caught:
            replica_request(stack, f"/v2/{path}", method=method, **headers)
        caught.value.close()
        assert caught.value.code in (403, 404)


def test_the_key_is_in_no_argument_of_the_container(stack: Stack) -> None:
    """Users of the host see the container's processes, and not its key."""
    key = stack.key_file.read_text().strip()
    listed = stack.inside("sh", "-c", "cat /proc/[0-9]*/cmdline").stdout
    assert "tritonserver" in listed
    assert key not in listed


@pytest.mark.parametrize("body", [b"[" * 150_000, json.dumps({"inputs": [{"name": "x"}] * 50_000}).encode()])
def test_http_requests_that_kill_triton_do_not_reach_it(stack: Stack, body: bytes) -> None:
    """Brackets without end, inputs without end: a status of the proxy's, and the server lives."""
    pid = stack.state("{{.State.Pid}}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        replica_request(stack, "/v2/models/digits/infer", body)
    caught.value.close()
    assert 400 <= caught.value.code < 500
    assert digit(stack) == b"7"
    assert (pid, "0") == (stack.state("{{.State.Pid}}"), stack.state("{{.RestartCount}}"))
    assert "starting again" not in stack.compose("logs", "triton").stdout


def test_the_key_opens_them(stack: Stack) -> None:
    """Over gRPC: an error that says which key is missing, and an answer with it."""
    key = stack.key_file.read_text().strip()
    for wrong in (None, "0" * 48):
        with Client(stack.grpc, admin_key=wrong, allow_plaintext_credentials=True) as client:
            with pytest.raises(InferenceError, match="restricted") as caught:
                client.models()
            assert "--key-file" in caught.value.todo
            with pytest.raises(InferenceError, match="restricted"):
                client.load("digits")
    with Client(stack.grpc, admin_key=key, allow_plaintext_credentials=True) as client:
        assert all(status.ready for status in client.models())
    assert "restricted" in failed(tritonkit("models", "--address", stack.grpc, cwd=Path("/")), 5)


def await_answers(stream: Stream, number: int) -> None:
    """Wait for as many answers of a version as come in ten seconds."""
    eventually(lambda: stream.answers[str(number)] >= 10 * PER_S, f"answers of version {number}")


def test_new_versions_come_without_a_failed_request(stack: Stack, project: Path) -> None:
    """A model that the replicas had not seen is loaded; then 200 requests a second over two new
    versions of it, which the service `reload` brings to all replicas: none fails, and each version was seen."""
    published = Project(stack.checkout, project)

    def reload() -> None:
        done = stack.compose("run", "--rm", "reload", "constant")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("Reloaded at") == 2

    reload()
    with caller(stack) as client:
        model = client.model("constant")

        def call() -> str:
            return str(model.predict(image=published.image)["label"][0, 0].decode())

        with steady(call, PER_S) as stream:
            for number in (1, 2):
                await_answers(stream, number - 1)
                published.publish(number)
                reload()
                assert {call() for _ in range(8)} == {str(number)}
            await_answers(stream, 2)
    # Built by this user, not by the checkout's owner.
    give(stack.checkout, OWNER)
    assert stream.failures == []
    assert set(stream.answers) == {"0", "1", "2"}
    stack.await_health("healthy", "gateway")


def signal_inside(stack: Stack, signal: str, *words: str) -> None:
    """Send a signal to the processes in the server's container whose command line holds all the words."""
    test = " && ".join(f"grep -aq {word} $process/cmdline" for word in words)
    test = f"[ $process != /proc/$$ ] && {test}"  # the shell's own command line holds them too
    stack.inside("sh", "-c", f"for process in /proc/[0-9]*; do {test} && kill -{signal} ${{process#/proc/}}; done")


def test_a_dead_stub_is_unhealthy_and_revived(stack: Stack) -> None:
    """Killed inside the container: unhealthy for as long as nothing is done about it; then its model is loaded
    again and answers, the server is the same, and nothing of the dead stub is left in /dev/shm."""
    regions = len(stack.inside("ls", SHARED_MEMORY).stdout.split())
    signal_inside(stack, "STOP", "entry.py", "python3")
    signal_inside(stack, "KILL", "backend_stub", "/digits_top_k/")
    stack.await_health("unhealthy")
    signal_inside(stack, "CONT", "entry.py", "python3")
    stack.await_health("healthy")
    assert digit(stack) == b"7"
    eventually(lambda: len(stack.inside("ls", SHARED_MEMORY).stdout.split()) == regions, "nothing of it is left")
    again = "model digits_top_k: it answers again"
    eventually(lambda: again in stack.compose("logs", "triton").stdout, again)
    assert stack.state("{{.RestartCount}}") == "0"


def test_requests_in_flight_are_answered_at_the_end(stack: Stack) -> None:
    """Eight batches that take seconds in all are under way at a replica when its container is told to stop: all are
    answered, it ends with exit code 0, the other one goes on, and it comes back."""
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
        docker("stop", "--time", "70", stack.container())
        assert [a.result()["embedding"].shape for a in answers] == [(size, 384)] * 8
    assert stack.state("{{.State.ExitCode}}") == "0"
    assert digit(stack) == b"7"
    docker("start", stack.container())
    stack.await_health("healthy")
