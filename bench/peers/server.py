"""A contender's server with one model: started as it documents, and called until it answers right."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.peers import ceiling, traffic
from bench.peers.contenders import LARGEST_BATCH, Contender, Way
from bench.peers.processes import Tree, running
from bench.peers.repository import FOLDERS, written_lines
from tritonkit.errors import ServerNotFound

__all__ = ["Place", "Running", "lines_of", "started"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TRITONS = ("ceiling", "pytriton")
OTHERS_S = 20.0
TOLERANCE = {"digits_network": 1e-3, "sentences": 1e-3, "resnet50": 1e-2}
"""The largest difference of a logit, of an embedding's number, of a probability."""
LOOSE = 0.2
"""The same for a form of the network that the gate let through with what it lost."""


@dataclass(frozen=True)
class Place:
    """A server's place and its model.

    Args:
        model: by its served name.
        cores: those of the server.
        bin: the folder of the contender's Python.
        home: for settings and logs.
        folder: with model.onnx, for peers.
        repository: for tritonkit.
        expected: the right answer.
    """

    model: str
    cores: Sequence[int]
    bin: Path
    home: Path
    folder: Path
    repository: Path
    expected: traffic.Answer


@dataclass(frozen=True)
class Running:
    """A server that answers right: its processes, seconds until then, addresses by port's name.

    `triton` says whether a Triton serves, which counts its answers.
    """

    tree: Tree
    ready_s: float
    addresses: Mapping[str, str]
    triton: bool

    def request(self, way: Way, model: str) -> traffic.Request:
        """The request in one way."""
        return _request(way, model, self.addresses)


@contextlib.contextmanager
def started(contender: Contender, place: Place, settings: Mapping[str, str]) -> Iterator[Running]:
    """The server for the block; every way was checked once with the right answer.

    Raises:
        BuildError: the ceiling cannot be compiled.
        ServerStartError: it does not start, or answers wrongly.
    """
    ports = _free_ports()
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    values = {
        "MODEL": place.model,
        "MODEL_FOLDER": str(place.folder),
        "MAX_BATCH": str(LARGEST_BATCH[place.model]),
        "MAX_DELAY_MS": "1",
        **settings,
        **ports,
        "ROOT": str(ROOT),
        "REPOSITORY": str(place.repository),
        "bin": str(place.bin),
    }
    if contender.name == "mlserver":
        values["SETTINGS"] = str(_mlserver_settings(place.home, values))
    waiting = _Check(contender, place, addresses)
    with running(
        _command(contender, values, place),
        environment=_environment(contender, place, values),
        folder=ROOT if contender.ours or contender.name == "ceiling" else HERE / contender.name,
        cores=place.cores,
        log=place.home / f"{contender.name}-{place.model}.log",
        answers=waiting.first,
    ) as (tree, ready_s):
        waiting.others()
        yield Running(tree, ready_s, addresses, contender.ours or contender.name in TRITONS)


class _Check:
    """Whether a server's answers are right, in its first way and then in all others."""

    def __init__(self, contender: Contender, place: Place, addresses: Mapping[str, str]) -> None:
        self.contender, self.place, self.addresses = contender, place, addresses
        self.ways = [way for way in contender.ways if way.format and place.model in way.models]

    def first(self) -> bool:
        """Check a starting server: it may refuse, but not answer wrong."""
        try:
            self._asked(self.ways[0])
        except (OSError, ValueError, ArithmeticError) as error:
            if isinstance(error, ArithmeticError):
                raise _wrong(self.contender, self.ways[0], error) from None
            return False
        except Exception as error:
            # http.client's own errors, while the server is still starting.
            if type(error).__module__ != "http.client":
                raise
            return False
        return True

    def others(self) -> None:
        """Check a running server: each way must answer; one that is not ready yet is tried again."""
        deadline = time.monotonic() + OTHERS_S
        for way in self.ways[1:]:
            while True:
                try:
                    self._asked(way)
                    break
                except (OSError, ValueError, ArithmeticError) as error:
                    if isinstance(error, ArithmeticError) or time.monotonic() > deadline:
                        raise _wrong(self.contender, way, error) from None
                time.sleep(0.1)

    def _asked(self, way: Way) -> None:
        """Raise `ArithmeticError` for a wrong answer."""
        answer = traffic.ask(_request(way, self.place.model, self.addresses))
        if self.contender.name == "ceiling":
            return
        off = traffic.difference(answer, self.place.expected)
        most = TOLERANCE[self.place.model] if self.contender.exact else LOOSE
        if off > most:
            raise ArithmeticError(f"an answer that differs by {off:.2g}, at most {most} is right")


