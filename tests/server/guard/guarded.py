"""A tritonserver under the guard, with small models."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.native.guarded import library
from tests.ports import free_port
from tests.server.models import ModelText, write_repository
from tests.waiting import PATIENCE_S, eventually
from tritonkit.serve.command import prepare_backends
from tritonkit.serve.core.flags import closed_flags
from tritonkit.serve.core.keys import new_key
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.stubs import find_stubs
from tritonkit.serve.core.supervisor import remove_regions
from tritonkit.serve.install import find_server
from tritonkit.serve.ports import reachable


@dataclass
class Guarded:
    """A tritonserver under the guard: its process, port, admin key, a channel to it, and a folder with `models`."""

    pid: int
    port: int
    key: str
    channel: grpc.Channel
    folder: Path

    @property
    def service(self) -> Any:
        """tritonclient's stub."""
        return service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def memory_mib(self, line: str = "VmHWM") -> float:
        """The most memory that the process has had; with `VmRSS`: its memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        value = next(text for text in status.splitlines() if text.startswith(line))
        return int(value.split()[1]) / 1024

    def is_ready(self) -> bool:
        """Whether all models can be called."""
        try:
            return bool(self.service.ServerReady(service_pb2.ServerReadyRequest(), timeout=PATIENCE_S).ready)
        except grpc.RpcError:
            return False


@contextlib.contextmanager
def start_guarded(
    project: Path,
    folder: Path,
    models: Mapping[str, ModelText],
    message_bytes: int,
    prefix: str,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Guarded]:
    """A guarded server from its start to its end; it must live that long.

    Args:
        message_bytes: the largest message.
        prefix: of the names of its stubs' regions.
        variables: more settings of the guard.
    """
    folder.chmod(0o700)
    installation = find_server(project)
    shipped = project / "python_backends" / "backends"
    backends = prepare_backends(installation, shipped, folder / "backends")
    repository = write_repository(folder / "models", models)
    port, key, log = free_port(), new_key(), folder / "log"
    argv = [
        str(installation.binary),
        "--disable-auto-complete-config",
        "--model-control-mode=explicit",
        "--exit-on-error=false",
        "--allow-gpu-metrics=false",
        "--pinned-memory-pool-byte-size=0",
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        *(f"--load-model={name}" for name in models),
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        *closed_flags("127.0.0.1", port),
    ]
    with log.open("wb") as output:
        process = Launch(
            argv,
            installation.environment() | dict(variables or {}),
            str(folder),
            key=key,
            grpc_port=port,
            message_bytes=message_bytes,
            guard=str(library(project, "guard", folder)),
        ).start(output.fileno())
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
    try:
        with grpc.insecure_channel(reachable("127.0.0.1", port), options) as channel:
            running = Guarded(process.pid, port, key, channel, folder)
            eventually(running.is_ready, "the models are ready")
            yield running
            assert process.poll() is None, log.read_text()[-2000:]
    finally:
        # Not asked to end: Triton 2.51 waits for calls that their clients gave up, which never end.
        process.kill()
        process.wait()
        for stub in find_stubs(prefix):
            with contextlib.suppress(OSError):
                os.kill(stub.pid, signal.SIGKILL)
        remove_regions(prefix)
