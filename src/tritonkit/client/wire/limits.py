"""Upper bounds on response size, so that a server cannot make the client buffer without limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tritonkit.client.wire.tensors import FIXED
from tritonkit.client.wire.transport import LONGEST_MESSAGE
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.client.wire.signature import ModelSignature, TensorSpec

__all__ = ["ADMIN_BYTES", "ANSWER_BYTES", "AnswerLimit"]


ANSWER_BYTES: Final = 64 * 2**20
"""Bytes of an inference's answer, unless a model declares outputs that need more."""
ADMIN_BYTES: Final = 4 * 2**20
"""Bytes of any other answer, such as a model's metadata: gRPC's own default."""

_SPARE: Final = 4
"""Allowed multiple of the declared outputs' size, for names, parameters and batches of any kind."""
_OPEN_BYTES: Final = 64 * 2**20
"""Assumed bytes of an output of numbers with an open shape."""

_MOST_AXES: Final = 64
"""Numpy's limit; the product of a million sizes would never end."""

_INFERENCE: Final = frozenset({"ModelInfer", "ModelStreamInfer"})


class AnswerLimit:
    """Bytes that one message of a server may have; one value for all connections of a client.

    Args:
        bytes_: the limit for every message, as the user set it; None: the defaults above, which grow with the
            models that the client learns.

    Raises:
        UsageError: the limit is not a whole number above 0.
    """

    def __init__(self, bytes_: int | None = None) -> None:
        if bytes_ is not None and (type(bytes_) is not int or bytes_ < 1):
            raise UsageError(
                "max_response_bytes",
                found=repr(bytes_),
                wanted="a whole number of bytes above 0, or None for the default",
            )
        self._fixed = bytes_ is not None
        self._inference = min(bytes_ or ANSWER_BYTES, LONGEST_MESSAGE)
        self._admin = min(bytes_ or ADMIN_BYTES, LONGEST_MESSAGE)

    def of(self, method: str) -> int:
        """The most bytes of a message that answers this call."""
        return self._inference if method in _INFERENCE else self._admin

    def learn(self, signature: ModelSignature) -> None:
        """Allow what a model declares; a limit that the user has set stays as it is."""
        if not self._fixed:
            largest = sum(_bytes(spec, signature) for spec in signature.outputs.values())
            self._inference = min(max(self._inference, _SPARE * largest), LONGEST_MESSAGE)


def _bytes(spec: TensorSpec, signature: ModelSignature) -> int:
    """Most bytes of one output; texts have no declared size and count as none."""
    if spec.datatype == "BYTES":
        return 0
    if len(spec.dims) > _MOST_AXES or any(size < 0 for size in spec.dims):
        return _OPEN_BYTES
    dtype = FIXED.get(spec.datatype)
    items = signature.max_batch_size if spec.batched else 1
    return items * math.prod(spec.dims) * (2 if dtype is None else dtype.itemsize)
