"""Arrays of requests and responses: what Triton checks before a model's Python gets them, and what callers get."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tritonkit.datatypes import BY_CONFIG
from tritonkit.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.repository.python_model.values import PythonRequest

    Array = NDArray[Any]

__all__ = ["arrays_of", "read_inputs", "sequence_controls"]


def read_inputs(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of a request as Triton hands them to the model.

    Raises:
        InvalidInput: a name, dtype or shape is not as the configuration has it.
    """
    declared = {tensor["name"]: tensor for tensor in config.get("input", [])}
    for name in inputs:
        if name not in declared:
            raise InvalidInput(f"input {name}", found="no such input", wanted=f"one of {', '.join(declared)}")
    for name, tensor in declared.items():
        if name not in inputs and not tensor.get("optional"):
            raise InvalidInput(f"input {name}", found="it is missing", wanted="an array")
    most = int(config.get("max_batch_size", 0))
    arrays = {name: _array(value, declared[name], batched=most > 0) for name, value in inputs.items()}
    sizes = {len(array) for array in arrays.values()} if most else set()
    if len(sizes) > 1 or max(sizes, default=0) > most:
        raise InvalidInput("inputs", found=f"batches of {sorted(sizes)}", wanted=f"one size, at most {most}")
    return arrays


def _array(value: Any, tensor: Mapping[str, Any], *, batched: bool) -> Array:
    import numpy as np

    array = np.asarray(value)
    dtype = np.dtype(_dtype(tensor["name"], str(tensor["data_type"])))
    if dtype == np.object_:
        array = _as_bytes(array)
    if array.dtype != dtype:
        raise InvalidInput(f"input {tensor['name']}", found=f"dtype {array.dtype}", wanted=str(dtype))
    dims = [int(size) for size in tensor.get("dims", [])]
    sizes = array.shape[1:] if batched else array.shape
    fits = len(sizes) == len(dims) and all(dim in (-1, size) for dim, size in zip(dims, sizes, strict=True))
    if not fits or (batched and not array.ndim):
        raise InvalidInput(
            f"input {tensor['name']}",
            found=f"shape {list(array.shape)}",
            wanted=f"{['batch', *dims] if batched else dims}",
        )
    return array


def _dtype(name: str, data_type: str) -> str:
    """numpy's name of an input's type in the configuration."""
    datatype = BY_CONFIG.get(f"TYPE_{data_type.removeprefix('TYPE_')}")
    if datatype is None or datatype.name == "BF16":
        wanted = "a type of Triton that numpy has; BF16 needs a test on a server"
        raise InvalidInput(f"input {name}", found=f"data_type {data_type}", wanted=wanted)
    return datatype.numpy or "object"


def _as_bytes(array: Array) -> Array:
    """An array of texts as Triton hands it on: of bytes objects."""
    import numpy as np

    flat = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
    texts = np.empty(len(flat), object)
    texts[:] = flat
    return texts.reshape(array.shape)


def arrays_of(tensors: Iterable[Any], names: Collection[str] | None = None) -> dict[str, Array]:
    """Tensors as callers get them: those with these names, and texts as bytes."""
    arrays = {tensor.name(): tensor.as_numpy() for tensor in tensors if names is None or tensor.name() in names}
    return {name: _as_bytes(array) if array.dtype.kind in "OS" else array for name, array in arrays.items()}


_START, _END, _READY, _ID = (f"CONTROL_SEQUENCE_{kind}" for kind in ("START", "END", "READY", "CORRID"))


def sequence_controls(
    config: Mapping[str, Any], request: PythonRequest, arrays: Mapping[str, Array]
) -> dict[str, Array]:
    """The inputs that Triton's sequence batcher adds to a request."""
    import numpy as np

    batching = config.get("sequence_batching")
    if batching is None:
        return {}
    if not request.sequence_id:
        raise InvalidInput("sequence_id", found="none", wanted="the ID of a sequence: the model keeps sequences")
    if batching.get("state"):
        raise InvalidInput("sequence_batching", found="states that Triton keeps", wanted="a test on a server")
    values = {_START: request.sequence_start, _END: request.sequence_end, _READY: True, _ID: request.sequence_id}
    batch = [len(next(iter(arrays.values())))] if int(config.get("max_batch_size", 0)) else []
    controls = {}
    for tensor in batching.get("control_input", []):
        for control in tensor.get("control", []):
            value = values[control.get("kind", _START)]
            kind = next((name for name in ("int32", "fp32", "bool") if f"{name}_false_true" in control), "")
            if kind:
                value = control[f"{kind}_false_true"][int(bool(value))]
            flag = {"fp32": "float32"}.get(kind, kind)
            dtype = flag or _dtype(tensor["name"], control.get("data_type", "TYPE_UINT64"))
            controls[tensor["name"]] = np.full([*batch, 1], value, dtype)
    return controls
