"""Thread counts of libraries in a server: the cores of the container's quota instead of the machine's."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["CORES_VARIABLE", "thread_variables"]

CORES_VARIABLE = "TRITONKIT_CORES"
"""The environment variable with the quota, for tritonkit's backends."""

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Variables of OpenMP (PyTorch), NumPy's linear algebra and tokenizers, which take the machine's cores by default."""


def thread_variables(cores: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for a server that may use fewer cores than the kernel shows. Libraries respect the
    affinity, but not a quota. Variables that the user has set are kept."""
    if cores >= len(os.sched_getaffinity(0)):
        return {}
    names = [CORES_VARIABLE, *(name for name in _VARIABLES if name not in environment)]
    return dict.fromkeys(names, str(cores))
