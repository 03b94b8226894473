"""One call from the client's door to an answer: its place, its server, again or not, in its time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from tritonkit.client.policy.alarm import Alarm
from tritonkit.client.policy.attempts import Call, MakeBody, Sent, Shared
from tritonkit.client.policy.budget import Budget
from tritonkit.client.policy.gate import Gate
from tritonkit.client.policy.hedge import Latencies
from tritonkit.client.policy.lease import Lease
from tritonkit.client.policy.pool import Connect, Pool, Target
from tritonkit.client.policy.replica import Replica
from tritonkit.client.policy.resolve import REFRESH_S, LookUp, Watch, parse_name
from tritonkit.client.policy.settings import Breaker, Hedge, Limit, Retry
from tritonkit.client.steps import Steps
from tritonkit.errors import UsageError
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["Policy"]

_log = logging.getLogger("tritonkit")


class Policy:
    """What one client does about many servers and about failures; threads and tasks share it.

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
        self._clock = clock
        self._leave = leave
        self._closed = False
        rng = rng or Random()  # noqa: S311 - for spreading, not for secrets
        self._pool = Pool(connect, breaker, rng)
        self._gate = Gate(limit) if limit is not None else None
        names = {address: parse_name(address) for address in self.addresses}
        self._fixed = tuple(Target(address) for address, name in names.items() if name is None)
        self._watches = tuple(
            Watch(name, refresh_s, clock, self._serve) for name in names.values() if name
        )
        self._shared = Shared(
            addresses=self.addresses,
            pool=self._pool,
            retry=retry,
            budget=Budget(retry.budget) if retry is not None else None,
            latencies=Latencies(hedge) if hedge is not None and retry is not None else None,
            alarm=Alarm(),
            watches=self._watches,
            clock=clock,
            rng=rng,
        )
        self._serve()

    @property
    def hedges(self) -> bool:
        """Whether calls that may run twice are hedged."""
        return self._shared.latencies is not None

    def replicas(self) -> tuple[Replica, ...]:
        """The servers that get calls now; none of a DNS name before it was looked up (`resolved`)."""
        return self._pool.replicas

    def resolved(self, deadline: float) -> Steps[tuple[Replica, ...]]:
        """`replicas`, DNS names looked up if they were not yet.

        Raises:
            ServerUnavailable: no name has an address.
        """
        yield from self._housekeeping(deadline)
        return self._pool.replicas

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
            limited: False: not held up by the limit of calls at once (questions, health).
            replica: send to this one only; None: to the one with least to do.

        Raises:
            Overloaded: no room in this client, or at the server whatever was tried.
            DeadlineExceeded: the time is over.
            CircuitOpen: every server is being left alone; nothing was sent.
            ClientError: what the last attempt raised.
        """
        begun = entered = self._clock()
        gate = self._gate if limited else None
        if gate is not None and not gate.try_enter():
            yield from gate.enter(begun, deadline)
            entered = self._clock()
        try:
            if self._watches or (self._pool.retired and self._pool.idle_retired):
                yield from self._housekeeping(deadline)
            call = Call(self._shared, method, body, deadline, where, headers, idempotent, replica)
            return (yield from call.run(entered - begun))
        finally:
            if gate is not None:
                gate.leave(self._clock() - entered)

    def pick(self, deadline: float, *, where: str) -> Steps[Lease]:
        """A server for a stream or a sequence, counted as in flight until the lease is over.

        Raises:
            CircuitOpen: every server is being left alone.
            DeadlineExceeded: the time is over.
            ServerUnavailable: a DNS name has no address.
        """
        yield from self._housekeeping(deadline)
        call = Call(self._shared, "ModelInfer", (), deadline, where)
        return Lease(self._pool, call.picked(self._clock()), self._clock)

    def may_move(self, lost: Lease) -> bool:
        """Whether what a lost server did not answer may be asked again, of the next that is picked.

        There must be another server that is well, and the settings and the budget of retries must
        allow it; the budget is charged.
        """
        retry, budget, now = self._shared.retry, self._shared.budget, self._clock()
        if retry is None or budget is None or retry.attempts < 2:
            return False
        return self._pool.has_other(now, (lost.replica,)) and budget.spend(now)

    def close(self) -> None:
        """Close every transport; closing twice is closing once."""
        self._stop()
        for transport in self._pool.take_all():
            transport.close()

    async def aclose(self) -> None:
        """`close` for a client of tasks."""
        self._stop()
        await asyncio.gather(*(transport.close() for transport in self._pool.take_all()))

    def drop(self) -> None:
        """In a fork: let go of the copies of connections, without a lock and without a word."""
        self._closed = True
        for transport in self._pool.copies():
            transport.close()

    def _stop(self) -> None:
        self._closed = True
        self._shared.alarm.close()
        for watch in self._watches:
            watch.close()

    def _housekeeping(self, deadline: float) -> Steps[None]:
        """Look names up that are due, and close what was removed."""
        if self._closed:
            raise UsageError("client", found="it is closed", wanted="an open client")
        for watch in self._watches:
            now = self._clock()
            if watch.due(now):
                known = watch.targets or self._pool.replicas
                yield LookUp(watch, now, 0.0 if known else deadline - now)
        if not self._pool.replicas:
            raise self._watches[0].failure()
        if self._pool.idle_retired:
            transports = self._pool.take_retired()
            if self._leave is not None:
                for transport in transports:
                    yield from self._leave(transport)
            yield _Close(transports)

    def _serve(self) -> None:
        found = (target for watch in self._watches for target in watch.targets)
        self._pool.serve((*self._fixed, *found))


class _Close(NamedTuple):
    """Close transports of servers that are no longer named; nobody waits for their errors."""

    transports: list[Any]

    def block(self) -> None:
        """One after the other."""
        for transport in self.transports:
            try:
                transport.close()
            except Exception:
                _log.debug("closing %s failed", transport, exc_info=True)

    async def wait(self) -> None:
        """All at once."""
        closing = (transport.close() for transport in self.transports)
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, Exception):
                _log.debug("closing failed", exc_info=result)


def _checked(addresses: Sequence[str]) -> tuple[str, ...]:
    found = tuple(addresses)
    if isinstance(addresses, str) or not found or len(set(found)) < len(found):
        raise UsageError(
            "addresses", found=repr(addresses), wanted="a list of one or more addresses, each once"
        )
    return found
