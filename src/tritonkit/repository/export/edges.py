"""Values on the edge of a decision: an order, a threshold or a tie that rounding alone turns over, as in detectors.

Two engines that compute the same network may give different rows there. The network itself shows where: its weights and
its input are moved by a millionth. A value that moves as far as the two answers differ shows nothing about the engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.comparing import apart, explains, spread
from tritonkit.repository.export.neighbors import jittered
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.shaken import shaken
from tritonkit.repository.modelspec.quality import Tolerance

__all__ = ["settle_edges"]

_SHARE = 1e-6
"""Share of its own size by which each input number is moved."""
_MOST_RUNS = 32
_FEW_RUNS = 4
"""Number of runs after which the search stops unless half of the differences are explained."""


def settle_edges(
    file: Path, given: Sequence[Batch], outputs: Sequence[Batch], reference: Sequence[Batch], tolerance: Tolerance
) -> tuple[list[Batch], str]:
    """`outputs`, with the reference's values where rounding alone explains a difference, and a sentence on how many.

    Args:
        file: the network as ONNX; a difference stays unexplained if the file cannot be run again.
    """
    settled: list[Batch] = []
    count = total = 0
    for batch, got, expected in zip(given, outputs, reference, strict=True):
        masks = _explained(file, batch, got, expected, tolerance)
        settled.append({n: _mixed(got[n], expected[n], masks.get(n)) for n in got})
        count += sum(int(mask.sum()) for mask in masks.values())
        total += sum(array.size for array in expected.values())
    text = f"{count} of {total} values lie on the edge of a decision (an order, a threshold), where rounding decides"
    return settled, text if count else ""


def _mixed(got: Any, expected: Any, mask: Any) -> Any:
    import numpy as np

    if mask is None or not mask.any():
        return got
    return expected if got.shape != expected.shape else np.where(mask, expected, got)


def _explained(file: Path, batch: Batch, got: Batch, expected: Batch, tolerance: Tolerance) -> dict[str, Any]:
    """Output -> mask of the values that may differ from the reference's and do; equal outputs are left out."""
    differing = {
        name: mask
        for name, array in expected.items()
        if name in got and (mask := apart(got[name], array, tolerance, 1.0)) is not None
    }
    left = {name: mask.copy() for name, mask in differing.items()}
    before = sum(int(mask.sum()) for mask in left.values())
    for run, (base, moved) in enumerate(_moved(file, batch) if left else (), 1):
        for name in left:
            moves = _moves(base[name], moved[name], got[name], expected[name])
            left[name] &= ~(moves & _is_among(expected[name], (base[name], moved[name]), tolerance))
        unexplained = sum(int(mask.sum()) for mask in left.values())
        if unexplained == 0 or (run == _FEW_RUNS and unexplained > before / 2):
            break
    return {name: mask & ~left[name] for name, mask in differing.items()}


def _moved(file: Path, batch: Batch) -> Iterator[tuple[Batch, Batch]]:
    """Pairs of the unchanged network's outputs and those of the network moved a little, with a new seed each time."""
    where = file.name
    try:
        base = run_session(open_session(file, where), batch, where)
        for seed in range(_MOST_RUNS):
            if (run := shaken(file, where, seed)) is None:
                return
            yield base, run(jittered(batch, _SHARE, seed))
    except BuildError:
        return


def _moves(base: Any, moved: Any, got: Any, expected: Any) -> Any:
    """A mask of the values that move as far as the two answers differ. If the answers have different shapes, it covers
    all values, provided that the shape moves too."""
    import numpy as np

    if got.shape != expected.shape:
        return np.full(expected.shape, moved.shape != base.shape)
    if moved.shape != base.shape or base.shape != expected.shape:
        return np.zeros(expected.shape, bool)
    return explains(spread([moved], base), got, expected)


def _is_among(expected: Any, outputs: Sequence[Any], tolerance: Tolerance) -> Any:
    """A mask of the reference's values that the network gives too, here or in another place. A decision chooses among
    the same values, whereas a wrong network has other values."""
    import numpy as np

    if not np.issubdtype(expected.dtype, np.number):
        return np.isin(expected, np.concatenate([output.ravel() for output in outputs]))
    seen = np.unique(np.concatenate([output.ravel() for output in outputs]).astype(np.float64))
    value = expected.astype(np.float64)
    if not len(seen):
        return np.zeros(expected.shape, bool)
    place = np.searchsorted(seen, value).clip(1, max(1, len(seen) - 1))
    with np.errstate(invalid="ignore"):
        near = np.minimum(abs(value - seen[place - 1]), abs(value - seen[place % len(seen)]))
        return near <= tolerance.absolute + tolerance.relative * np.abs(value)
