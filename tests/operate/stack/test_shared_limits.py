"""Messages of `up` about shared rates: immediately, then now and then, and once when they hold again."""

from __future__ import annotations

from tritonkit.operate.stack.shared_limits import SharedLimitsWatch


def test_it_is_said_and_not_too_often() -> None:
    """With how many requests it was; also of a gateway that counts from 0 again."""
    now, count = [0.0], [0]
    watch = SharedLimitsWatch(lambda: count[0], lambda: now[0])

    def look(at: float, undecided: int) -> str:
        now[0], count[0] = at, undecided
        return watch.look()

    assert look(0, 0) == ""
    assert look(1, 3).startswith("3 requests passed without a decision")
    assert look(2, 9) == ""
    assert look(20, 12) == ""
    assert look(32, 12).startswith("9 requests")
    assert look(33, 2) == ""
    assert look(63, 2).startswith("2 requests")
    assert look(64, 2).startswith("shared rates hold")
    assert look(200, 2) == ""
