"""A clock to turn by hand, answers that are counted, and a Redis of the test's own to kill and to freeze."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tritonkit.client.cache import Cache, Entry, PredictionCache
from tritonkit.client.cache.redis_store import LARGEST_BYTES

if TYPE_CHECKING:
    from tritonkit.client.steps import Step, Steps


class Clock:
    """A monotonic clock that stands until a test turns it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The moment."""
        return self.now

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Maker:
    """The call to the server: counts how often it was made; `error`, `steps` and `version` play it."""

    def __init__(self) -> None:
        self.calls = 0
        self.version = "1"
        self.error: BaseException | None = None
        self.steps: list[Step] = []
        self.value: float = 1.5

    def __call__(self) -> Steps[Entry]:
        """One call."""
        self.calls += 1
        yield from self.steps
        if self.error is not None:
            raise self.error
        words = np.array([[b"one", b""]], dtype=object)
        numbers = np.full((1, 3), self.value, dtype=np.float32)
        return Entry("digits", self.version, {"label": words, "score": numbers})


class RedisServer:
    """A redis-server process on a port of its own."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self._program = program
        self._options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> Any:
        """A plain client, to look at what is stored."""
        import redis

        return redis.Redis(port=self.port, socket_timeout=10)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    "--port",
                    str(self.port),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--unixsocket",
                    str(self.socket),
                    "--dir",
                    str(self.folder),
                    *self._options,
                ],
                stdout=log,
                stderr=log,
            )
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(64)[:1] in (b"+", b"-"):  # - asks for a password
                        return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.025)
        raise AssertionError("redis-server did not answer within 10 s")

    def kill(self) -> None:
        """End it immediately, as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop it where it is: connections stay open, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def clock() -> Clock:
    """A clock to turn by hand."""
    return Clock()


@pytest.fixture
def maker() -> Maker:
    """A call to play and to count."""
    return Maker()


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start a redis-server with further options; killed at the end."""
    program = shutil.which("redis-server")
    assert program is not None
    servers: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        server = RedisServer(program, tmp_path, *options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def redis_server(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that runs."""
    return start_redis()


@pytest.fixture
def make_cache(clock: Clock) -> Iterator[Callable[..., PredictionCache]]:
    """Make caches that live on the test's clock; closed at the end."""
    caches: list[PredictionCache] = []

    def make(**settings: Any) -> PredictionCache:
        # Far longer than the default: a busy machine must not look like a Redis that hangs.
        cache = PredictionCache(Cache(**{"redis_timeout_s": 10.0, **settings}), clock)
        caches.append(cache)
        return cache

    yield make
    for cache in caches:
        cache.close()


@pytest.fixture
def too_large() -> int:
    """Bytes of an answer that Redis is not given."""
    return LARGEST_BYTES + 1
