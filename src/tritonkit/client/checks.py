"""Checks of users' settings."""

from __future__ import annotations

from tritonkit.errors import UsageError

__all__ = ["check_setting", "is_whole"]


def check_setting(settings: object, name: str, fine: bool, expected: str) -> None:
    """Refuse a value unless it is fine. Write comparisons so that NaN, which equals nothing, is refused.

    Raises:
        UsageError: the value is refused; the message has the settings, the value and the accepted values.
    """
    if not fine:
        raise UsageError(type(settings).__name__, found=f"{name}={getattr(settings, name)!r}", wanted=expected)


def is_whole(value: object, least: int) -> bool:
    """Whether a value is a whole number from `least`; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
