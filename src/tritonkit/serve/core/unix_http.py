"""HTTP over a unix socket: Triton's own API, which only the owner of its folder can reach."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .flags import HTTP_SOCKET
from .keys import HEADER

__all__ = ["Admin", "UnixConnection"]


class UnixConnection(http.client.HTTPConnection):
    """A connection to the unix socket `folder/name`, however long the folder's path is."""

    def __init__(self, folder: Path, name: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._folder, self._name = folder, name

    def connect(self) -> None:
        """Connect through the folder's descriptor, because a socket's path can have at most 107 characters."""
        descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{descriptor}/{self._name}")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.close(descriptor)


class Admin:
    """Triton's HTTP API with the admin key, on the socket in a run's folder.

    Args:
        folder: the server's working directory.
        key: the run's admin key.
        timeout_s: time limit of each call.

    All methods but `answers` raise OSError or HTTPException if there is no answer, or a refusal with Triton's
    reason; and ValueError for a malformed answer.
    """

    def __init__(self, folder: Path, key: str, timeout_s: float = 5.0) -> None:
        self._folder, self._key, self._timeout_s = folder, key, timeout_s

    def answers(self, path: str) -> bool:
        """Whether a GET is answered with status 200, such as `/v2/health/ready`."""
        try:
            return self._status("GET", path)[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def version(self) -> str:
        """Triton's version."""
        return str(json.loads(self._checked("GET", "/v2"))["version"])

    def load(self, model: str, config: str = "") -> None:
        """Load a model's newest versions; returns when they are ready.

        Args:
            config: a configuration as JSON, in place of the one in the model's folder, for this load.
        """
        body = json.dumps({"parameters": {"config": config}}) if config else ""
        self._checked("POST", f"/v2/repository/models/{quote(model, safe='')}/load", body)

    def unload(self, model: str) -> None:
        """Accept no new requests for a model; those in flight are answered (`index` shows it until then)."""
        self._checked("POST", f"/v2/repository/models/{quote(model, safe='')}/unload")

    def is_decoupled(self, model: str) -> bool:
        """Whether a model answers a request with a stream of any number of responses."""
        config = json.loads(self._checked("GET", f"/v2/models/{quote(model, safe='')}/config"))
        return bool(config.get("model_transaction_policy", {}).get("decoupled"))

    def index(self) -> list[dict[str, Any]]:
        """The name, version, state and reason of each model."""
        answer = json.loads(self._checked("POST", "/v2/repository/index"))
        return [entry for entry in answer if isinstance(entry, dict)]

    def _checked(self, method: str, path: str, body: str = "") -> bytes:
        status, answer = self._status(method, path, body)
        if status != http.client.OK:
            raise http.client.HTTPException(_reason(answer) or f"{path}: status {status}")
        return answer

    def _status(self, method: str, path: str, body: str = "") -> tuple[int, bytes]:
        connection = UnixConnection(self._folder, HTTP_SOCKET, self._timeout_s)
        try:
            connection.request(method, path, body or None, headers={HEADER: self._key})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _reason(answer: bytes) -> str:
    """Triton's reason for a refusal; empty if it gave none."""
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
