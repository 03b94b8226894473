"""The choice of a server for the next call."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.client.policy.world import World
from tritonkit.client.policy import Breaker, Retry
from tritonkit.client.policy.pool import ReplicaPool
from tritonkit.errors import DeadlineExceeded, Overloaded, ServerUnavailable, UsageError

THREE = ["a:1", "b:1", "c:1"]


def crowd(here: World, count: int, gap_s: float, timeout_s: float = 10.0) -> list[Any]:
    """Start calls one after the other without waiting for their answers; how each ended."""
    ends: list[Any] = []
    for number in range(count):
        here.start(here.clock.now + number * gap_s, lambda: here.steps(timeout_s), ends.append)
    here.run()
    return ends


def shares(here: World) -> dict[str, float]:
    """Each server's share of all messages."""
    return {name: len(server.calls) / here.messages for name, server in here.servers.items()}


@pytest.mark.parametrize("gap_s", [0.0005, 0.1], ids=["many concurrent", "one at a time"])
def test_equal_servers_get_equal_shares(gap_s: float) -> None:
    """Three servers of one speed get a third each, whether calls overlap or not."""
    noise = Random(2)
    here = World(THREE, lambda _: (noise.uniform(0.018, 0.022), None))
    crowd(here, 3000, gap_s)
    assert all(0.25 < share < 0.42 for share in shares(here).values())


def test_the_quicker_server_gets_more() -> None:
    """A server four times as slow gets far less than its third, and is not forgotten."""
    here = World(THREE, lambda server: (0.08 if server.address == "a:1" else 0.02, None))
    crowd(here, 6000, 0.005)
    assert 0.0 < shares(here)["a:1"] < 0.12


def test_a_server_that_became_quick_again_is_found() -> None:
    """A slow server is looked at from time to time, and used as before when it has recovered."""
    slow = [True]
    here = World(["a:1", "b:1"], lambda s: (0.2 if s.address == "a:1" and slow[0] else 0.02, None))
    crowd(here, 2000, 0.01)
    assert shares(here)["a:1"] < 0.1
    slow[0] = False
    for server in here.servers.values():
        server.calls.clear()
    crowd(here, 8000, 0.01)
    assert shares(here)["a:1"] > 0.25


def test_a_new_server_is_not_flooded() -> None:
    """A server nothing is known of is compared by its calls in flight, not taken for infinitely quick."""
    here = World(["a:1", "b:1"], lambda _: (0.1, None))
    crowd(here, 200, 0.001)
    here.policy.pool.serve(dict.fromkeys(THREE))
    crowd(here, 200, 0.0001)
    assert len(here.servers["c:1"].calls) < 120


def test_no_stickiness() -> None:
    """One caller that waits for each answer reaches every server."""
    here = World(THREE, lambda _: (0.01, None))
    assert {here.call().endpoint for _ in range(60)} == set(THREE)


@pytest.mark.parametrize("error", [ServerUnavailable, Overloaded])
def test_a_retry_goes_elsewhere(error: Any) -> None:
    """The server just tried is not tried again while there is another."""
    order: list[str] = []

    def script(server: Any) -> tuple[float, Exception]:
        order.append(server.address)
        return 0.001, error(server.address, found="no")

    here = World(THREE, script, breaker=None)
    with pytest.raises(error):
        here.call()
    assert sorted(order) == THREE


def test_a_third_attempt_prefers_a_rested_server_to_a_dead_one() -> None:
    """With two servers tried and the third known to be dead, the first is tried again."""
    here = World(THREE, lambda _: (0.0, None))
    pool, now = here.policy.pool, here.clock.now
    first, second, dead = here.policy.pool.replicas
    lost = pool.pick(now, only=dead)
    assert lost is not None
    lost.end(now, ServerUnavailable("c:1", found="refused"))
    again = pool.pick(now + 0.06, (first, second))
    assert again is not None
    assert again.replica is first


def test_two_full_servers_take_turns() -> None:
    """However often both refuse, none is asked twice in a row, rested or not."""
    order: list[str] = []

    def script(server: Any) -> tuple[float, Exception]:
        order.append(server.address)
        return 0.001, Overloaded(server.address, found="full")

    here = World(["a:1", "b:1"], script, retry=Retry(attempts=8, first_s=0.5))
    with pytest.raises(Overloaded):
        here.call(timeout_s=60.0)
    assert len(order) == 8
    assert all(one != next_ for one, next_ in pairwise(order))


def test_a_lost_server_is_replaced_at_once() -> None:
    """Another server takes over without a pause; a full one is given one."""
    here = World(THREE, lambda s: (0.0, None))
    begun = here.clock.now
    dead: list[str] = []

    def script(server: Any) -> tuple[float, Exception | None]:
        if not dead or server.address in dead:
            dead.append(server.address)
            return 0.0, ServerUnavailable(server.address, found="no")
        return 0.0, None

    for server in here.servers.values():
        server.script = script
    assert here.call().attempts == 2
    assert here.clock.now == begun


