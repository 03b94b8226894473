"""What one client does about many servers and about failures: the settings, and what all calls share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from tritonkit.client.log import logger
from tritonkit.client.policy.attempts import Attempts, MakeBody, Sent
from tritonkit.client.policy.budget import RetryBudget
from tritonkit.client.policy.hedge import LatencyTracker
from tritonkit.client.policy.limiter import ConcurrencyLimiter
from tritonkit.client.policy.pool import Connect, ReplicaPool, ServerAddress
from tritonkit.client.policy.replica import Replica, ReplicaLease
from tritonkit.client.policy.resolver import REFRESH_S, Resolver, parse_name
from tritonkit.client.policy.settings import Breaker, Hedge, Limit, Retry
from tritonkit.client.steps import Invoke, Steps
from tritonkit.errors import UsageError
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["Policy"]

_HELPERS = 16
"""Threads that wait for second calls at once; what is more waits its turn."""


class Policy:
    """What happens around each call of one client; threads and tasks share it.

    Args:
        addresses: `host:port` of each server; `dns:host:port` is every server that DNS gives.
        connect: makes a transport for an address; the second argument is the name in the server's
            certificate where that is not the address's own, else None.
        retry: None: nothing is sent twice, and nothing is hedged.
        breaker: None: a server is used however often it fails.
        hedge: None: one server is asked.
        limit: None: any number of calls run at once.
        leave: the steps to take before the transport of a server that is no longer named is closed.
        refresh_s: seconds after which a DNS name is looked up again.
        clock: seconds; deadlines are its moments.
        rng: chance, for pauses and for choosing among servers.

    Raises:
        UsageError: no address, one twice, or one that is not understood.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        connect: Connect,
        retry: Retry | None = Retry(),  # noqa: B008 - frozen
        breaker: Breaker | None = Breaker(),  # noqa: B008
        hedge: Hedge | None = None,
        limit: Limit | None = Limit(),  # noqa: B008
        *,
        leave: Callable[[Any], Steps[None]] | None = None,
        refresh_s: float = REFRESH_S,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self.addresses = _checked(addresses)
        self.clock = clock
        self.rng = rng or Random()  # noqa: S311 - for spreading, not for secrets
        self.retry = retry
        self.budget = RetryBudget(retry.budget) if retry is not None else None
        self.latencies = LatencyTracker(hedge) if hedge is not None and retry is not None else None
        self.hedges = self.latencies is not None
        """Whether calls that may run twice are hedged."""
        self.helpers = ThreadPoolExecutor(
            _HELPERS, "tritonkit-hedge"
        )  # starts none before the first
        self.limiter = ConcurrencyLimiter(limit) if limit is not None else None
        self.pool = ReplicaPool(connect, breaker, self.rng)
        names = {address: parse_name(address) for address in self.addresses}
        self._fixed = tuple(ServerAddress(at) for at, name in names.items() if name is None)
        self.resolvers = tuple(
            Resolver(name, refresh_s, clock, self._serve) for name in names.values() if name
        )
        self._leave = leave
        self._closed = False
        self._serve()

    def replicas(self) -> tuple[Replica, ...]:
        """The servers that get calls now; none of a DNS name before it was looked up (`resolved`)."""
        return self.pool.replicas

    def resolved(self, deadline: float) -> Steps[tuple[Replica, ...]]:
        """`replicas`, DNS names looked up if they were not yet.

        Raises:
            ServerUnavailable: no name has an address.
        """
        yield from self._up_to_date(deadline)
        return self.pool.replicas

    def call(
        self,
        method: Method,
        body: Body | MakeBody,
        deadline: float,
        *,
        where: str,
        idempotent: bool = False,
        headers: Headers = (),
        limited: bool = True,
        replica: Replica | None = None,
    ) -> Steps[Sent]:
        """Send one message and give back the answer.

        Args:
            method: which call.
            body: the request message, or what makes it for one server's transport; a message made
                for one server is not hedged.
            deadline: when it must be over, waiting and repeating included: a moment of the clock.
            where: the model called, for messages; also what a usual latency is learned for.
            idempotent: True: it may run twice. False: it is sent again only where the server surely
                did not begin with it, and never hedged.
            headers: metadata for this call.
            limited: False: not held up by the limit of calls at once (admin calls, health).
            replica: send to this one only; None: to the one with least to do.

        Raises:
            Overloaded: no room in this client, or at the server whatever was tried.
            DeadlineExceeded: the time is over.
            CircuitOpen: every server's circuit is open; nothing was sent.
            ClientError: what the last attempt raised.
        """
        attempts = Attempts(self, method, body, deadline, where, headers, idempotent, replica)
        limiter = self.limiter if limited else None
        if limiter is None and not self.resolvers and not self.pool.retired:
            return attempts.run()
        return self._guarded(attempts, limiter)

    def _guarded(self, attempts: Attempts, limiter: ConcurrencyLimiter | None) -> Steps[Sent]:
        """The attempts, once there is a place for them and names are looked up."""
        begun = entered = self.clock()
        if limiter is not None and not limiter.try_acquire():
            yield from limiter.acquire(attempts.deadline - begun)
            entered = self.clock()
        try:
            if self.resolvers or self.pool.retired:
                yield from self._up_to_date(attempts.deadline)
            return (yield from attempts.run(entered - begun))
        finally:
            if limiter is not None:
                limiter.release(self.clock() - entered)

    def pick(self, deadline: float, *, where: str) -> Steps[ReplicaLease]:
        """A server for a stream or a sequence, counted as in flight until the lease is over.

        Raises:
            CircuitOpen: every server's circuit is open.
            DeadlineExceeded: the time is over.
            ServerUnavailable: a DNS name has no address.
        """
        yield from self._up_to_date(deadline)
        attempts = Attempts(self, "ModelInfer", (), deadline, where)
        return ReplicaLease(attempts.pick(self.clock()), self.clock)

    def may_move(self, lost: ReplicaLease) -> bool:
        """Whether what a lost server did not answer may be asked again, of the next that is picked.

        There must be another server that is well, and the settings and the budget of retries must
        allow it; the budget is charged.
        """
        if self.retry is None or self.retry.attempts < 2:
            return False
        return self.may_use_other(self.clock(), lost.replica)

    def may_use_other(self, now: float, replica: Replica) -> bool:
        """Whether another server is well and the budget allows a message to it; the budget is charged."""
        if self.budget is None or not self.pool.has_other(now, (replica,)):
            return False
        return self.budget.spend(now)

    def refresh_names(self) -> None:
        """Have the names looked up that are due, beside the calls."""
        for resolver in self.resolvers:
            resolver.refresh(self.clock())

    def close(self) -> None:
        """Close every transport; closing twice is closing once."""
        self._stop()
        for transport in self.pool.take_all():
            transport.close()

    async def aclose(self) -> None:
        """`close` for a client of tasks."""
        self._stop()
        await asyncio.gather(*(transport.close() for transport in self.pool.take_all()))

    def drop(self) -> None:
        """In a fork: let go of the copies of connections, without a lock and without a word."""
        self._closed = True
        for transport in self.pool.transports():
            transport.close()

    def _stop(self) -> None:
        self._closed = True
        self.helpers.shutdown(wait=False, cancel_futures=True)

    def _up_to_date(self, deadline: float) -> Steps[None]:
        """Look names up that are due, and close what was removed."""
        if self._closed:
            raise UsageError("client", found="it is closed", wanted="an open client")
        self.refresh_names()
        for resolver in self.resolvers:
            if not resolver.servers and not self.pool.replicas:
                yield from resolver.answered(deadline - self.clock())
        if not self.pool.replicas:
            raise self.resolvers[0].failure()
        if self.pool.retired:
            yield from self._close_retired()

    def _close_retired(self) -> Steps[None]:
        """Close transports of servers that are no longer named; errors are logged."""
        for transport in self.pool.take_retired():
            if self._leave is not None:
                yield from self._leave(transport)
            try:
                yield Invoke(transport.close)
            except Exception:
                logger.debug("closing %s failed", transport, exc_info=True)

    def _serve(self) -> None:
        found = (server for resolver in self.resolvers for server in resolver.servers)
        self.pool.serve((*self._fixed, *found))


def _checked(addresses: Sequence[str]) -> tuple[str, ...]:
    found = tuple(addresses)
    if isinstance(addresses, str) or not found or len(set(found)) < len(found):
        raise UsageError(
            "addresses", found=repr(addresses), wanted="a list of one or more addresses, each once"
        )
    return found
