"""The events of calls, and their observers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tritonkit.client.log import logger
from tritonkit.client.reply import Timing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tritonkit.client.reply import Origin, Reply
    from tritonkit.client.wire.transport import Headers

__all__ = ["CallEvent", "Observer", "Observers", "Token"]


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A call that has ended; `error` is the name of its exception's class, None for an answer.

    After a failure `origin`, `endpoint` and `version` may be empty, and times may be missing (0).
    """

    model: str
    version: str = ""
    origin: Origin | str = ""
    endpoint: str = ""
    attempts: int = 0
    batch_size: int = 0
    timing: Timing = field(default_factory=lambda: Timing(0.0))
    error: str | None = None

    @classmethod
    def of(cls, reply: Reply) -> CallEvent:
        """The event of a call that was answered."""
        r = reply
        return cls(r.model, r.version, r.origin, r.endpoint, r.attempts, r.batch_size, r.timing)


class Observer(Protocol):
    """Gets the events of every call, in the thread or task that makes it: it must be quick and thread-safe.

    Its errors are logged once and do not affect calls.
    """

    def started(self, model: str) -> Any:
        """Called when a call begins; its other events get the returned value."""

    def headers(self, token: Any) -> Headers:
        """Metadata for the call's requests."""

    def finished(self, token: Any, event: CallEvent) -> None:
        """Called when the call has ended."""


Token: TypeAlias = tuple[Any, ...]
"""Results of the observers' `started`, in order; `_FAILED` for one that raised."""

_FAILED = object()


class Observers:
    """Several observers as one that never raises; false if there are none.

    Args:
        observers: called in this order.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._reported: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._observers)

    def started(self, model: str) -> Token:
        """Report that a call begins; the returned token is for the other two methods."""
        return tuple(self._notify(observer, observer.started, model) for observer in self._observers)

    def headers(self, token: Token) -> Headers:
        """The metadata of all observers, for the call's requests."""
        headers: Headers = ()
        for observer, mine in zip(self._observers, token, strict=True):
            if mine is not _FAILED:
                pairs = self._notify(observer, observer.headers, mine)
                headers += () if pairs is _FAILED else tuple(pairs)
        return headers

    def finished(self, token: Token, event: CallEvent) -> None:
        """Called when the call has ended."""
        for observer, mine in zip(self._observers, token, strict=True):
            if mine is not _FAILED:
                self._notify(observer, observer.finished, mine, event)

    def _notify(self, observer: Observer, method: Callable[..., Any], *values: Any) -> Any:
        try:
            return method(*values)
        except Exception:
            # Once: a broken observer would otherwise log at the rate of the calls.
            if id(observer) not in self._reported:
                self._reported.add(id(observer))
                logger.exception("%s failed; calls go on without it", type(observer).__name__)
            return _FAILED
