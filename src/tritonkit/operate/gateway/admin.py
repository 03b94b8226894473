"""Envoy's own interface, on a socket in its working directory that only its owner can reach."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from pathlib import Path
from urllib.parse import quote

from tritonkit.serve.core.unix_http import UnixConnection

__all__ = ["GatewayAdmin"]

_CALL_S, _PAUSE_S = 2.0, 0.05


class GatewayAdmin:
    """The interface of the gateway that runs in a folder.

    Args:
        folder: the gateway's working directory.
        name: the socket's name in that folder.
    """

    def __init__(self, folder: Path, name: str = "admin.sock") -> None:
        self._folder, self._name = folder, name

    def ready(self) -> bool:
        """Whether the gateway serves."""
        return self._ask("GET", "/ready")[0] == http.client.OK

    def active_requests(self) -> int:
        """Number of callers' requests that are under way; 0 without a gateway."""
        return self.stat("http.gateway.downstream_rq_active") or 0

    def healthy(self, cluster: str) -> int:
        """Number of a cluster's servers that get requests; 0 without such a cluster, or without a gateway."""
        return self.stat(f"cluster.{cluster}.membership_healthy") or 0

    def active_of(self, cluster: str) -> int:
        """Number of requests under way at a cluster; 0 without such a cluster, or without a gateway."""
        return self.stat(f"cluster.{cluster}.upstream_rq_active") or 0

    def taken(self) -> int | None:
        """Number of route configurations accepted since the start; None if the gateway does not answer."""
        return self.stat("http.gateway.rds.gateway.update_success")

    def rejected(self) -> int | None:
        """Number of route configurations rejected since the start; None if the gateway does not answer."""
        return self.stat("http.gateway.rds.gateway.update_rejected")

    def undecided(self) -> int | None:
        """Number of requests that passed because the service of shared rates gave no decision; None if the gateway does
        not answer."""
        return self.stat(r"cluster\..*\.ratelimit\.failure_mode_allowed")

    def stat(self, name: str) -> int | None:
        """Value of a counter or gauge; 0 if it does not exist, None if the gateway does not answer."""
        status, text = self._ask("GET", f"/stats?filter=^{quote(name)}$&format=json")
        if status != http.client.OK:
            return None
        return sum(int(counter["value"]) for counter in json.loads(text)["stats"] if "value" in counter)

    def unwritten(self) -> int | None:
        """Number of failed writes of its logs since the start; None if the gateway does not answer."""
        return self.stat("filesystem.write_failed")

    def rotate(self, log: Path, most_bytes: int, kept: int) -> None:
        """Begin a new log if this one is too long. The previous one becomes `log.1`; older ones go up to `log.KEPT`."""
        try:
            if log.stat().st_size < most_bytes:
                return
        except OSError:
            return
        for number in range(kept, 0, -1):
            older = log.with_name(f"{log.name}.{number - 1}") if number > 1 else log
            with contextlib.suppress(OSError):
                older.replace(log.with_name(f"{log.name}.{number}"))
        self.reopen_logs()

    def reopen_logs(self) -> None:
        """Close the files of its logs and open those that have their names now."""
        self._ask("POST", "/reopen_logs")

    def leave(self) -> None:
        """Make it unready: open connections are asked to end with their next answer, new ones are accepted."""
        self._ask("POST", "/healthcheck/fail")

    def drain(self, most_s: float) -> None:
        """Take no new connections, and wait at most `most_s` seconds for requests that are under way."""
        self.leave()
        self._ask("POST", "/drain_listeners")
        deadline = time.monotonic() + most_s
        while self.active_requests() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def _ask(self, method: str, path: str) -> tuple[int, str]:
        """Status and answer; status 0 if the gateway does not answer."""
        connection = UnixConnection(self._folder, self._name, _CALL_S)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            with contextlib.suppress(OSError):
                connection.close()
