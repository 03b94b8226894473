"""Suppress the output of libraries, to keep it out of a person's terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator

__all__ = ["quiet", "silenced"]


@contextlib.contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """Drop warnings, logs up to `level`, and what Python code writes to standard output and error."""
    before = logging.root.manager.disable
    logging.disable(max(level, before))
    unread = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(unread), contextlib.redirect_stderr(unread):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop everything this process writes to standard output and error, errors in logs too.

    File descriptors are redirected, because the C++ part of a library does not write through Python. A progress bar
    stands still meanwhile, so use this only for single calls of such libraries.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    descriptors = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as nowhere, quiet(logging.ERROR):
        for number in descriptors:
            os.dup2(nowhere.fileno(), number)
        try:
            yield
        finally:
            for number, before in descriptors.items():
                os.dup2(before, number)
                os.close(before)
