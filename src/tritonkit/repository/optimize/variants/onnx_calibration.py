"""The range of each activation on calibration data, in memory that does not grow with the data.

One pass finds the smallest and largest values. A second pass, if needed, fills a histogram of fixed
size per tensor. A batch is run in parts, so that only about 256 MiB of activations are in memory together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import open_session
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.optimize.variants.onnx_graph import save

__all__ = ["Calibrator"]

Range = tuple[float, float]

_BYTES = 2**28  # activations in memory together, unless a single item has more
_BINS = 4096  # bins of a histogram over [-largest, largest]
_ELEMENTS = 2**18  # most elements of a tensor to count in one part of a batch, evenly spaced
_LEVELS = 255  # steps that 8 bits give a range
_STEP = 16  # bins between the thresholds that entropy tries
_OUTSIDE = 1e-4  # share of values that percentile leaves outside, both ends together


class Calibrator:
    """Ranges of the tensors `names`, floats of a known type, over batches of real input.

    With `batched`, axis 0 of every input is the batch, and items can run separately.
    """

    def __init__(
        self,
        model: Any,
        names: Sequence[str],
        batches: Sequence[Batch],
        batched: bool,
        where: str,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._names = list(names)
        self._batches = batches
        self._batched = batched
        self._where = where
        self._say = say
        self._session = _open_with_outputs(model, self._names, where)
        self._limits: dict[str, Range] = {}
        self._histograms: dict[str, Any] = {}

    def by(self, method: str) -> dict[str, Range]:
        """Each tensor's (low, high) by `minmax`, `entropy` or `percentile`.

        Infinities do not count; a tensor without finite values is left out. BuildError if the
        network itself gives NaN.
        """
        if not self._limits:
            self._find_limits()
        return dict(self._limits) if method == "minmax" else self._clipped(_CLIPPED[method])

    def _clipped(self, limits: Callable[[Any, float], Range]) -> dict[str, Range]:
        """Limits from each histogram, no wider than the values seen."""
        if not self._histograms:
            self._fill_histograms()
        ranges = {}
        for name, (low, high) in self._limits.items():
            first, last = limits(self._histograms[name], max(-low, high))
            ranges[name] = (max(low, first), min(high, last))
        return ranges

    def _find_limits(self) -> None:
        import numpy as np

        for name, array in self._values("finding ranges"):
            low, high = float(array.min()), float(array.max())
            if np.isnan(low):
                raise BuildError(
                    self._where,
                    found=f"the FP32 network itself gives NaN in {name}",
                    wanted="numbers, so that ranges can be found",
                    todo="check optimize.calibration and the weights",
                )
            before = self._limits.get(name, (low, high))
            self._limits[name] = min(low, before[0]), max(high, before[1])

    def _fill_histograms(self) -> None:
        import numpy as np

        counts = {name: np.zeros(_BINS) for name in self._limits}
        for name, array in self._values("counting values"):
            low, high = self._limits[name]
            largest = max(-low, high) or 1.0
            values = array.ravel()[:: max(1, array.size // _ELEMENTS)]
            places = ((values.astype(np.float64) / largest + 1) * (_BINS / 2)).astype(np.int64)
            counts[name] += np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS)
        self._histograms = counts

    def _values(self, doing: str) -> Iterator[tuple[str, Any]]:
        """Every tensor of every part of the data, without its infinities."""
        import numpy as np

        items = 1
        for place, batch in enumerate(self._batches):
            self._say(f"{doing}: batch {place + 1} of {len(self._batches)}")
            total, start = len(next(iter(batch.values()))) if self._batched else 1, 0
            while start < total:
                part = batch
                if self._batched:
                    part = {name: array[start : start + items] for name, array in batch.items()}
                arrays = self._session.run(self._names, part)
                for name, array in zip(self._names, arrays, strict=True):
                    # A mask may hold infinities, which no range can include.
                    finite = array if np.isfinite(array).all() else array[~np.isinf(array)]
                    if finite.size:
                        yield name, finite
                start += items
                used = sum(array.nbytes for array in arrays) // min(items, total)
                items = max(1, _BYTES // max(1, used))


def entropy_threshold(counts: Any, largest: float) -> Range:
    """(-t, t) for a histogram over [-largest, largest], by the method of NVIDIA's GTC 2017 talk S7310.

    It compares the values clipped to the threshold with the same values in as many levels as 8 bits give.
    Zeros do not count: bytes hold them exactly, and the zeros behind a Relu would outweigh all other values.
    """
    import numpy as np

    middle = len(counts) // 2
    counts = counts.copy()
    counts[middle] = counts[middle + 1]
    # A range without negative values has all levels on one side.
    levels = _LEVELS if counts[:middle].any() else 2 * _LEVELS
    best, threshold = np.inf, middle
    for half in range(middle, levels // 2, -_STEP):
        inside = counts[middle - half : middle + half]
        clipped = inside.copy()
        clipped[0] += counts[: middle - half].sum()
        clipped[-1] += counts[middle + half :].sum()
        level = np.arange(2 * half) * levels // (2 * half)
        filled = (inside > 0).astype(float)
        share = np.bincount(level, inside) / np.maximum(np.bincount(level, filled), 1)
        divergence = _divergence(clipped, share[level] * filled)
        if divergence < best:
            best, threshold = divergence, half
    limit = largest * threshold / middle
    return -limit, limit


def _divergence(clipped: Any, quantized: Any) -> float:
    """The Kullback-Leibler divergence, with a little mass where `quantized` has none."""
    import numpy as np

    if not quantized.sum():
        return float("inf")
    p = clipped / clipped.sum()
    q = np.maximum(quantized / quantized.sum(), 1e-9)
    filled = p > 0
    return float((p[filled] * np.log(p[filled] / q[filled])).sum())


def percentile_limits(counts: Any, largest: float) -> Range:
    """The bin edges beyond which at most half of `_OUTSIDE` of the values lie, at each end."""
    import numpy as np

    share = np.cumsum(counts) / counts.sum()
    first = int(np.searchsorted(share, _OUTSIDE / 2))
    last = int(np.searchsorted(share, 1 - _OUTSIDE / 2)) + 1
    middle = len(counts) / 2
    return largest * (first / middle - 1), largest * (min(last, len(counts)) / middle - 1)


_CLIPPED: dict[str, Callable[[Any, float], Range]] = {"entropy": entropy_threshold, "percentile": percentile_limits}


def _open_with_outputs(model: Any, names: Sequence[str], where: str) -> Any:
    """A session of the model that also returns the named tensors."""
    onnx = need("onnx", "build")
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    there = {output.name for output in wider.graph.output}
    wider.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names if name not in there
    )
    # A file, because protobuf cannot hold more than 2 GB in one string.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wider.onnx"
        save(wider, file)
        return open_session(file, where)
