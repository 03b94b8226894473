"""Keep what C++ libraries print out of a person's terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator

__all__ = ["silenced"]


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop everything this process writes to standard output and error, warnings and logs too.

    By the file descriptors: a library's C++ part asks no Python. A progress bar stands still
    meanwhile, so for single calls of such libraries only.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    unread = io.StringIO()
    with (
        tempfile.TemporaryFile() as nowhere,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(unread),
        contextlib.redirect_stderr(unread),
    ):
        warnings.simplefilter("ignore")
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)
        try:
            yield
        finally:
            for descriptor, before in zip((1, 2), kept, strict=True):
                os.dup2(before, descriptor)
                os.close(before)
            logging.disable(disabled)
