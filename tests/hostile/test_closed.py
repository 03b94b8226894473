"""Requests that a default server refuses without its key, and its state that others can see."""

from __future__ import annotations

import json
import os
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.cli.running import tritonkit
from tests.hostile.conftest import EVERY_KIND, Target
from tests.waiting import PATIENCE_S, eventually
from tritonkit import Client
from tritonkit.serve.core.supervisor import children

KEY_HEADER = "triton-grpc-protocol-admin-key"

CLOSED: dict[str, Any] = {
    "RepositoryIndex": service_pb2.RepositoryIndexRequest(),
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest(model_name="wide"),
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(model_name="wide"),
    "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest(),
    "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest(name="mine", key="/any", byte_size=8),
    "SystemSharedMemoryUnregister": service_pb2.SystemSharedMemoryUnregisterRequest(),
    "CudaSharedMemoryStatus": service_pb2.CudaSharedMemoryStatusRequest(),
    "CudaSharedMemoryRegister": service_pb2.CudaSharedMemoryRegisterRequest(name="mine"),
    "CudaSharedMemoryUnregister": service_pb2.CudaSharedMemoryUnregisterRequest(),
    "TraceSetting": service_pb2.TraceSettingRequest(),
    "LogSettings": service_pb2.LogSettingsRequest(),
}
"""Every call of Triton's gRPC service that changes a server, or shows more than its models."""

WRITES = """import pathlib
pathlib.Path({file!r}).write_text("executed")
class TritonPythonModel:
    pass
"""


@contextmanager
def stub(address: str) -> Iterator[Any]:
    """Triton's own gRPC stubs."""
    with grpc.insecure_channel(address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.mark.parametrize("method", sorted(CLOSED))
@pytest.mark.parametrize("key", [None, "", "0" * 48, "{admin-key}", "off-{admin-key}"])
def test_calls_that_change_the_server_need_the_key(target: Target, method: str, key: str | None) -> None:
    """Without the key of this run each is refused, and nothing happens."""
    metadata = () if key is None else ((KEY_HEADER, key),)
    with stub(target.endpoint.grpc) as service:
        with pytest.raises(grpc.RpcError) as caught:
            getattr(service, method)(CLOSED[method], timeout=PATIENCE_S, metadata=metadata)
        assert "protocol is restricted" in str(caught.value.details())  # type: ignore[attr-defined]


def test_a_load_request_runs_nobodys_code(target: Target, tmp_path: Path) -> None:
    """A model that comes with a request, which Triton would write to disk and run."""
    proof = tmp_path / "proof"
    load = service_pb2.RepositoryModelLoadRequest(model_name="evil")
    load.parameters["config"].string_param = json.dumps({"backend": "python", "max_batch_size": 0})
    load.parameters["file:1/model.py"].bytes_param = WRITES.format(file=str(proof)).encode()
    with stub(target.endpoint.grpc) as service, pytest.raises(grpc.RpcError):
        service.RepositoryModelLoad(load, timeout=PATIENCE_S)
    assert not proof.exists()


def test_nothing_else_listens(target: Target) -> None:
    """gRPC and metrics on loopback, and no other TCP port of the server's processes."""
    pids = [target.endpoint.pid, *children(target.endpoint.pid), os.getpid()]
    addresses = set(listening(pids))
    mine = {target.endpoint.grpc, target.endpoint.metrics}
    assert mine <= addresses
    assert set(listening(pids[:-1])) == {target.endpoint.grpc}
    assert {address.rpartition(":")[0] for address in mine} == {"127.0.0.1"}
    assert target.endpoint.http == ""


def test_the_owner_s_commands_find_the_key(target: Target, project: Path) -> None:
    """`tritonkit models` and `reload` work in the project, without a word about keys."""
    done = tritonkit("models", "--address", target.endpoint.grpc, cwd=project)
    assert done.returncode == 0, done.stderr
    done = tritonkit("reload", "wide", "--address", target.endpoint.grpc, cwd=project)
    assert done.returncode == 0, done.stderr


def test_the_key_is_in_a_file_of_its_owner_alone(target: Target) -> None:
    """Mode 600 in a folder of mode 700; it opens what it should."""
    file = target.run_folder / "admin-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.run_folder.stat().st_mode) == 0o700
    with Client(target.endpoint.grpc, admin_key=file.read_text().strip()) as client:
        assert {status.name for status in client.models()} == set(EVERY_KIND)
    assert target.endpoint.admin_key not in repr(target.endpoint)
    assert target.endpoint.admin_key not in target.endpoint.log.read_text()


def test_the_key_is_in_no_argument_and_no_environment(target: Target) -> None:
    """Neither of tritonserver, nor of its supervisor and its stubs: any user may read arguments."""
    supervisor = int(Path(f"/proc/{target.endpoint.pid}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in (target.endpoint.pid, supervisor, *children(target.endpoint.pid)):
        for name in ("cmdline", "environ"):
            assert target.endpoint.admin_key.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_what_the_server_makes_is_for_its_owner_alone(target: Target) -> None:
    """Regions of its stubs in shared memory, sockets, logs: no bit for group or others."""
    made = [Path("/dev/shm") / words[2] for words in stub_words(target.endpoint.pid)]  # noqa: S108
    assert made
    made += [path for path in target.run_folder.rglob("*") if not path.is_relative_to(target.run_folder / "backends")]
    assert {path.name for path in made} >= {"http.sock", "metrics.sock", "server.log", "admin-key"}
    open_to_others = {str(path): oct(path.stat().st_mode) for path in made if path.stat().st_mode & 0o077}
    assert not open_to_others
    for pid in (target.endpoint.pid, *children(target.endpoint.pid)):
        umask = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Umask")]
        assert umask == ["Umask:\t0077"]


def test_a_large_request_is_refused_before_it_is_copied(target: Target) -> None:
    """200 MB to a model that would take them: refused, the stub's shared memory is as before, and the
    server's memory has not grown by it."""
    before = max(regions(target.endpoint.pid)), resident(target.endpoint.pid)
    values = np.zeros((1, 50 << 20), np.float32)
    with stub(target.endpoint.grpc) as service:
        request = service_pb2.ModelInferRequest(model_name="wide")
        request.inputs.add(name="x", datatype="FP32").shape.extend(values.shape)
        request.raw_input_contents.append(values.tobytes())
        with pytest.raises(grpc.RpcError) as caught:
            service.ModelInfer(request, timeout=PATIENCE_S)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert max(regions(target.endpoint.pid)) == before[0]
    assert resident(target.endpoint.pid) < before[1] + (64 << 20)


def test_shared_memory_that_has_grown_is_given_back(target: Target) -> None:
    """An unusual batch is answered; then the model is loaded again, and its region has its first size."""
    values = np.zeros((1, 10 << 20), np.float32)
    small = min(regions(target.endpoint.pid))
    with Client(target.endpoint.grpc) as client, ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.model("wide").predict, x=values)
        # While it is answered: the memory may be given back as soon as it has been.
        eventually(lambda: max(regions(target.endpoint.pid)) > values.nbytes, "it grows")
        assert call.result(PATIENCE_S)["y"].shape == values.shape
    eventually(lambda: target.of("stub_grown"))
    eventually(lambda: [e for e in target.of("stub_back") if e.model == "wide"])
    eventually(lambda: set(regions(target.endpoint.pid)) == {small})
    with Client(target.endpoint.grpc) as client:
        assert client.model("wide").predict(x=values[:, :4])["y"].shape == (1, 4)


def test_metrics_are_served_and_nothing_else(target: Target) -> None:
    """Prometheus gets Triton's figures; other paths, methods and bodies get a refusal, and none is read."""
    url = f"http://{target.endpoint.metrics}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:
        assert b"nv_inference_request_success" in answer.read()
    for path, method, status in (("/", "GET", 404), ("/v2/health/ready", "GET", 404), ("/metrics", "POST", 405)):
        request = urllib.request.Request(f"{url}{path}", method=method)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        assert caught.value.code == status
        caught.value.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * (1 << 20),
        b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 100_000,
        b"\0" * 4096,
        b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n0\r\n" * 100_000,
        b"",
    ],
)
def test_the_proxy_to_the_metrics_takes_no_harm(target: Target, sent: bytes) -> None:
    """Heads without end, noise, bodies of many chunks, silence: the next scrape is answered."""
    host, port = target.endpoint.metrics.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        # It hangs up as soon as it has seen enough.
        with suppress(OSError):
            connection.sendall(sent)
        with urllib.request.urlopen(f"http://{target.endpoint.metrics}/metrics", timeout=PATIENCE_S) as answer:
            assert answer.status == 200


