"""Processes next to the replicas, started for real."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis as library
import yaml

from tests.conftest import PROJECT
from tritonkit.operate.stack import StackSettings, companions

pytestmark = pytest.mark.needs("redis")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[companions.Companion]:
    """The one of `tritonkit up`."""
    made = companions.redis(StackSettings(tmp_path, tmp_path), tmp_path / "redis")
    assert isinstance(made, companions.Companion)
    made.wait_ready()
    yield made
    made.stop()


def test_redis_serves_its_owner_and_takes_no_commands_that_manage_it(
    redis: companions.Companion, tmp_path: Path
) -> None:
    """Reading, writing and scripts work at its socket; no other user reaches it, and nobody changes it."""
    client = library.Redis.from_url(redis.address)
    assert client.set("name", b"value", px=60_000)
    assert client.get("name") == b"value"
    assert client.eval("return redis.call('GET', KEYS[1])", 1, "name") == b"value"
    for command in ("REPLICAOF 127.0.0.1 1", "SAVE", "SHUTDOWN", "FLUSHALL", "CONFIG GET dir"):
        with pytest.raises(library.exceptions.NoPermissionError):
            client.execute_command(*command.split())
    client.close()
    assert stat.S_IMODE((tmp_path / "redis").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "redis" / "redis.sock").stat().st_mode) == 0o600


def test_redis_listens_on_no_port(redis: companions.Companion) -> None:
    """Its only socket that listens is the unix one."""
    sockets = set()
    for path in Path(f"/proc/{redis.part().pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # Redis opens and closes files meanwhile
            sockets.add(path.readlink().name)
    assert any(name.startswith("socket:") for name in sockets)
    inodes = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    assert not [line for line in inodes[1:] if f"socket:[{line[9]}]" in sockets]


def test_the_redis_of_compose_refuses_the_same_commands() -> None:
    """Its user is that of `tritonkit up`."""
    stack = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
    command = stack["services"]["redis"]["command"]
    assert command[command.index("--user") :] == list(companions.REDIS_USER)


def test_a_socket_with_too_long_a_path_is_not_tried(tmp_path: Path) -> None:
    """Clients could not reach it; the rest of the stack is started without."""
    reason = companions.redis(StackSettings(tmp_path, tmp_path), tmp_path / ("long" * 30))
    assert isinstance(reason, str)
    assert "more than 107 bytes" in reason
