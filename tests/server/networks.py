"""Networks of their own on this machine, each with a cable to it that can be cut."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import PROJECT
from tests.parts import program
from tests.waiting import eventually
from tritonkit.client import Client

__all__ = ["Network", "network", "run", "served_in"]


def run(*words: str) -> None:
    """A command that must do what it says."""
    subprocess.run([str(program(words[0])), *words[1:]], check=True, capture_output=True)


@dataclass(frozen=True)
class Network:
    """One of them: its name, its device for the cable, and its address there."""

    name: str
    device: str
    address: str

    def cut(self) -> None:
        """Cut the machine off as a power failure would: it sends nothing any more, not even a refusal."""
        for chain in ("INPUT", "OUTPUT"):
            self._iptables("-I", chain)

    def mend(self) -> None:
        """It is there again."""
        for chain in ("INPUT", "OUTPUT"):
            self._iptables("-D", chain)

    def _iptables(self, *words: str) -> None:
        run("ip", "netns", "exec", self.name, str(program("iptables")), "-w", *words, "-j", "DROP")


@contextlib.contextmanager
def network(number: int = 0) -> Iterator[Network]:
    """One with addresses that are for tests (RFC 2544)."""
    unique = f"{os.getpid()}x{number}"
    name, ours, theirs = f"tk{unique}", f"tka{unique}", f"tkb{unique}"
    here, there = (f"198.18.77.{4 * number + end}" for end in (1, 2))
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        run("ip", "address", "add", f"{here}/30", "dev", ours)
        run("ip", "link", "set", ours, "up")
        for words in (f"address add {there}/30 dev {theirs}", f"link set {theirs} up", "link set lo up"):
            run("ip", "-n", name, *words.split())
        yield Network(name, theirs, there)
    finally:
        run("ip", "netns", "delete", name)


@contextlib.contextmanager
def served_in(net: Network, root: Path, repository: Path, model: str) -> Iterator[str]:
    """A real server there that is ready; its `host:port` for gRPC."""
    root.mkdir(exist_ok=True)
    (root / "models").mkdir()
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    words = [
        str(program("ip")),
        "netns",
        "exec",
        net.name,
        sys.executable,
        "-m",
        "tritonkit.cli",
        "serve",
        "--repository",
        str(repository),
        "--root",
        str(root),
        "--host",
        net.address,
        "--grpc-port",
        "8001",
        "--metrics-port",
        "8002",
    ]
    log, address = root / "serve.log", f"{net.address}:8001"
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as process:
        try:

            def ready() -> bool:
                assert process.poll() is None, log.read_text()
                with Client(address, retry=None, breaker=None) as client:
                    return client.is_ready(model)

            eventually(ready, "the server in its network")
            yield address
        finally:
            process.terminate()
            process.wait(90)