def test_many_silent_connections_do_not_starve_it(target: Target) -> None:
    """More of them than it serves at a time: those that wait without a word are let go."""
    host, port = target.endpoint.metrics.split(":")
    with ExitStack() as silent:
        for _ in range(40):
            # Where it hangs up before this process has had a core again, the connection is one that was let go.
            with suppress(ConnectionResetError):
                silent.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
        eventually(lambda: scraped(target.endpoint.metrics))


def scraped(address: str) -> bool:
    """Whether the metrics are answered."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def listening(pids: list[int]) -> Iterator[str]:
    """The TCP addresses on which processes listen."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(str(entry.readlink()))
            except OSError:
                continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                host, port = columns[1].split(":")
                # The last four bytes, also of an IPv4 address that is written as one of IPv6.
                yield f"{socket.inet_ntoa(bytes.fromhex(host[-8:])[::-1])}:{int(port, 16)}"


def stub_words(server: int) -> list[list[str]]:
    """The command lines of a server's Python stubs."""
    lines = []
    for pid in children(server):
        with suppress(OSError):  # it has ended meanwhile
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode())
    return [line.split("\0") for line in lines if "triton_python_backend_stub" in line]


def regions(server: int) -> list[int]:
    """The sizes of its stubs' regions that are there."""
    made = [Path("/dev/shm") / words[2] for words in stub_words(server)]  # noqa: S108
    return [path.stat().st_size for path in made if path.exists()]


def resident(pid: int) -> int:
    """Bytes of memory a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
