"""A network whose weights are moved as little as rounding moves its numbers: values that change are
ill-conditioned."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import data_of, open_session, run_session, tensors
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.work import count_work

__all__ = ["facts_of", "shaken"]

_SHARE = 1e-6
"""Share of its own size by which a weight moves: about the rounding error of a sum of a few hundred FP32 products."""
_MOST_BYTES = 256 << 20
"""Most bytes of a file with its weights: a larger file is not copied in memory."""


def facts_of(file: Path) -> dict[str, Any]:
    """Further arguments for `independence.prove` from the network's ONNX file, if there is one."""
    if not file.is_file():
        return {}
    where = file.name
    return {"work": lambda item: count_work(file, item, where), "shaken": lambda seed: shaken(file, where, seed)}


def shaken(file: Path, where: str, seed: int) -> Callable[[Batch], Batch] | None:
    """A function that runs the file's network with weights moved by a millionth, the same for the same seed.

    Integers stay: they are thresholds, sizes and classes. None for a file that is too large to copy.
    """
    import numpy as np

    onnx = need("onnx", "build")
    files = [file, *data_of(file, where).values()]
    if sum(path.stat().st_size for path in files) > _MOST_BYTES:
        return None
    model = onnx.load(file, format="protobuf")
    random = np.random.default_rng(seed)
    for tensor in tensors(model):
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            array = onnx.numpy_helper.to_array(tensor)
            moved = _moved(random, array)
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(model.SerializeToString())
        try:
            session = open_session(copy, where)
        except BuildError:  # such a difference stays unexplained
            return None
    return lambda batch: run_session(session, batch, where)


def _moved(random: Any, array: Any) -> Any:
    import numpy as np

    with np.errstate(invalid="ignore"):
        whole = bool((array == np.round(array)).all())
    factors = 1 + random.uniform(-_SHARE, _SHARE, array.shape)
    return array if whole else (array.astype(np.float64) * factors).astype(array.dtype)
