"""The one thing a client needs of a wire: carry a message there, bring the answer, in time.

Everything between a client and its servers fits behind this protocol, so a transport may also wrap
others: one that retries, one that spreads calls over replicas, one that answers from memory.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from tritonkit.errors import DeadlineExceeded, UsageError

__all__ = ["LONGEST_TIMEOUT_S", "Deadline", "Method", "Transport"]

Method: TypeAlias = Literal[
    "ModelConfig",
    "ModelInfer",
    "ModelMetadata",
    "ModelReady",
    "ModelStatistics",
    "RepositoryIndex",
    "ServerLive",
    "ServerMetadata",
    "ServerReady",
]
"""Names of unary calls in Triton's `inference.GRPCInferenceService`."""

LONGEST_TIMEOUT_S = 31 * 24 * 3600.0
"""A month: longer is a mistake in units, and would overflow the wire's clocks."""


class Transport(Protocol):
    """Carries unary calls; safe to share between threads."""

    @property
    def address(self) -> str:
        """Where calls go, for messages."""

    def call(self, method: Method, request: Any, timeout_s: float) -> Any:
        """Send a request message and give back the response message.

        Args:
            method: which call; `request` is its message, such as a `ModelInferRequest`.
            timeout_s: seconds to wait for the answer.

        Raises:
            ClientError: a branch of it; no other library's error passes.
        """

    def close(self) -> None:
        """Free the connection; closing twice is closing once."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment until which one public call may take, however many messages it sends."""

    where: str
    timeout_s: float
    started: float

    @classmethod
    def after(cls, timeout_s: float, where: str) -> Deadline:
        """`timeout_s` seconds from now; a `UsageError` unless above 0 and under a month."""
        if not 0 < timeout_s <= LONGEST_TIMEOUT_S or math.isnan(timeout_s):
            raise UsageError(
                where,
                found=f"timeout_s={timeout_s}",
                wanted=f"seconds above 0 and at most {LONGEST_TIMEOUT_S:.0f}",
            )
        return cls(where, timeout_s, time.perf_counter())

    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return time.perf_counter() - self.started

    def left_s(self) -> float:
        """Seconds left, above 0; `DeadlineExceeded` when there are none."""
        left = self.timeout_s - self.elapsed_s()
        if left <= 0:
            raise DeadlineExceeded(
                self.where,
                found=f"nothing left of timeout_s={self.timeout_s} before the request was sent",
                todo="allow more time",
            )
        return left
