"""Helpers that the adapters of all steps share; the publisher copies this file next to each `model.py`.

A step's `model.py` has three tasks: read its settings, read a request, hand arrays to its core. A `ValueError` about a
request becomes that request's own error response; its neighbors in the same `execute()` are answered.
"""

from __future__ import annotations

import json
import typing
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Settings = TypeVar("Settings")
Item = TypeVar("Item")
Arrays = dict[str, np.ndarray]
TRUE_FALSE = {"1": True, "true": True, "0": False, "false": False}


class Busy(Exception):
    """A valid request that does not fit next to those that Triton merged with it; the caller may send it again."""


class Passed(Exception):
    """The error of another model, whose words say it all; `code` is a name of Triton's errors."""

    def __init__(self, message: str, code: str = "INTERNAL") -> None:
        super().__init__(message)
        self.code = code


def settings_from(kind: type[Settings], parameters: Mapping[str, str]) -> Settings:
    """Build a frozen dataclass from parameter texts; fields without a text keep their default.

    Field types: int, float, str, bool (`true`, `false`, `1`, `0`), and `tuple[float, ...]` or
    `tuple[int, ...]` written with commas. Parameters that are not fields are Triton's and ignored.

    Raises:
        ValueError: a text is not of its field's type, or the dataclass refuses the values.
    """
    types = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {name: _parse(f"parameter {name}", parameters[name], types[name]) for name in names if name in parameters}
    return kind(**values)


def _parse(where: str, text: str, kind: Any) -> Any:
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        return tuple(_parse(where, part, inner) for part in text.split(",") if part.strip())
    try:
        return TRUE_FALSE[text.strip().lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise ValueError(f"{where}: found '{text}', wanted {kind.__name__}") from None


class Step:
    """The published model an adapter runs in, from the `args` Triton gives to `initialize`."""

    def __init__(self, args: Mapping[str, str]) -> None:
        """Read `args`, and keep only the parts that steps need."""
        config = json.loads(args["model_config"])
        self.name = args["model_name"]
        self.batched = config.get("max_batch_size", 0) > 0
        self.parameters: dict[str, str] = {
            key: value.get("string_value", "") for key, value in config.get("parameters", {}).items()
        }
        self._folder = Path(args["model_repository"])
        self._version = args["model_version"]

    def hold_windows(self, windows: bool) -> None:
        """Refuse batches of documents: with windows, a request is one document, and its windows are the batch.

        Raises:
            ValueError: the configuration has a batch axis.
        """
        if windows and self.batched:
            raise ValueError("parameter windows: found true with a batch axis, wanted max_batch_size: 0")

    def file(self, parameter: str) -> Path:
        """The file a parameter names, in the version's folder or in the model's.

        Raises:
            ValueError: the parameter is missing, is not a bare file name, or there is no such file.
        """
        name = self.parameters.get(parameter, "")
        if not name or Path(name).name != name:
            raise ValueError(f"parameter {parameter}: found '{name}', wanted a file name")
        for folder in (self._folder / self._version, self._folder):
            if (folder / name).is_file():
                return folder / name
        raise ValueError(f"parameter {parameter}: no file {name} in {self._folder}")

    def read(self, request: Any, name: str) -> np.ndarray:
        """An input of a request, always with a batch axis first."""
        array = self.read_optional(request, name)
        if array is None:
            raise ValueError(f"input '{name}' is missing")
        return array

    def rows(self, request: Any, names: Sequence[str], windows: bool) -> Arrays:
        """Inputs with an axis of items first, or of windows, where a request is a document in windows."""
        arrays = {name: self.read(request, name) for name in names}
        return {name: array[0] for name, array in arrays.items()} if windows else arrays

    def read_optional(self, request: Any, name: str) -> np.ndarray | None:
        """The same for an input that a request may leave out; None where it does."""
        for tensor in request.inputs():
            if tensor.name() == name:
                array: np.ndarray = tensor.as_numpy()
                return array if self.batched else array[None]
        return None

    def answer(
        self,
        requests: Sequence[Any],
        read: Callable[[Any], Item],
        compute: Callable[[list[Item]], Sequence[Arrays | Exception]],
    ) -> list[Any]:
        """Triton's responses: `read` each request, then `compute` all readable ones in one call.

        `read` raises ValueError for a bad item and names it. `compute` gives an exception in place of a request's
        outputs. If it raises one for several requests together, it is called for each alone, so that only the bad
        requests get an error.
        """
        responses: list[Any] = [None] * len(requests)
        items: dict[int, Item] = {}
        for index, request in enumerate(requests):
            try:
                items[index] = read(request)
            except Exception as error:  # an error of one request must not fail the others
                responses[index] = self._error(error)
        for index, result in zip(items, self._computed(list(items.values()), compute), strict=True):
            failed = isinstance(result, Exception)
            responses[index] = self._error(result) if failed else self._response(result)
        return responses

    def _computed(self, items: list[Item], compute: Callable[[list[Item]], Sequence[Arrays | Exception]]) -> list[Any]:
        if not items:
            return []
        try:
            return list(compute(items))
        except Exception as error:
            if len(items) == 1:
                return [error]
        return [self._computed([item], compute)[0] for item in items]

    def _response(self, outputs: Arrays) -> Any:
        import triton_python_backend_utils as pb_utils  # exists only inside Triton's stub

        tensors = [pb_utils.Tensor(name, array if self.batched else array[0]) for name, array in outputs.items()]
        return pb_utils.InferenceResponse(tensors)

    def _error(self, error: Any) -> Any:
        import triton_python_backend_utils as pb_utils

        kinds = pb_utils.TritonError
        text = f"{error}"
        if isinstance(error, ValueError):
            kind = kinds.INVALID_ARG
        elif isinstance(error, Busy):
            kind = kinds.UNAVAILABLE
        elif isinstance(error, Passed):
            kind = getattr(kinds, error.code)
        else:
            kind, text = kinds.INTERNAL, f"{type(error).__name__}: {error}"
        triton_error = pb_utils.TritonError(f"model '{self.name}': {text}", kind)
        return pb_utils.InferenceResponse(output_tensors=[], error=triton_error)


@contextmanager
def loading(args: Mapping[str, str]) -> Iterator[Step]:
    """The step, with a ValueError inside turned into Triton's "this model cannot load"."""
    import triton_python_backend_utils as pb_utils

    try:
        yield Step(args)
    except ValueError as error:
        message = f"model '{args['model_name']}': {error}"
        raise pb_utils.TritonModelException(message) from error
