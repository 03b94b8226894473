"""The app of a page in FastAPI, and its answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.families.callers import Request
from bench.peers.processes import running
from tritonkit.machine import cores

if TYPE_CHECKING:
    from bench.families.recipes import Answer, Item, Recipe

__all__ = ["PATH", "SETTINGS", "answers_of", "app", "request"]

HERE = Path(__file__).resolve().parent / "apps"
PATH = "/predict"
SETTINGS: tuple[Mapping[str, str], ...] = (
    {"WORKERS": "1", "THREADS": str(cores()), "IN_POOL": "1"},
    {"WORKERS": str(cores()), "THREADS": "1", "IN_POOL": "0"},
)
"""One worker with a thread for each core, and a worker for each core: the faster one is measured."""
_TIMEOUT_S = 60.0


def request(item: Item) -> Request:
    """Texts and numbers as JSON; a file as it is."""
    if any(isinstance(value, bytes) for value in item.values()):
        [body] = item.values()
        return Request(body)
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in item.items()}
    return Request(json.dumps(plain).encode(), ("content-type: application/json",))


@contextlib.contextmanager
def app(recipe: Recipe, folder: Path, bin_folder: Path, settings: Mapping[str, str], item: Item) -> Iterator[str]:
    """The address of the page's app for the block.

    Args:
        folder: the project, with the page's model built.
        bin_folder: the programs of the environment that has FastAPI.
        settings: one of `SETTINGS`.
        item: the first request.

    Raises:
        ServerStartError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    port = address.rpartition(":")[2]
    words = ["-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--port", port, "--workers", settings["WORKERS"]]
    words += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    network = next((folder / "model_repository" / recipe.network).glob("*/*.onnx"), "")
    values = {"APP": recipe.app, "FOLDER": str(folder / recipe.files), "NETWORK": str(network), **settings}
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "TMPDIR") if name in os.environ}

    def is_ready() -> bool:
        try:
            return bool(_posted(address, [item]))
        except (OSError, http.client.HTTPException):
            return False

    with running(
        [str(bin_folder / "python"), *words],
        environment={**kept, **values},
        folder=HERE,
        cores=sorted(os.sched_getaffinity(0)),
        log=folder / "fastapi.log",
        answers=is_ready,
    ):
        yield address


def answers_of(recipe: Recipe, address: str, items: Sequence[Item]) -> list[Answer]:
    """The app's answers, one after the other."""
    return [recipe.peer(body) for body in _posted(address, items)]


def _posted(address: str, items: Sequence[Item]) -> list[bytes]:
    """The bodies of good answers.

    Raises:
        OSError: one is not good.
    """
    bodies = []
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    with contextlib.closing(connection):
        for item in items:
            connection.request("POST", PATH, request(item).body)
            answer = connection.getresponse()
            bodies.append(answer.read())
            if answer.status != http.client.OK:
                raise OSError(f"status {answer.status}: {bodies[-1][:300].decode(errors='replace')}")
    return bodies