def _wrong(contender: Contender, way: Way, error: Exception) -> ServerNotFound:
    return ServerNotFound(f"{contender.name}, {way.name}", found=str(error))


def _request(way: Way, model: str, addresses: Mapping[str, str]) -> traffic.Request:
    request = traffic.FORMATS[way.format](model, addresses[way.port])
    path = _socket(addresses["GRPC_PORT"]) if way.socket else ""
    return replace(request, socket=path, connections=way.connections)


def _socket(grpc_address: str) -> str:
    """Triton's own HTTP socket in the folder of the run that answers there."""
    from tritonkit.serve.runs import find_key_file

    file = find_key_file(ROOT, grpc_address)
    if file is None:
        raise ValueError(f"no run of a server at {grpc_address}")
    return str(file.parent / "http.sock")


def _command(contender: Contender, values: Mapping[str, str], place: Place) -> list[str]:
    if contender.name == "ceiling":
        return ceiling.command(values, place.home)
    return [part.format_map(values) for part in contender.command]


def _environment(contender: Contender, place: Place, values: Mapping[str, str]) -> dict[str, str]:
    """An isolated environment: of the project only the model's code, and for tritonkit its source."""
    own = contender.ours or contender.name == "ceiling"
    source = ROOT / "src" if own else HERE / "models" / place.model
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    if contender.name == "pytriton":
        # Its stub takes libpython as the loader finds it; that of another build would not fit.
        kept["LD_LIBRARY_PATH"] = str((place.bin / "python").resolve().parent.parent / "lib")
    return {
        **kept,
        "PATH": f"{place.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(source),
        **{name: value for name, value in values.items() if name.isupper() and name != "ROOT"},
        **contender.environment,
    }


def _mlserver_settings(home: Path, values: Mapping[str, str]) -> Path:
    """A folder with its two settings files."""
    folder = home / "mlserver-settings"
    folder.mkdir(exist_ok=True)
    workers = int(values["WORKERS"])
    server = {
        "host": "127.0.0.1",
        "http_port": int(values["HTTP_PORT"]),
        "grpc_port": int(values["GRPC_PORT"]),
        "metrics_port": int(values["METRICS_PORT"]),
        # With one worker, inference runs in the front end's process; more workers are separate processes.
        "parallel_workers": workers if workers > 1 else 0,
        "debug": False,
    }
    model = {
        "name": values["MODEL"],
        "implementation": "app.Inference",
        "max_batch_size": int(values["MAX_BATCH"]),
        "max_batch_time": int(values["MAX_DELAY_MS"]) / 1000,
    }
    (folder / "settings.json").write_text(json.dumps(server))
    (folder / "model-settings.json").write_text(json.dumps(model))
    return folder


def lines_of(contender: Contender, model: str) -> int:
    """Lines that a user of this server writes for a model: code and settings."""
    if contender.name == "ceiling":
        return 0
    if contender.ours:
        return written_lines(ROOT / "models" / FOLDERS[model] / "model.yaml")
    if contender.name == "infinity":
        return 1
    files = [HERE / contender.name / "app.py", HERE / "models" / model / "model.py"]
    # The two files of `_mlserver_settings`, a line for each key.
    settings = 11 if contender.name == "mlserver" else 0
    return written_lines(*files) + settings


def _free_ports() -> dict[str, str]:
    """Four free ports."""
    names = ("PORT", "HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    with contextlib.ExitStack() as stack:
        ports: dict[str, Any] = {}
        for name in names:
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            ports[name] = str(one.getsockname()[1])
    return ports
