"""One client's handling of several servers and of failures: the settings, and the state that all calls share."""

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
from tritonkit.client.policy.pool import Connect, ReplicaPool
from tritonkit.client.policy.replica import Attempt, Replica
from tritonkit.client.policy.resolver import REFRESH_S, Resolver, parse_name
from tritonkit.client.policy.settings import Breaker, Hedge, Limit, Retry
from tritonkit.client.steps import Invoke, Steps
from tritonkit.client.wire.transport import Body, Headers, Method
from tritonkit.errors import UsageError

__all__ = ["Policy"]

_HELPERS = 16  # threads that wait for second calls; further ones queue

_ONCE = Retry(attempts=1, budget=0.0)


class Policy:
    """Choices around each call of one client; threads and tasks share it.

    Args:
        addresses: `host:port` of each server; `dns:host:port` is every server that DNS gives.
        connect: makes a transport for an address.
        retry: None: nothing is sent twice, and nothing is hedged.
        breaker: None: a server is used however often it fails.
        hedge: None: one server is asked.
        limit: None: any number of calls run concurrently.
        leave: steps before closing the transport of a server that DNS no longer names.
        refresh_s: seconds after which a DNS name is looked up again.
        clock: seconds; deadlines are its moments.
        rng: chance, for pauses and for choosing among servers.

    Raises:
        UsageError: no address, a repeated one, or one that cannot be read.
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
        self.addresses = listed = tuple(addresses)
        if isinstance(addresses, str) or not listed or len(set(listed)) < len(listed):
            expected = "a list of one or more addresses, each once"
            raise UsageError("addresses", found=repr(addresses), wanted=expected)
        self.clock = clock
        self.rng = rng or Random()  # noqa: S311 - for spreading, not for secrets
        self.retry = retry or _ONCE
        self.budget = RetryBudget(self.retry.budget)
        self.latencies = LatencyTracker(hedge) if hedge is not None and retry is not None else None
        """None: nothing is hedged."""
        self.helpers = ThreadPoolExecutor(_HELPERS, "tritonkit-hedge")  # starts when it is used
        self.limiter = ConcurrencyLimiter(limit) if limit is not None else None
        self.answered: set[str] = set()
        """The models that have answered."""
        self.pool = ReplicaPool(connect, breaker, self.rng)
        names = {address: parse_name(address) for address in self.addresses}
        self._fixed: dict[str, str | None] = {at: None for at in names if names[at] is None}
        self.resolvers = tuple(Resolver(name, refresh_s, clock, self._serve) for name in names.values() if name)
        self._leave = leave
        self._serve()

    def _serve(self) -> None:
        servers = dict(self._fixed)
        for resolver in self.resolvers:
            servers.update(resolver.servers)
        self.pool.serve(servers)

    def call(
        self,
        method: Method,
        body: Body | MakeBody,
        deadline: float,
        *,
        where: str,
        idempotent: bool = False,
        headers: Headers = (),
        replica: Replica | None = None,
    ) -> Steps[Sent]:
        """Send one message and return the answer.

        Args:
            method: the name of the call.
            body: the request message, or a function that makes it for one server's transport (never hedged).
            deadline: the moment of the clock by which it must be over, waiting and retries included.
            where: the called model, for messages and for learning its usual latency.
            idempotent: True: it may run twice. False: it is sent again only if the server certainly
                did not begin with it, and never hedged.
            headers: metadata for this call.
            replica: send only to this one; None: to the least busy one.

        Raises:
            Overloaded: no room in this client, or at the servers after all attempts.
            DeadlineExceeded: the time is over.
            CircuitOpen: every server's circuit is open; nothing was sent.
            ClientError: the last attempt's error.
        """
        attempts = Attempts(self, method, body, deadline, where, headers, idempotent, replica)
        limiter = self.limiter if method == "ModelInfer" else None  # admin calls pass by the line
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
                yield from self.resolved(attempts.deadline)
            return (yield from attempts.run(entered - begun))
        finally:
            if limiter is not None:
                limiter.release(self.clock() - entered)

    def pick(self, deadline: float, *, where: str) -> Steps[Attempt]:
        """A server for a stream or a sequence, counted as in flight until the attempt is ended.

        Raises:
            CircuitOpen: every server's circuit is open.
            DeadlineExceeded: the time is over.
            ServerUnavailable: a DNS name has no address.
        """
        yield from self.resolved(deadline)
        attempt = Attempts(self, "ModelInfer", (), deadline, where).pick(self.clock())
        attempt.kind = "stream"
        return attempt

    def resolved(self, deadline: float) -> Steps[tuple[Replica, ...]]:
        """The servers that get calls now, after due look-ups of DNS names and the closing of removed servers.

        Raises:
            ServerUnavailable: no name has an address.
        """
        if self.pool.closed:
            raise UsageError("client", found="it is closed", wanted="an open client")
        self.refresh_names()
        for resolver in self.resolvers:
            if not resolver.servers and not self.pool.replicas:
                yield from resolver.answered.wait_for(deadline - self.clock())
        if not self.pool.replicas:
            raise self.resolvers[0].failure()
        for transport in self.pool.take_retired() if self.pool.retired else ():
            if self._leave is not None:
                yield from self._leave(transport)
            try:
                yield Invoke(transport.close)
            except Exception:
                logger.debug("closing %s failed", transport, exc_info=True)
        return self.pool.replicas

    def refresh_names(self) -> None:
        """Start the look-ups of names that are due, without delaying calls."""
        for resolver in self.resolvers:
            resolver.refresh(self.clock())

    def may_use_other(self, now: float, tried: tuple[Replica, ...]) -> bool:
        """Whether another server is healthy, and settings and budget allow a message to it; charges the budget."""
        return self.retry.attempts > 1 and self.pool.has_other(now, tried) and self.budget.spend(now)

    def close(self) -> None:
        """Close every transport; closing twice is closing once."""
        self.helpers.shutdown(wait=False, cancel_futures=True)
        for transport in self.pool.take_all():
            transport.close()

    async def aclose(self) -> None:
        """`close` for an asyncio client."""
        self.helpers.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(transport.close() for transport in self.pool.take_all()))

    def drop(self) -> None:
        """In a forked child: drop inherited connections without taking locks or notifying the server."""
        self.pool.closed = True
        for transport in self.pool.transports():
            transport.close()
