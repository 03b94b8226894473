"""Answers a model's calls of other models by functions, or by other models in this process."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from tritonkit.errors import TritonkitError
from tritonkit.repository.python_model.requests import arrays_of
from tritonkit.repository.python_model.values import PythonAnswer, PythonRequest

if TYPE_CHECKING:
    from tritonkit.repository.python_model.model import PythonModel

__all__ = ["Callee", "Responder"]

Callee: TypeAlias = Union[Callable[..., Any], "PythonModel"]
"""A function of the input arrays by name, or a model."""


class Responder:
    """The models that one model calls.

    Args:
        models: functions and models by name.
    """

    def __init__(self, models: Mapping[str, Callee]) -> None:
        self._models = dict(models)
        self._triton: Any = None

    def bound(self, triton: Any, caller: str) -> Responder:
        """The same, with the module whose classes the caller knows."""
        self._triton, self._caller = triton, caller
        return self

    def is_ready(self, name: str) -> bool:
        """Whether there is a model of this name."""
        return name in self._models

    def __call__(self, request: Any) -> Iterator[Any]:
        """The responses to a request; the answer of a model that is not there is an error, as in Triton."""
        callee = self._models.get(request.model_name())
        if callee is None:
            name = request.model_name()
            yield self._failed(
                f"Model {name} - Error when running inference: Failed for execute the inference request. Model '{name}'"
                " is not ready."
            )
            return
        arrays = arrays_of(request.inputs())
        try:
            if not callable(callee):
                yield from self._answer(callee.execute([_same(arrays, request)])[0])
                return
            for outputs in _outputs(callee, arrays):
                names = request.requested_output_names()
                yield self._response({name: array for name, array in outputs.items() if name in names})
        except TritonkitError as error:
            yield self._failed(error.found)
        except Exception as error:
            yield self._failed(f"{type(error).__name__}: {error}")

    def _answer(self, answer: PythonAnswer) -> Iterator[Any]:
        """The responses of another model."""
        for outputs in answer.responses:
            yield self._response(outputs)
        if answer.error is not None:
            code = getattr(self._triton.TritonError, answer.code)
            yield self._triton.InferenceResponse(error=self._triton.TritonError(answer.error.found, code))

    def _response(self, outputs: Mapping[str, Any]) -> Any:
        return self._triton.InferenceResponse([self._triton.Tensor(name, array) for name, array in outputs.items()])

    def _failed(self, words: str) -> Any:
        return self._triton.InferenceResponse(error=self._triton.TritonError(words))


def _outputs(function: Callable[..., Any], arrays: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The outputs of each response of a function."""
    result = function(**arrays)
    yield from result if inspect.isgenerator(result) else [result]


def _same(arrays: dict[str, Any], request: Any) -> PythonRequest:
    """A request of Triton's module as a test would write it."""
    flags = request.flags()
    return PythonRequest(
        arrays,
        request.requested_output_names(),
        request.request_id(),
        json.loads(request.parameters()),
        request.correlation_id(),
        bool(flags & 1),
        bool(flags & 2),
        request.timeout(),
    )
