"""The one thing a client needs of a wire: carry a message there, bring the answer, in time.

Everything between a client and its servers fits behind this protocol, so a transport may also wrap
others: one that retries, one that spreads calls over replicas, one that answers from memory.
"""

from __future__ import annotations

import time
from typing import Any, Literal, Protocol, TypeAlias

from tritonkit.errors import DeadlineExceeded, UsageError

__all__ = ["LONGEST_TIMEOUT_S", "Method", "Transport", "checked_timeout", "time_left"]

Method: TypeAlias = Literal[
    "ModelConfig",
    "ModelInfer",
    "ModelMetadata",
    "ModelReady",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
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


def checked_timeout(timeout_s: float, where: str) -> float:
    """`timeout_s`, if it is above 0 and at most a month; else a `UsageError`."""
    # Written so that NaN, which compares with nothing, is refused too.
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise UsageError(
            where,
            found=f"timeout_s={timeout_s}",
            wanted=f"seconds above 0 and at most {LONGEST_TIMEOUT_S:.0f}",
        )
    return timeout_s


def time_left(started: float, timeout_s: float, model: str) -> float:
    """Seconds left of a call's time, above 0; `DeadlineExceeded` when there are none.

    Args:
        started: `time.perf_counter()` when the call began; it may send several messages.
        timeout_s: seconds the whole call may take.
        model: the model called, for the message.
    """
    left = started + timeout_s - time.perf_counter()
    if left <= 0:
        raise DeadlineExceeded(
            f"model {model}",
            found=f"nothing left of timeout_s={timeout_s} before the request was sent",
            todo="allow more time",
        )
    return left
