"""Errors, grouped by who can fix them."""

from __future__ import annotations


class StartError(Exception):
    """The function cannot start; the message is for who deployed it."""


class RefusedRequest(Exception):
    """A request is not answered, and why; the message is for the caller."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Failed(Exception):
    """A good request has no answer; the reason is in the log."""
