"""Tensors that came as typed fields (`InferTensorContents`), as some servers answer.

Triton sends raw bytes; the protocol allows this too, with one repeated field for each kind of number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.wire.tensors import FIXED
from tritonkit.datatypes import DATATYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["typed_array"]

_WIDEST = {"b": "?", "i": "<i8", "u": "<u8", "f": "<f8"}
"""The type that holds every number of a field, by numpy's kind: fields are wider than some of their datatypes."""


def typed_array(contents: Any, datatype: str, shape: Sequence[int]) -> NDArray[Any]:
    """A read-only array of the elements in an `InferTensorContents` message.

    Raises:
        ValueError: they do not fill the shape, or are numbers that the datatype cannot hold; or the
            datatype has no field there.
    """
    row = DATATYPES.get(datatype)
    field = row.contents_field if row is not None else None
    if field is None:
        raise ValueError(f"no raw bytes for a tensor of datatype {datatype!r}")
    values = getattr(contents, contents.DESCRIPTOR.fields_by_number[field].name)
    if datatype == "BYTES":
        array = np.empty(len(values), dtype=object)
        array[:] = values
    else:
        dtype = FIXED[datatype]
        wide = np.fromiter(values, _WIDEST[dtype.kind], len(values))
        array = wide.astype(dtype)
        if dtype.kind != "f" and not np.array_equal(array, wide):
            raise ValueError(f"numbers past the range of {dtype.name}")
    array = array.reshape(shape)
    array.flags.writeable = False
    return array
