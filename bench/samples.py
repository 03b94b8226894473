"""Made-up inputs of the right kind, the same for the engine alone and for the server.

Used by the server environment's Python too: numpy and the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["DEFAULT_LENGTH", "sample"]

DEFAULT_LENGTH = 64
"""Tokens in a text: the size given to axes a model leaves open."""

_TOKENS = (1000, 30000)  # ordinary words of BERT's vocabulary; special tokens come before


def sample(
    shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str], *, length: int = DEFAULT_LENGTH, seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Arrays for inputs of these shapes, open axes (below 1) set to `length`.

    Args:
        shapes: by input name.
        dtypes: numpy's name of each. float32: 0..1; uint8: any byte; int64: masks are all ones, the
            others token numbers.
        length: size of open axes.
        seed: the same seed gives the same arrays.
    """
    random = np.random.default_rng(seed)
    arrays: dict[str, NDArray[Any]] = {}
    for name, shape in shapes.items():
        sizes = [size if size > 0 else length for size in shape]
        if dtypes[name] == "float32":
            arrays[name] = random.random(sizes, dtype=np.float32)
        elif dtypes[name] == "uint8":
            arrays[name] = random.integers(0, 256, sizes, np.uint8)
        elif "mask" in name:
            arrays[name] = np.ones(sizes, np.int64)
        else:
            arrays[name] = random.integers(*_TOKENS, sizes, np.int64)
    return arrays
