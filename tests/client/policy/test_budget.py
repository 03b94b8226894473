"""The retry budget: a bound on the requests a client may send in addition to its calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.policy.world import World
from tritonkit.client.policy import Limit, Retry
from tritonkit.client.policy.budget import ALLOWANCE, RetryBudget
from tritonkit.errors import ClientError, ModelNotReady, Overloaded, ServerStopping, ServerUnavailable


@given(st.lists(st.tuples(st.sampled_from(["earn", "spend"]), st.floats(0, 5)), max_size=400))
def test_no_history_spends_more_than_was_earned(history: list[tuple[str, float]]) -> None:
    """Whatever happens in whatever order, at most the allowance and a tenth of the answers is spent."""
    budget, now, earned, spent = RetryBudget(0.1), 0.0, 0, 0
    for what, pause_s in history:
        now += pause_s
        if what == "earn":
            budget.earn(now)
            earned += 1
        else:
            spent += budget.spend(now)
        assert spent <= ALLOWANCE + 0.1 * earned + 1e-6


def test_ten_answers_pay_for_one_retry() -> None:
    """Once the allowance is gone, ten answered calls buy one message, and not two."""
    budget = RetryBudget(0.1)
    while budget.spend(0.0):
        pass
    for _ in range(10):
        budget.earn(0.0)
    assert budget.spend(0.0)
    assert not budget.spend(0.0)


def test_savings_fade() -> None:
    """An hour's answers cannot be spent in one burst later; the allowance stays."""
    budget = RetryBudget(0.1)
    for _ in range(100_000):
        budget.earn(0.0)
    assert budget.tokens > 10_000
    spent = 0
    while budget.spend(100.0):
        spent += 1
    assert ALLOWANCE <= spent <= ALLOWANCE + 1


def test_a_budget_of_nothing_has_no_allowance() -> None:
    """`budget=0` means that nothing is ever sent twice."""
    assert not RetryBudget(0.0).spend(0.0)


@pytest.mark.parametrize("error", [ServerUnavailable, Overloaded])
def test_a_total_outage_is_not_made_worse(error: type[ClientError]) -> None:
    """While nothing is answered, 2,000 calls send no more than the allowance in addition to themselves."""

    def fails(_: Any) -> tuple[float, ClientError]:
        return 0.001, error("a", found="no")

    here = World(["a:1", "b:1"], fails, breaker=None, limit=None)
    for _ in range(2000):
        with pytest.raises(error):
            here.call()
    assert here.messages <= 2000 + ALLOWANCE


@pytest.mark.parametrize("error", [ServerUnavailable, ServerStopping, ModelNotReady])
def test_a_server_that_begins_with_nothing_costs_no_token(error: type[ClientError]) -> None:
    """It ends, or is gone, for as long as it likes: each call that met it is answered by the other."""

    def script(server: Any) -> tuple[float, ClientError | None]:
        ends = server.address == "a:1"
        return 0.2, error("a:1", found="no", unprocessed=True) if ends else None

    here = World(["a:1", "b:1"], script, limit=None)
    while here.policy.budget.spend(here.clock.now):
        pass
    assert {here.call().endpoint for _ in range(200)} == {"b:1"}
    assert len(here.servers["a:1"].calls) > 2


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 1), st.randoms(use_true_random=False))
def test_at_most_a_tenth_more_at_any_failure_rate(rate: float, random: Any) -> None:
    """Over a long run with any share of failures, messages are at most 1.1 calls and the allowance."""

    def script(_: Any) -> tuple[float, ClientError | None]:
        failed = random.random() < rate
        return 0.001, ServerUnavailable("a", found="no") if failed else None

    here = World(["a:1"], script, breaker=None, limit=None)
    for _ in range(300):
        try:
            here.call()
        except ServerUnavailable:
            continue
    assert here.messages <= 300 * 1.1 + ALLOWANCE


def test_three_times_overload_stays_within_the_budget() -> None:
    """Three times as many concurrent calls as the server can take: retries add a tenth at most."""
    free = [10]

    def script(server: Any) -> tuple[float, ClientError | None]:
        if free[0] == 0:
            return 0.001, Overloaded("a", found="queue full")
        free[0] -= 1
        here.start(server.clock.now + 0.1, _nothing, lambda _: free.__setitem__(0, free[0] + 1))
        return 0.1, None

    here = World(["a:1"], script, limit=Limit(in_flight=10_000))
    ends: list[Any] = []
    for number in range(3000):
        here.start(here.clock.now + number / 300, lambda: here.steps(1.0), ends.append)
    here.run()
    assert here.messages <= 3000 * 1.1 + ALLOWANCE
    assert sum(not isinstance(end, Exception) for end in ends) > 800


def _nothing() -> Any:
    yield from ()


def test_admin_calls_earn_nothing() -> None:
    """Asking for metadata a thousand times does not pay for retries of inference."""
    here = World(["a:1"], lambda _: (0.001, None))
    before = here.policy.budget.tokens
    for _ in range(1000):
        here.call(method="ModelMetadata")
    assert here.policy.budget.tokens == before


def test_without_retry_nothing_is_sent_twice() -> None:
    """`retry=None` leaves every call alone."""
    here = World(["a:1"], lambda _: (0.001, Overloaded("a", found="no")), retry=None)
    with pytest.raises(Overloaded):
        here.call()
    assert here.messages == 1


def test_attempts_are_counted_with_the_first() -> None:
    """`attempts=2` is one repetition."""
    script = lambda _: (0.001, Overloaded("a", found="no"))  # noqa: E731
    here = World(["a:1"], script, retry=Retry(attempts=2))
    with pytest.raises(Overloaded):
        here.call()
    assert here.messages == 2
