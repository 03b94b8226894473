"""One server held for longer than a message: a stream, a sequence."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from tritonkit.client.policy.pool import Pool
from tritonkit.client.policy.replica import Attempt

__all__ = ["Lease"]


class Lease:
    """A server and its transport; end it with `finish`, or use it as a context manager."""

    def __init__(self, pool: Pool, attempt: Attempt, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._attempt: Attempt | None = attempt
        self._clock = clock
        self.replica = attempt.replica
        self.address = attempt.replica.address
        self.transport: Any = attempt.replica.transport

    def keep(self) -> None:
        """Only hold the server from now on: calls of their own will tell how it is."""
        if self._attempt is not None:
            self._attempt = self._pool.kept(self._attempt, self._clock())

    def answered(self) -> None:
        """The server has answered; the lease goes on."""
        if self._attempt is not None:
            self._attempt = self._pool.answered(self._attempt, self._clock())

    def finish(self, error: BaseException | None = None) -> None:
        """It is over, answered or with this error; finishing twice is finishing once.

        A lease's duration says nothing about how quick the server is, and is not measured.
        """
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._pool.released(attempt, self._clock(), error)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish(error)
