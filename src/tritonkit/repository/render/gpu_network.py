"""Facts about a network that decide how a GPU runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tritonkit.datatypes import DATATYPES, NUMPY_DTYPES
from tritonkit.repository.export.artifact import Artifact, TensorInfo
from tritonkit.repository.export.work import count_work
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.cuda_options import has_convolutions, session_entries
from tritonkit.repository.optimize.start import warm_sizes
from tritonkit.repository.optimize.variants import runs_on_cpu
from tritonkit.repository.optimize.variants.torch_export import PROGRAM

__all__ = ["TINY_WORK", "GpuNetwork", "read_network", "runs_on_gpu"]

TINY_WORK = 5_000_000
"""Products, counted as `export/work.py` does, up to which one item is computed faster by a CPU. That is about a quarter
of a millisecond of one core; a run on a GPU took 0.1 ms longer than the same network on a CPU of 16 cores."""
_COUNTED_BYTES = 32 << 20
"""Larger networks are not tiny, and are not counted."""
_COUNTED_S = 0.05
"""Networks whose largest item took a core longer than this are not tiny, and are not counted."""
_FILE = "model.onnx"


@dataclass(frozen=True)
class GpuNetwork:
    """Facts about a network.

    Args:
        free: the first input or output with a free size besides the batch; empty if all sizes are fixed.
        convolutions: whether it has convolutions, which ONNX Runtime plans for one shape at a time.
        texts: whether a tensor holds texts, which no GPU takes.
        work: products for one item; None where the network is plainly not tiny, or unknown.
        weight_bytes: size of its files.
        item_bytes: size of the inputs and outputs of one item; 0 where a size is free.
        variant: the name of its variant.
        entries: parameters with entries of ONNX Runtime's session.
    """

    free: str = ""
    convolutions: bool = True
    texts: bool = False
    work: int | None = None
    weight_bytes: int = 0
    item_bytes: int = 0
    variant: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_tiny(self) -> bool:
        """Whether a CPU computes an item faster than it reaches a GPU."""
        return self.work is not None and self.work <= TINY_WORK

    @property
    def suits_cpu(self) -> bool:
        """Whether it is served on the CPU unless its spec says otherwise."""
        return self.is_tiny or self.texts


def read_network(spec: Spec, artifact: Artifact) -> GpuNetwork:
    """The facts about an artifact's network, in ONNX or PyTorch. One that is not built yet counts as large, with
    convolutions."""
    signature = artifact.signature
    tensors = (*signature.inputs, *signature.outputs)
    free = next((tensor.name for tensor in tensors if -1 in tensor.shape), "")
    texts = any(tensor.dtype == "BYTES" for tensor in tensors)
    item_bytes = 0 if free or texts else sum(map(_bytes, tensors))
    file = artifact.folder / _FILE
    if (
        artifact.form.startswith("torch") or {"model.pt", PROGRAM} & artifact.files.keys()
    ):  # PyTorch does not plan a convolution again for each shape
        return GpuNetwork(free, convolutions=False, texts=texts, weight_bytes=_size(artifact), item_bytes=item_bytes)
    if not file.is_file() or not file.stat().st_size:
        return GpuNetwork(free, texts=texts, item_bytes=item_bytes, variant=artifact.variant)
    return GpuNetwork(
        free,
        convolutions=has_convolutions(file),
        texts=texts,
        work=None if texts else _work(spec, artifact, file),
        weight_bytes=_size(artifact),
        item_bytes=item_bytes,
        variant=artifact.variant,
        entries=session_entries(file),
    )


def runs_on_gpu(spec: Spec, artifact: Artifact) -> bool:
    """Whether target gpu serves an ONNX network on the GPU: as its spec says, else by the network."""
    kinds = {group.kind for group in spec.model.serving.instance_group} or {None}
    by_default = None in kinds and not (runs_on_cpu(artifact.form) and read_network(spec, artifact).suits_cpu)
    return by_default or bool(kinds & {"auto", "gpu"})


def _size(artifact: Artifact) -> int:
    """Size of the files with the network that are there; Python next to them stays in the host's memory."""
    files = [artifact.folder / name for name in artifact.files if not name.endswith(".py")]
    return sum(file.stat().st_size for file in files if file.is_file())


def _bytes(tensor: TensorInfo) -> int:
    size = DATATYPES[tensor.dtype].size or 0
    for axis in tensor.shape:
        size *= axis
    return size


def _work(spec: Spec, artifact: Artifact, file: Path) -> int | None:
    """Products for one item of the largest warm size."""
    start, signature = artifact.start, artifact.signature
    slow = start is not None and start.processor_s > _COUNTED_S
    sizes = warm_sizes(spec.model.network.free_axes)[-1]
    shapes = tuple((t.name, NUMPY_DTYPES.get(t.dtype, ""), _shape(t, sizes)) for t in signature.inputs)
    if slow or artifact.size_bytes > _COUNTED_BYTES or any(not dtype or -1 in shape for _, dtype, shape in shapes):
        return None
    lead = (1,) if signature.batched or signature.single else ()
    return _counted(file, artifact.files[_FILE], tuple((name, dtype, lead + shape) for name, dtype, shape in shapes))


def _shape(tensor: TensorInfo, sizes: Mapping[str, int]) -> tuple[int, ...]:
    named = zip(tensor.shape, tensor.axis_names, strict=True)
    return tuple(sizes.get(axis, -1) if size < 0 else size for size, axis in named)


@lru_cache(maxsize=16)
def _counted(file: Path, digest: str, item: tuple[tuple[str, str, tuple[int, ...]], ...]) -> int:
    """The work of a file, counted once in a process. `digest` tells one content of the file from another."""
    import numpy as np

    return count_work(file, {name: np.zeros(shape, dtype) for name, dtype, shape in item}, str(file))
