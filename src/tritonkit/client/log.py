"""The library's logger, quiet unless the application sets up logging."""

from __future__ import annotations

import logging

__all__ = ["logger"]

logger = logging.getLogger("tritonkit")
"""Warnings say what makes calls slower than configured, once; debug lines what happens. Never values,
headers, keys or passwords."""

# Without a handler Python prints warnings of a library to stderr.
logger.addHandler(logging.NullHandler())