def test_one_server_of_three_killed_under_load() -> None:
    """With sixty concurrent callers one server dies: no call fails, and few are sent twice."""
    dead = [False]

    def script(server: Any) -> tuple[float, Exception | None]:
        if dead[0] and server.address == "a:1":
            return 0.0005, ServerUnavailable("a:1", found="refused")
        return 0.02, None

    here = World(THREE, script)
    crowd(here, 2000, 0.0005)
    dead[0] = True
    before = here.messages
    ends = crowd(here, 20_000, 0.0005)
    assert not [end for end in ends if isinstance(end, Exception)]
    assert here.messages - before < 20_000 * 1.01


def test_a_dead_server_comes_back() -> None:
    """Started again, it gets its share within seconds."""
    dead = [True]

    def script(server: Any) -> tuple[float, Exception | None]:
        lost = dead[0] and server.address == "a:1"
        return 0.005, ServerUnavailable("a:1", found="refused") if lost else None

    here = World(["a:1", "b:1"], script)
    crowd(here, 1000, 0.01)
    dead[0] = False
    crowd(here, 500, 0.01)
    recent = here.clock.now - 1.0
    assert sum(moment > recent for moment in here.servers["a:1"].calls) > 10


def test_a_hanging_server_is_avoided() -> None:
    """A server that takes calls and never answers costs few deadlines, then gets nearly nothing."""
    here = World(THREE, lambda s: (60.0 if s.address == "a:1" else 0.01, None), breaker=Breaker())
    ends = crowd(here, 4000, 0.005, timeout_s=0.5)
    late = sum(isinstance(end, DeadlineExceeded) for end in ends)
    assert late < 80


def test_calls_in_flight_are_given_back_however_they_end() -> None:
    """Answered, failed, timed out, abandoned: nothing stays counted."""
    endings = [None, Overloaded("a", found=""), ServerUnavailable("a", found=""), UsageError("a", found="")]
    chance = Random(3)
    here = World(THREE, lambda _: (chance.uniform(0, 0.4), chance.choice(endings)), breaker=None)
    crowd(here, 500, 0.001, timeout_s=0.3)
    for _ in range(20):
        steps = here.steps()
        next(steps)
        steps.close()
    assert [replica.in_flight for replica in here.policy.pool.replicas] == [0, 0, 0]


def test_removed_servers_drain() -> None:
    """A server no longer named gets no call, finishes what it has, and is closed then."""
    here = World(["a:1", "b:1"], lambda _: (1.0, None), limit=None)
    pool = here.policy.pool
    under_way = [here.steps() for _ in range(8)]
    sends = [next(steps) for steps in under_way]
    pool.serve({"b:1": None})
    busy = [n for n, send in enumerate(sends) if send.transport.address == "a:1"]
    assert busy
    assert {here.call().endpoint for _ in range(20)} == {"b:1"}
    assert here.servers["a:1"].closed == 0
    for number in busy:
        with pytest.raises(StopIteration) as ended:
            under_way[number].send(memoryview(b""))
        assert ended.value.value.endpoint == "a:1"
    here.call()
    assert here.servers["a:1"].closed == 1
    here.call()
    assert here.servers["a:1"].closed == 1


def test_a_server_that_stays_keeps_its_transport() -> None:
    """A new list of servers makes transports for new addresses only."""
    here = World(["a:1", "b:1"], lambda _: (0.0, None))
    kept = here.servers["b:1"]
    here.policy.pool.serve({"b:1": None, "c:1": None})
    assert here.servers["b:1"] is kept
    assert [replica.address for replica in here.policy.pool.replicas] == ["b:1", "c:1"]


def test_nothing_is_made_after_closing() -> None:
    """A look-up that ends after `close` makes no transports that nobody would close."""
    here = World(["a:1"], lambda _: (0.0, None))
    here.policy.close()
    here.policy.pool.serve({"b:1": None})
    assert set(here.servers) == {"a:1"}


def test_one_server_asked_by_name() -> None:
    """`replica=` sends there and nowhere else, also when it fails."""
    here = World(THREE, lambda s: (0.0, ServerUnavailable(s.address, found="no")))
    replica = here.policy.pool.replicas[1]
    with pytest.raises(ServerUnavailable):
        here.call(replica=replica)
    assert len(here.servers["b:1"].calls) == here.messages == 3


def test_a_pool_of_none_gives_none() -> None:
    """Without servers there is nothing to pick."""
    assert ReplicaPool(lambda *_: None, None, Random()).pick(0.0) is None
