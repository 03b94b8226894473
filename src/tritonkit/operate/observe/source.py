"""The parts of Prometheus' HTTP API that panels need: series over time, alerts, scrape jobs."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from tritonkit.errors import ClientError, ServerUnavailable, UsageError

__all__ = ["Firing", "Prometheus", "Series"]

_TIMEOUT_S = 10.0
_MOST_BYTES = 32 << 20
_TODO = "start it, or name another with --prometheus"


@dataclass(frozen=True)
class Series:
    """Labels, and points (seconds since the epoch, value); the value is None where the series has a gap."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Firing:
    """An alert that fires."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Prometheus:
    """One Prometheus. For one thread at a time.

    Args:
        url: its URL, such as `http://127.0.0.1:9090`, possibly with a path.

    Raises:
        UsageError: the URL is not valid.

    Methods raise ServerUnavailable without an answer, and ClientError for a refusal or if it is not a Prometheus.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host or parts.username or parts.query:
            raise UsageError(
                f"--prometheus {url}", found="it is not the URL of a Prometheus", wanted="such as http://127.0.0.1:9090"
            )
        self.url = url.rstrip("/")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._connection = kinds[parts.scheme](host, port, timeout=_TIMEOUT_S)
        self._path = parts.path.rstrip("/")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def range(self, query: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """The result of a query over time."""
        parameters = {"query": query, "start": start_s, "end": end_s, "step": step_s}
        result = self._data("query_range", parameters).get("result", [])
        return [Series(series["metric"], _points(series["values"], step_s, end_s)) for series in result]

    def jobs(self) -> set[str]:
        """Scrape jobs that have an instance, answered or not."""
        result = self._data("query", {"query": "group by (job) (up)"}).get("result", [])
        return {series["metric"].get("job", "") for series in result}

    def firing(self) -> list[Firing]:
        """The alerts that fire now, those for a page first."""
        alerts = [alert for alert in self._data("alerts", {})["alerts"] if alert["state"] == "firing"]
        firing = [
            Firing(str(alert["labels"].get("alertname", "")), alert["labels"], alert["annotations"]) for alert in alerts
        ]
        return sorted(firing, key=lambda alert: (alert.labels.get("severity") != "page", alert.name))

    def scrape_interval_s(self) -> float | None:
        """The longest of its scrape intervals in seconds; None if it does not report any."""
        try:
            targets = self._data("targets", {"state": "active"})["activeTargets"]
            return max((_seconds(target["scrapeInterval"]) for target in targets), default=None)
        except (ClientError, KeyError, ValueError):
            return None  # an older one, or a proxy that passes queries alone

    def _data(self, what: str, parameters: Mapping[str, object]) -> dict[str, Any]:
        status, body = self._get(f"{self._path}/api/v1/{what}?{urlencode(parameters)}")
        try:
            answer = json.loads(body)
            if answer["status"] == "success":
                data: dict[str, Any] = answer["data"]
                return data
            problem = f"it refuses {what}: {answer.get('error')}"
        except (ValueError, KeyError, TypeError):
            problem = f"HTTP status {status}, and no answer of a Prometheus"
        raise ClientError(self.url, found=problem, wanted="a Prometheus", todo=_TODO)

    def _whole(self, answer: http.client.HTTPResponse) -> bytes:
        body = answer.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            self._connection.close()  # the rest would be the next answer
            raise ClientError(
                self.url,
                found=f"an answer of more than {_MOST_BYTES >> 20} MiB",
                wanted="a shorter one",
                todo="a shorter --range, or one --model",
            )
        return body

    def _get(self, path: str) -> tuple[int, bytes]:
        """Status and body; asks once more if the server had closed the connection meanwhile."""
        for again in (True, False):
            try:
                self._connection.request("GET", path)
                answer = self._connection.getresponse()
                return answer.status, self._whole(answer)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                closed = isinstance(error, http.client.RemoteDisconnected | BrokenPipeError)
                if not (again and closed):
                    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    raise ServerUnavailable(
                        self.url, found=f"no answer: {reason}", wanted="a Prometheus", todo=_TODO
                    ) from error
        raise AssertionError  # the second try ends one way or the other


def _points(values: list[list[Any]], step_s: float, end_s: float) -> tuple[tuple[float, float | None], ...]:
    """Values in the order of time. A value that is not a number is a gap, and so is a missing step, also at the end: a
    series that has ended has no value now."""
    points: list[tuple[float, float | None]] = []
    for at, text in values:
        if points and at - points[-1][0] > 1.5 * step_s:
            points.append((points[-1][0] + step_s, None))
        value = float(text)
        points.append((float(at), value if math.isfinite(value) else None))
    if points and end_s - points[-1][0] > 1.5 * step_s:
        points.append((points[-1][0] + step_s, None))
    return tuple(points)


def _seconds(text: str) -> float:
    """The seconds of a duration in Prometheus' notation, such as `1m30s` or `500ms`."""
    sizes = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    total, number, unit = 0.0, "", ""
    for character in f"{text}0":
        if character.isdigit() and unit:
            total, number, unit = total + float(number) * sizes[unit], "", ""
        if character.isdigit():
            number += character
        else:
            unit += character
    return total
