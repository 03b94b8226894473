"""How many threads libraries start by themselves: as many as a container's quota has cores, not the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["CORES_VARIABLE", "thread_variables"]

CORES_VARIABLE = "TRITONKIT_CORES"
"""Tells tritonkit's backends of a quota."""

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Of OpenMP (PyTorch), NumPy's linear algebra, and tokenizers; each takes the machine's cores by default."""


def thread_variables(cores: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for a server that may use so many cores, where the kernel shows it more: what libraries
    see themselves, such as the affinity, they heed. What the user has set stays."""
    if cores >= len(os.sched_getaffinity(0)):
        return {}
    names = [CORES_VARIABLE, *(name for name in _VARIABLES if name not in environment)]
    return dict.fromkeys(names, str(cores))
