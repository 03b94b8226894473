"""Stacks on real Tritons, and callers that load them."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import PROJECT
from tests.ports import free_port
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import TLS, Client
from tritonkit.errors import TritonkitError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.keys import add_key
from tritonkit.operate.stack import Stack, StackPart, StackSettings
from tritonkit.serve.core.unix_http import UnixConnection

IMAGE = (PROJECT / "models" / "digits" / "examples" / "seven.png").read_bytes()
CALLERS = 8


class Watched:
    """A stack that a thread watches over, and who may call it.

    Args:
        root: a folder that becomes its project.
        spec: of its gateway.yaml, in addition to the port.
        settings: of the stack.
    """

    def __init__(self, root: Path, repository: Path, spec: str = "", **settings: Any) -> None:
        self.root, self.gateway = root, root / "deploy" / "gateway"
        (root / "models").mkdir(exist_ok=True)
        (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
        make_certificates(self.gateway / "tls", ["localhost", "127.0.0.1"])
        (self.gateway / "gateway.yaml").write_text(f"port: {free_port()}\n{spec}")
        _, self.key = add_key(self.gateway / "keys.json", "all")
        self.messages: list[str] = []
        made = StackSettings(
            root,
            repository,
            gateway=self.gateway,
            on_event=lambda event: self.messages.append(f"{event.part}: {event.message}"),
            **settings,
        )
        self.stack = Stack(made).__enter__()
        self._thread = threading.Thread(target=self.stack.watch)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self.stack.ending.set()
        self._thread.join()
        self.stack.stop()

    def client(self, key: str = "", **options: Any) -> Client:
        """One with its defaults."""
        tls = TLS(ca=str(self.gateway / "tls" / "ca.crt"))
        return Client(f"grpcs://{self.stack.address}", tls=tls, api_key=key or self.key, **options)

    def runs_again(self, before: StackPart) -> bool:
        """Whether a part is ready as another process."""
        now = self.part(before.name)
        return now.state == "ready" and now.pid != before.pid

    def part(self, name: str) -> StackPart:
        """A part in its present state."""
        return next(part for part in self.stack.parts if part.name == name)

    def stat(self, name: str) -> int:
        """One of the numbers that the gateway's Envoy says of itself."""
        connection = UnixConnection(self.root / ".tritonkit" / "stack" / "gateway", "admin.sock", PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("GET", f"/stats?filter=^{name}$&format=json")
            stats = json.loads(connection.getresponse().read())["stats"]
        return sum(int(stat["value"]) for stat in stats if "value" in stat)

    def healthy(self) -> int:
        """Replicas that the gateway sends to."""
        return self.stat("cluster.grpc.membership_healthy")

    def get(self, path: str, data: bytes | None = None) -> tuple[Any, dict[str, str]]:
        """JSON and headers of an answer over REST."""
        context = ssl.create_default_context(cafile=str(self.gateway / "tls" / "ca.crt"))
        headers = {"x-api-key": self.key, "Content-Type": "application/json"}
        request = urllib.request.Request(f"https://{self.stack.address}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return json.loads(answer.read() or b"null"), dict(answer.headers)


def seven(client: Client) -> None:
    """One call with a right answer."""
    assert client.model("digits").predict(image=IMAGE)["label"][0, 0] == b"7"


class Load:
    """Callers that call until they are told to stop; a context manager.

    Args:
        call: what each does; by default a call of digits.
        pause_s: after each call.
        options: of the client that they share.
    """

    def __init__(
        self, watched: Watched, call: Callable[[Client], object] = seven, *, pause_s: float = 0.0, **options: Any
    ) -> None:
        self._watched, self._one, self._pause_s, self._options = watched, call, pause_s, options
        self.answers, self.failures = 0, list[str]()
        self._over = threading.Event()

    def __enter__(self) -> Load:
        self._client = self._watched.client(**self._options)
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()
        eventually(lambda: self.answers > 2 * CALLERS, "first answers")
        return self

    def __exit__(self, *_: object) -> None:
        # What was done to the stack is seen by calls after it.
        before = self.answers
        eventually(lambda: self.answers + len(self.failures) > before + 20 * CALLERS, "more answers")
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def took(self, answer: object) -> None:
        """Count what a call gave."""
        self.answers += 1

    def _call(self) -> None:
        while not self._over.wait(self._pause_s):
            try:
                self.took(self._one(self._client))
            except (TritonkitError, AssertionError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
