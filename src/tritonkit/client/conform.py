"""Makes a caller's value into the array that the model declares, or refuses it.

`tritonkit.client.values` decides on types; this module decides on shapes.

A model with max_batch_size 0 gets the array as it is. Otherwise the number of axes decides:
as many as the declared item has is one item, one more is a batch. An item declared as [1] is a
single value and may be written without its axis: a value is one item, N values in a row are N
items. (Both readings of one value in a row send the same tensor, so nothing is ambiguous.) A value
without axes also stands for an item of one value where [-1] is declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.dlpack import DeviceArray
from tritonkit.client.values import bytes_array, number_array
from tritonkit.client.wire.tensors import FIXED
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.shm.cuda import CudaDevice
    from tritonkit.client.wire.signature import TensorSpec

__all__ = ["conform", "fits"]


def fits(value: Any, spec: TensorSpec) -> bool:
    """Whether `value` is already the array to send: the fast path for the common case."""
    return (
        type(value) is np.ndarray
        and value.dtype == FIXED.get(spec.datatype)
        and spec.batched
        and value.shape[1:] == spec.dims
        and len(value) > 0
    )


def conform(value: Any, spec: TensorSpec, where: str, gpu: CudaDevice | None = None) -> NDArray[Any]:
    """Make `value` fit `spec`.

    Args:
        value: the caller's.
        spec: the input.
        where: the input's name for messages.
        gpu: leaves arrays of the input's type that lie on a GPU there.

    Returns:
        An array of the wire's type (float32 for BF16, objects holding bytes for BYTES), with a
        batch axis first if `spec.batched`; contiguous or not. A `DeviceArray` if `gpu` left it.

    Raises:
        InvalidInput: the type, values or shape cannot fit; the message names `where`.
    """
    if gpu is not None:
        value = gpu.take(value)
        stays = type(value) is DeviceArray and value.datatype == spec.datatype
        if stays:
            return _shaped(value, spec, where)
    if spec.datatype == "BYTES":
        return _shaped(bytes_array(value, where), spec, where)
    return _shaped(number_array(value, spec, where), spec, where)


def _shaped(array: NDArray[Any], spec: TensorSpec, where: str) -> NDArray[Any]:
    array = _with_axes(array, spec)
    item = array.shape[1:] if spec.batched else array.shape
    if array.ndim != len(spec.dims) + spec.batched:
        raise InvalidInput(where, found=f"{array.ndim} axes, shape {list(array.shape)}", wanted=_wanted(spec))
    if item != spec.dims:
        _check_sizes(array, item, spec, where)
    if spec.batched and array.shape[0] == 0:
        raise InvalidInput(where, found="an empty batch", wanted=_wanted(spec))
    return array


def _with_axes(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Add the axes that a caller may omit."""
    rank = len(spec.dims)
    if not spec.batched:
        return array.reshape(1) if array.ndim == 0 and spec.dims in ((1,), (-1,)) else array
    if spec.dims == (1,) and array.ndim <= 1:
        return array.reshape(-1, 1)
    if array.ndim == 0 and spec.dims == (-1,):
        return array.reshape(1, 1)
    return array[np.newaxis] if array.ndim == rank else array


def _check_sizes(array: NDArray[Any], item: tuple[int, ...], spec: TensorSpec, where: str) -> None:
    for axis, (size, expected) in enumerate(zip(item, spec.dims, strict=True)):
        if expected not in (-1, size):
            raise InvalidInput(
                where,
                found=f"axis {axis} of an item is {size}, sent shape {list(array.shape)}",
                wanted=f"{expected} on that axis: {_wanted(spec)}",
            )


def _wanted(spec: TensorSpec) -> str:
    sizes = ", ".join("any" if size == -1 else str(size) for size in spec.dims)
    if not spec.batched:
        return f"shape [{sizes}]"
    return f"one item of shape [{sizes}], or a batch of shape [batch{', ' if sizes else ''}{sizes}]"
