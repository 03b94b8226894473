"""NNCF, OpenVINO's own quantiser, without its progress bars and without its reports over the network."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

from tritonkit.build.extras import need

__all__ = ["need_nncf", "quiet"]

_SILENT = "NNCF_CI"
"""With this set NNCF sends nothing about its use anywhere (nncf/telemetry/wrapper.py); it looks when imported."""


def need_nncf() -> Any:
    """The module; BuildError where it is not installed."""
    before = os.environ.get(_SILENT)
    os.environ[_SILENT] = "1"
    try:
        with quiet():
            return need("nncf", "optimise")
    finally:
        if before is None:
            del os.environ[_SILENT]
        else:
            os.environ[_SILENT] = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep progress bars, notes and warnings about NNCF's own code out of a person's terminal."""
    logger = logging.getLogger("nncf")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)
