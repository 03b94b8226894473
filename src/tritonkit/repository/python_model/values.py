"""A request to a model's Python, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonkit.errors import InferenceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["PythonAnswer", "PythonRequest"]


@dataclass(frozen=True)
class PythonRequest:
    """One request to a model.

    Args:
        inputs: arrays by name, with the batch axis first if the model has one.
        outputs: the outputs that the caller wants; all by default.
        request_id: the caller's ID.
        parameters: the caller's parameters.
        sequence_id: the ID of its sequence; 0 without one.
        sequence_start: whether it is the first of its sequence.
        sequence_end: whether it is the last.
        timeout_us: microseconds that it may wait; 0 without a limit.
        cancelled: whether the caller has gone, as `request.is_cancelled()` tells it.
    """

    inputs: Mapping[str, Any]
    outputs: Sequence[str] = ()
    request_id: str = ""
    parameters: Mapping[str, bool | int | str] = field(default_factory=dict)
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    timeout_us: int = 0
    cancelled: bool = False


@dataclass(frozen=True)
class PythonAnswer:
    """The answer to one request.

    Args:
        responses: the outputs of each response, by name: one, or any number from a decoupled model.
        error: the error of the last response, if it was one.
        code: its kind as `TritonError` names it, such as `INVALID_ARG`; empty without an error.
    """

    responses: tuple[Mapping[str, Array], ...]
    error: InferenceError | None = None
    code: str = ""

    @property
    def outputs(self) -> Mapping[str, Array]:
        """The outputs of the only response.

        Raises:
            InferenceError: the answer is an error, or not one response.
        """
        if self.error is not None:
            raise self.error
        if len(self.responses) != 1:
            raise InferenceError(
                "answer", found=f"{len(self.responses)} responses", wanted="one, or a look at `responses`"
            )
        return self.responses[0]

    def __getitem__(self, name: str) -> Array:
        return self.outputs[name]
