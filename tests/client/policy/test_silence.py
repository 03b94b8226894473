"""Calls for which a silent server may be left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.policy.world import Server, World
from tritonkit.client.policy import Retry
from tritonkit.errors import ServerUnavailable


class Silent:
    """A script: servers of these names are silent, so that their calls ask whether to leave; what they were told."""

    def __init__(self, *names: str, begun: bool = True) -> None:
        self.names = names
        self.begun = begun
        self.answers: list[bool] = []

    def __call__(self, server: Server) -> tuple[float, ServerUnavailable | None]:
        """The duration of a call, and its error."""
        if server.address not in self.names:
            return 0.001, None
        leaves = server.elsewhere is not None and server.elsewhere(self.begun)
        self.answers.append(leaves)
        error = ServerUnavailable(server.address, found="silent", unprocessed=not self.begun)
        return 0.5, error if leaves else None


def world(script: Silent, addresses: tuple[str, ...] = ("a:1", "b:1"), **settings: Any) -> World:
    """Servers of which each call meets the silent ones first."""
    here = World(addresses, script, **settings)
    for replica in here.policy.pool.replicas:
        replica.latency_s = 0.001 if replica.address in script.names else 9.0
        replica.measured_at = here.clock.now
    return here


def test_a_call_is_handed_over_and_paid_for_once() -> None:
    """The answer is the other server's."""
    here = world(Silent("a:1"))
    sent = here.call()
    assert (sent.endpoint, sent.attempts) == ("b:1", 2)
    assert here.policy.budget.tokens == pytest.approx(9.0)


def test_a_call_that_may_not_run_twice_leaves_before_it_is_begun_alone() -> None:
    """A connection that does not come has begun nothing."""
    script = Silent("a:1")
    assert world(script).call(idempotent=False).endpoint == "a:1"
    assert script.answers == [False]
    assert world(Silent("a:1", begun=False)).call(idempotent=False).endpoint == "b:1"


@pytest.mark.parametrize("begun", [True, False])
def test_no_more_are_handed_over_than_the_budget_has(begun: bool) -> None:
    """The others wait for their server as if it were alone."""
    script = Silent("a:1", begun=begun)
    here = world(script)
    while here.policy.budget.spend(here.clock.now):
        pass
    assert here.call().endpoint == "a:1"
    assert script.answers == [False]


@pytest.mark.parametrize("settings", [{"retry": None}, {"retry": Retry(attempts=1)}])
def test_settings_that_send_nothing_twice_count_here_too(settings: Any) -> None:
    """It stays."""
    assert world(Silent("a:1"), **settings).call().endpoint == "a:1"


def test_a_single_server_is_never_left() -> None:
    """Its transport is not even told whom to ask."""
    here = world(Silent("a:1"), ("a:1",))
    assert here.call().endpoint == "a:1"
    assert here.servers["a:1"].elsewhere is None


def test_a_call_for_one_of_several_stays_there() -> None:
    """A call for one replica stays there, like those that read each server's statistics."""
    here = world(Silent("a:1"))
    first = next(replica for replica in here.policy.pool.replicas if replica.address == "a:1")
    assert here.call(replica=first).endpoint == "a:1"
    assert here.servers["a:1"].elsewhere is None


def test_where_all_are_silent_the_last_attempt_waits() -> None:
    """Two of three were left, and the third has the time that remains."""
    script = Silent("a:1", "b:1", "c:1")
    sent = world(script, ("a:1", "b:1", "c:1")).call()
    assert sent.attempts == 3
    assert script.answers == [True, True, False]
