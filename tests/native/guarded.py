"""Programs under the guard, and the frames to try them with."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from hpack import Decoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
END_STREAM, PADDED, REFUSED = 0x1, 0x8, 0x40

Step = int | list[str]
MOST_STREAMS = 2048
"""Calls that may be open on a connection."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


ANNOUNCED = frame(SETTINGS, 0, 0, b"\0\3" + (MOST_STREAMS // 2).to_bytes(4, "big"))
"""The guard's own frame, which begins each connection: MAX_CONCURRENT_STREAMS."""


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame; fails where bytes are left."""
    parts = []
    while data:
        length = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + length
        parts.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
        data = data[9 + length :]
    return parts


def message(length: int, body: bytes = b"", flag: int = 0) -> bytes:
    """gRPC's prefix for a message that is said to have `length` bytes, and what of it comes."""
    return bytes([flag]) + length.to_bytes(4, "big") + body


def fields(block: bytes) -> dict[str, str]:
    """The header fields of a block that needs no dynamic table."""
    return dict(Decoder().decode(block))


def build_module(project: Path) -> ModuleType:
    """python_backends/native/build.py, imported by its path."""
    path = project / "python_backends" / "native" / "build.py"
    spec = importlib.util.spec_from_file_location("native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their annotations up there
    spec.loader.exec_module(module)
    return module


def library(project: Path, name: str, folder: Path, sanitize: str = "") -> Path:
    """A library of today's sources: the server environment's, or one made in `folder`."""
    native = build_module(project)
    if sanitize:
        native.build(name, folder, sanitize=sanitize)
        return folder / str(native.LIBRARIES[name].file)
    installed = project / ".venv-server" / native.PLACE
    if not native.is_current(name, installed):
        native.build(name, folder)
        installed = folder
    return installed / str(native.LIBRARIES[name].file)


class Receiver:
    """A `receiver.py` under the guard.

    Args:
        guard: the guard's file.
        address: where it listens: a path, or a port as text.
        settings: the guard's environment variables.
    """

    def __init__(self, guard: Path, address: str, settings: dict[str, str]) -> None:
        self.address = address
        self.process = subprocess.Popen(
            [sys.executable, "-ISu", str(Path(__file__).with_name("receiver.py")), address],
            env={**os.environ, "LD_PRELOAD": str(guard), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready\n"

    def exchange(self, sent: bytes, steps: Sequence[Step]) -> tuple[list[str | bytes], bytes]:
        """Send bytes to it; gives what it read in each step (or the error's name), and what came after ANNOUNCED."""
        with self.begin(steps) as peer:
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
            came = self.end()
            answer = b""
            try:
                while part := peer.recv(1 << 16):
                    answer += part
            except ConnectionResetError:
                pass
        return [text if text.endswith("Error") else bytes.fromhex(text) for text in came], answer.removeprefix(
            ANNOUNCED
        )

    def begin(self, steps: Sequence[Step]) -> socket.socket:
        """A connection to it, for which it takes these steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(steps) + "\n")
        self.process.stdin.flush()
        return self._connect()

    def end(self) -> list[str]:
        """Wait until its steps are done; gives what it read in each."""
        return list(json.loads(self._answer()))

    def close(self) -> None:
        """End it; fails if it did not live until now."""
        assert self.process.poll() is None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        assert self.process.returncode == 0

    def _connect(self) -> socket.socket:
        if not self.address.startswith("/"):
            return socket.create_connection(("127.0.0.1", int(self.address)), timeout=20)
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(20)
        peer.connect(self.address)
        return peer

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()
