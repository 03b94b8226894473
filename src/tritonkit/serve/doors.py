"""What stands between the network and the sockets of a server: the metrics' door."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonkit.serve.core.metrics import MetricsDoor
from tritonkit.serve.ports import refusal

if TYPE_CHECKING:
    from tritonkit.serve.start import Run
    from tritonkit.serve.values import Ports

__all__ = ["Doors"]


class Doors:
    """The open doors of a run; they outlive the server's restarts.

    Args:
        run: whose sockets they lead to.
        ports: where to listen; none of them 0, but for a door that is not asked for.

    Raises:
        ServerStartError, UsageError: one cannot listen there.
    """

    def __init__(self, run: Run, ports: Ports) -> None:
        host = run.settings.host
        try:
            self._metrics = MetricsDoor(host, ports.metrics, run.folder)
        except OSError as error:
            raise refusal(host, ports.metrics, error) from error
        self._metrics.start()

    def look(self) -> None:
        """Mend what has broken; called every tick."""

    def close(self) -> None:
        """Listen no more."""
        self._metrics.close()
