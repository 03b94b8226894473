"""A user's settings: retries, circuit breakers, hedging, and bounds on concurrent calls."""

from __future__ import annotations

from dataclasses import dataclass

from tritonkit.client.checks import check_setting, is_whole

__all__ = ["Breaker", "Hedge", "Limit", "Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """Try a call again after `ServerUnavailable` and `Overloaded`, and after nothing else.

    This applies only if the server certainly did not begin with it (`unprocessed` of the error), or if the call is
    declared `idempotent`.

    Attributes:
        attempts: most messages of one call, the first included.
        budget: extra messages (retries and hedges) for each answered call, shared by the whole
            client: 0.1 is at most 10 % more load. A client starts with ten.
        first_s: seconds; the first pause is drawn evenly from 0 to this, and the range doubles with each pause.
        longest_s: upper end of that range, in seconds.
    """

    attempts: int = 3
    budget: float = 0.1
    first_s: float = 0.02
    longest_s: float = 1.0

    def __post_init__(self) -> None:
        check_setting(self, "attempts", is_whole(self.attempts, 1), "a whole number from 1")
        check_setting(self, "budget", 0 <= self.budget <= 1, "a share from 0 to 1, such as 0.1")
        check_setting(self, "first_s", 0 <= self.first_s < float("inf"), "seconds from 0")
        check_setting(self, "longest_s", self.first_s <= self.longest_s < float("inf"), "first_s or more")


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stop calling a server that fails too often, and test carefully whether it is back.

    Attributes:
        window_s: seconds back over which failures are counted.
        least_calls: fewest answered or failed calls in the window for a decision.
        failure_rate: the share of failures, above 0 and at most 1, at which calls to the server stop.
        open_s: seconds without calls to it.
        probes: most concurrent calls to it after that. The same number must be answered before it is
            used as before, and one failure stops calls again. A stream is answered with its first message.
        probe_s: seconds after which a call that has not ended gives up its place as a probe to another.
    """

    window_s: float = 10.0
    least_calls: int = 20
    failure_rate: float = 0.5
    open_s: float = 2.0
    probes: int = 2
    probe_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("window_s", "open_s", "probe_s"):
            check_setting(self, name, 0 < getattr(self, name) < float("inf"), "seconds above 0")
        check_setting(self, "least_calls", is_whole(self.least_calls, 1), "a whole number from 1")
        check_setting(self, "failure_rate", 0 < self.failure_rate <= 1, "a share above 0 and at most 1")
        check_setting(self, "probes", is_whole(self.probes, 1), "a whole number from 1")


@dataclass(frozen=True, slots=True)
class Hedge:
    """Ask a second server when the first is slower than usual; the first answer wins.

    It needs two servers, uses `Retry`'s budget, and applies only to calls that are declared
    `idempotent`, because a hedged call runs twice.

    Attributes:
        percentile: the share of recent calls that were faster than the time waited.
        least_calls: answered calls of the same model before anything is hedged.
    """

    percentile: float = 0.95
    least_calls: int = 100

    def __post_init__(self) -> None:
        check_setting(self, "percentile", 0 < self.percentile < 1, "a share between 0 and 1, such as 0.95")
        check_setting(self, "least_calls", is_whole(self.least_calls, 1), "a whole number from 1")


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds on the calls that one client has under way, and on those that wait their turn.

    Attributes:
        in_flight: calls sent and not yet answered.
        waiting: calls that wait for a place, first come first served; one more is `Overloaded`.
    """

    in_flight: int = 256
    waiting: int = 4096

    def __post_init__(self) -> None:
        check_setting(self, "in_flight", is_whole(self.in_flight, 1), "a whole number from 1")
        check_setting(self, "waiting", is_whole(self.waiting, 0), "a whole number from 0")
