"""Triton's Prometheus metrics, as far as its statistics over gRPC lack them: what waits now, what was refused."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping

__all__ = ["parse_metrics", "read_metrics"]

_TIMEOUT_S = 2.0
_MOST_BYTES = 16 << 20
_SAMPLE = re.compile(r"^(\w+)\{(.*)\}\s+(\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PENDING = "nv_inference_pending_request_count"
_FAILED = "nv_inference_request_failure"


def read_metrics(address: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Requests that wait, and those refused by a full queue since ever, by model.

    Raises:
        OSError, ValueError: it does not answer, or not with metrics.
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
    return parse_metrics(text)


def parse_metrics(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """The same out of Prometheus' text format; versions of a model are added up."""
    pending: dict[str, float] = {}
    rejected: dict[str, float] = {}
    for name, written, value in _SAMPLE.findall(text):
        labels = dict(_LABEL.findall(written))
        model = labels.get("model", "")
        into = pending if name == _PENDING else None
        if name == _FAILED and labels.get("reason") == "REJECTED":
            into = rejected
        if into is not None and model:
            into[model] = into.get(model, 0.0) + float(value)
    return pending, rejected
