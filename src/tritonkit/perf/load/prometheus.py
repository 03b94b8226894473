"""A server's metrics in Prometheus' text format, as samples."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["MetricSample", "parse_samples", "read_samples"]

_TIMEOUT_S = 2.0
_MOST_BYTES = 16 << 20
_SAMPLE = re.compile(r"^(\w+)\{(.*)\}\s+(\S+)$", re.MULTILINE)
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')


class MetricSample(NamedTuple):
    """A metric's value for its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(address: str) -> list[MetricSample]:
    """Ask a server for its metrics.

    Raises:
        OSError, ValueError: the server does not answer, or its answer is not metrics.
    """
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode(errors="replace")
    except http.client.HTTPException as error:
        raise ValueError(f"no HTTP: {type(error).__name__}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"HTTP status {answer.status}")
    return parse_samples(text)


def parse_samples(text: str) -> list[MetricSample]:
    """Read Prometheus' text format; metrics without labels are left out."""
    return [
        MetricSample(name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(text)
    ]
