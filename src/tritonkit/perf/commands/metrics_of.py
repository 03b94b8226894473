"""The option `--metrics`: addresses of the metrics of servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tritonkit.errors import UsageError

__all__ = ["metrics_of"]


def metrics_of(project: Path, addresses: Sequence[str], metrics: str | None) -> dict[str, str]:
    """Metrics addresses by gRPC address: as `--metrics` says, else those of the project's running servers.

    Raises:
        UsageError: they are not one address for each server.
    """
    from tritonkit.serve.runs import find_metrics

    own = {address: place for address in addresses if (place := find_metrics(project, address)) is not None}
    if metrics is None:
        return own
    places = [part.strip() for part in metrics.split(",")]
    if len(places) != len(addresses) or not all(map(_is_address, places)):
        raise UsageError("--metrics", found=repr(metrics), wanted=f"host:port for each of {len(addresses)} servers")
    return own | dict(zip(addresses, places, strict=True))


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 1 << 16
