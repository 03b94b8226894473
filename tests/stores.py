"""Stores of models that are really there: an S3 server, and a folder by HTTP."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.waiting import eventually

S3_VARIABLES = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server of our own, which any account may use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    command = [sys.executable, "-m", "moto.server", "-p", address.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            eventually(lambda: _answers(address), "the S3 server")
            yield address
        finally:
            server.terminate()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/moto-api/data.json", timeout=10).read()
    except OSError:
        return False
    return True


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of a new bucket there, and this process' environment as its account's."""
    urllib.request.urlopen(f"{s3_server}/moto-api/reset", data=b"", timeout=10).read()
    for name, value in (S3_VARIABLES | {"AWS_ENDPOINT_URL": s3_server}).items():
        monkeypatch.setenv(name, value)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    files.mkdir("models")
    # fsspec keeps what it has made for other addresses of the environment.
    type(files).clear_instance_cache()
    yield "s3://models/copies"
    type(files).clear_instance_cache()


@dataclass(frozen=True)
class HttpFolder:
    """A folder that is served by HTTP.

    Args:
        url: of it. folder: its path. asked: path -> how often it was fetched.
    """

    url: str
    folder: Path
    asked: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def http_folder(tmp_path: Path) -> Iterator[HttpFolder]:
    """A folder that anybody may list and read, on a free port of all addresses of this machine."""
    asked: Counter[str] = Counter()
    served = tmp_path / "served"
    served.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any, **keys: Any) -> None:
            super().__init__(*arguments, directory=os.fspath(served), **keys)

        def do_GET(self) -> None:
            asked[self.path] += 1
            super().do_GET()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name there
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield HttpFolder(f"http://127.0.0.1:{server.server_port}", served, asked)
        server.shutdown()
        thread.join()
