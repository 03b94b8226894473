"""Checking what a person may set."""

from __future__ import annotations

from tritonkit.errors import UsageError

__all__ = ["check_setting", "is_whole"]


def check_setting(settings: object, name: str, fine: bool, wanted: str) -> None:
    """Refuse a value. Write comparisons so that NaN, which compares with nothing, is not fine.

    Raises:
        UsageError: naming the settings, the value and what is wanted.
    """
    if not fine:
        raise UsageError(type(settings).__name__, found=f"{name}={getattr(settings, name)!r}", wanted=wanted)


def is_whole(value: object, least: int) -> bool:
    """Whether a value is a whole number from `least`; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
