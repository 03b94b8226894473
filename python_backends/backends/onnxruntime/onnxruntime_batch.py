"""Runs the requests of one `execute()` through a session, merged where their shapes allow.

Knows nothing of Triton: requests are names and arrays, so all of it is tested with a plain session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from onnxruntime_config import TRITON_TO_NUMPY

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from onnxruntime_config import TensorSpec

Arrays = dict[str, np.ndarray]


class RequestError(Exception):
    """One request cannot be answered; its neighbours in the batch can."""


@dataclass(frozen=True)
class Request:
    """Input arrays by name (batch axis first where the model has one) and the outputs wanted."""

    inputs: Mapping[str, np.ndarray]
    outputs: Sequence[str]


@dataclass(frozen=True)
class Network:
    """A session and what it takes.

    `optional` are the inputs with a default; `scalars` gives, for outputs of rank 0, the shape the
    configuration shows them in.
    """

    name: str
    session: Any  # onnxruntime.InferenceSession
    inputs: Mapping[str, TensorSpec]
    batched: bool
    optional: Mapping[str, TensorSpec] = field(default_factory=dict)
    scalars: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    run_options: Any = None  # onnxruntime.RunOptions

    def answer(self, requests: Sequence[Request]) -> list[Arrays | RequestError]:
        """One result per request, in order: its outputs by name, or why it has none."""
        results: list[Arrays | RequestError] = [RequestError("not run")] * len(requests)
        feeds: dict[int, Arrays] = {}
        groups: dict[Hashable, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                feeds[index] = self._checked(request.inputs)
            except RequestError as refused:
                results[index] = refused
                continue
            key = _shape_key(feeds[index]) if self.batched else index
            groups.setdefault(key, []).append(index)
        for members in groups.values():
            wanted = list(dict.fromkeys(name for i in members for name in requests[i].outputs))
            answers = self._run_group([feeds[i] for i in members], wanted)
            for index, answer in zip(members, answers, strict=True):
                results[index] = answer
        return results

    def _run_group(self, feeds: list[Arrays], wanted: list[str]) -> list[Arrays | RequestError]:
        """Run requests of equal shapes as one batch; if that fails, each alone to find the bad."""
        if len(feeds) == 1:
            return [self._run_alone(feeds[0], wanted)]
        edges = [0, *accumulate(_batch_size(feed) for feed in feeds)]
        merged = {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
        try:
            outputs = self._run(merged, wanted)
        except RequestError:
            return [self._run_alone(feed, wanted) for feed in feeds]
        return [
            {name: output[start:stop] for name, output in outputs.items()}  # views
            for start, stop in pairwise(edges)
        ]

    def _run_alone(self, feed: Arrays, wanted: list[str]) -> Arrays | RequestError:
        try:
            return self._run(feed, wanted)
        except RequestError as refused:
            return refused

    def _run(self, feed: Arrays, wanted: list[str]) -> Arrays:
        try:
            values = self.session.run(wanted, feed, self.run_options)
        except Exception as error:  # its classes are unrelated: Fail, InvalidArgument, RuntimeError
            raise RequestError(f"model '{self.name}': ONNX Runtime: {error}") from error
        outputs = dict(zip(wanted, values, strict=True))
        if self.batched:
            self._check_batch_axis(outputs, _batch_size(feed))
        for name, shape in self.scalars.items():
            if name in outputs:
                outputs[name] = np.reshape(outputs[name], shape)
        return outputs

    def _check_batch_axis(self, outputs: Arrays, batch: int) -> None:
        for name, output in outputs.items():
            if output.ndim == 0 or len(output) != batch:
                raise RequestError(
                    f"model '{self.name}', output '{name}': found shape {list(output.shape)},"
                    f" wanted {batch} on its first axis, the batch"
                )

    def _checked(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The arrays as ONNX Runtime takes them; no copy is made except of strings."""
        for name in self.inputs:
            if name not in inputs:
                raise RequestError(
                    f"model '{self.name}': input '{name}' is missing; found {sorted(inputs)}"
                )
        feed = {}
        for name, array in inputs.items():
            spec = self.inputs.get(name) or self.optional.get(name)
            if spec is None:
                raise RequestError(
                    f"model '{self.name}': input '{name}' is not the model's; it has"
                    f" {sorted(self.inputs)}"
                )
            feed[name] = _fit(array, spec, f"model '{self.name}', input '{name}'")
        if self.batched and len({len(array) for array in feed.values()}) > 1:
            sizes = {name: len(array) for name, array in feed.items()}
            raise RequestError(f"model '{self.name}': inputs differ in batch size: {sizes}")
        return feed


def _fit(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    if array.dtype != TRITON_TO_NUMPY[spec.dtype]:
        raise RequestError(
            f"{where}: found {array.dtype}, wanted {np.dtype(TRITON_TO_NUMPY[spec.dtype])}"
        )
    if not spec.dims and array.size == 1:
        array = array.reshape(())
    fits = array.ndim == len(spec.dims) and all(
        want in (-1, have) for want, have in zip(spec.dims, array.shape, strict=True)
    )
    if not fits:
        raise RequestError(
            f"{where}: found shape {list(array.shape)}, wanted {list(spec.dims)}"
            " (-1 is any size, the batch included)"
        )
    return _decoded(array, where) if spec.dtype == "BYTES" else array


def _decoded(array: np.ndarray, where: str) -> np.ndarray:
    """Bytes to str, which is what ONNX Runtime's Python takes for a string tensor."""
    texts = np.empty(array.size, dtype=object)
    for index, value in enumerate(array.ravel()):
        try:
            texts[index] = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(
                f"{where}: element {index} is not valid UTF-8 at byte {error.start}"
            ) from None
    return texts.reshape(array.shape)


def _shape_key(feed: Arrays) -> Hashable:
    return tuple(sorted((name, array.shape[1:]) for name, array in feed.items()))


def _batch_size(feed: Arrays) -> int:
    return len(next(iter(feed.values())))
