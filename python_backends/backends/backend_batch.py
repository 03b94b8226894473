"""Answers the requests of one `execute()`, merged where their shapes allow, each with its own error.

The stand-ins for Triton's native backends share this module. It depends on neither Triton nor an engine: requests are
names and arrays, so it is tested with engines alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from backend_config import TRITON_TO_NUMPY
from backend_padding import Padding, split

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from backend_config import TensorSpec

Arrays = dict[str, np.ndarray]


class RequestError(Exception):
    """One request cannot be answered; its neighbors in the batch can."""


class Engine(Protocol):
    """An engine that runs a network."""

    def begin(self) -> None:
        """From now on, earlier arrays from `run` may be overwritten."""

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs by name for parts that are joined along the first axis.

        A single part is passed unchanged. Raises RequestError.
        """


@dataclass(frozen=True)
class Request:
    """Input arrays by name (batch axis first if the model has one), and the requested outputs."""

    inputs: Mapping[str, np.ndarray]
    outputs: Sequence[str]


@dataclass(frozen=True)
class Network:
    """An engine with a network, and the tensors it takes.

    `optional` are the inputs with a default. `scalars` gives the configured shape of outputs of rank 0, and `padding`
    the axes whose sizes may differ within a batch.
    """

    name: str
    engine: Engine
    inputs: Mapping[str, TensorSpec]
    batched: bool
    optional: Mapping[str, TensorSpec] = field(default_factory=dict)
    scalars: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    padding: Padding = field(default_factory=Padding)

    def answer(self, requests: Sequence[Request]) -> list[Arrays | RequestError]:
        """One result per request, in order: its outputs by name, or the reason why it has none.

        Arrays are views of the engine's memory, valid until the next call.
        """
        self.engine.begin()
        results: list[Arrays | RequestError] = [RequestError("not run")] * len(requests)
        feeds: dict[int, Arrays] = {}
        groups: dict[Hashable, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                feeds[index] = self._checked(request.inputs)
            except RequestError as refused:
                results[index] = refused
                continue
            key = self._shape_key(feeds[index]) if self.batched else index
            groups.setdefault(key, []).append(index)
        for members in (run for group in groups.values() for run in self._runs(group, feeds)):
            names = list(dict.fromkeys(name for i in members for name in requests[i].outputs))
            answers = self._run_group([feeds[i] for i in members], names)
            for index, answer in zip(members, answers, strict=True):
                results[index] = answer
        return results

    def _runs(self, group: list[int], feeds: Mapping[int, Arrays]) -> list[list[int]]:
        """The requests of a group that run together: all of them, unless their lengths differ too much."""
        if not self.padding.inputs or len(group) == 1:
            return [group]
        falling = sorted(group, key=lambda index: -self._length(feeds[index]))
        sizes = [(self._length(feeds[index]), batch_size(feeds[index])) for index in falling]
        runs = split(sizes, self.padding.run_cost, self.padding.most)
        return [[falling[place] for place in run] for run in runs]

    def _run_group(self, feeds: list[Arrays], names: list[str]) -> list[Arrays | RequestError]:
        """Run requests of equal shapes as one batch; if that fails, run each alone to find the bad one."""
        if len(feeds) == 1:
            return [self._run_alone(feeds[0], names)]
        edges = [0, *accumulate(batch_size(feed) for feed in feeds)]
        lengths = [self._length(feed) for feed in feeds]
        try:
            outputs = self._run([self.padding.padded(feed, max(lengths)) for feed in feeds], names)
        except RequestError:
            return [self._run_alone(feed, names) for feed in feeds]
        return [
            self.padding.cut({name: output[start:stop] for name, output in outputs.items()}, length)
            for (start, stop), length in zip(pairwise(edges), lengths, strict=True)  # views
        ]

    def _run_alone(self, feed: Arrays, names: list[str]) -> Arrays | RequestError:
        try:
            return self._run([feed], names)
        except RequestError as refused:
            return refused

    def _run(self, feeds: list[Arrays], names: list[str]) -> Arrays:
        try:
            outputs = self.engine.run(feeds, names)
        except RequestError as refused:
            raise RequestError(f"model '{self.name}': {refused}") from refused
        if self.batched:
            self._check_batch_axis(outputs, sum(map(batch_size, feeds)))
        self._check_lengths(outputs, self._length(feeds[0]))
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

    def _check_lengths(self, outputs: Arrays, length: int) -> None:
        for name, axis in self.padding.outputs.items():
            if name in outputs and outputs[name].shape[axis : axis + 1] != (length,):
                raise RequestError(
                    f"model '{self.name}', output '{name}': found shape {list(outputs[name].shape)},"
                    f" wanted {length} on axis {axis}, as the inputs have (parameter tritonkit.pad)"
                )

    def _length(self, feed: Arrays) -> int:
        """Length of the request's padded inputs; 0 without any."""
        return next(iter(self.padding.lengths(feed).values()), 0)

    def _shape_key(self, feed: Arrays) -> Hashable:
        """The properties that requests of one batch have in common."""
        return tuple(sorted((n, self.padding.shape_but_length(n, a.shape)) for n, a in feed.items()))

    def _checked(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The arrays in the form that engines take; only strings are copied."""
        for name in self.inputs:
            if name not in inputs:
                raise RequestError(f"model '{self.name}': input '{name}' is missing; found {sorted(inputs)}")
        feed = {}
        for name, array in inputs.items():
            spec = self.inputs.get(name) or self.optional.get(name)
            if spec is None:
                raise RequestError(
                    f"model '{self.name}': input '{name}' is not the model's; it has {sorted(self.inputs)}"
                )
            feed[name] = _fit(array, spec, f"model '{self.name}', input '{name}'")
        if self.batched and len({len(array) for array in feed.values()}) > 1:
            sizes = {name: len(array) for name, array in feed.items()}
            raise RequestError(f"model '{self.name}': inputs differ in batch size: {sizes}")
        lengths = self.padding.lengths(feed)
        for name, length in lengths.items():
            if length != (expected := next(iter(lengths.values()))):
                raise RequestError(
                    f"model '{self.name}': input '{name}': found length {length}, wanted {expected}, that of the"
                    " inputs before"
                )
        return feed


def batch_size(feed: Arrays) -> int:
    """Items in a batch."""
    return len(next(iter(feed.values())))


def joined(parts: Sequence[Arrays]) -> Arrays:
    """The parts joined along their first axis; a single one unchanged."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _fit(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    if array.dtype != TRITON_TO_NUMPY[spec.dtype]:
        raise RequestError(f"{where}: found {array.dtype}, wanted {np.dtype(TRITON_TO_NUMPY[spec.dtype])}")
    if not spec.dims and array.size == 1:
        array = array.reshape(())
    fits = array.ndim == len(spec.dims) and all(
        want in (-1, have) for want, have in zip(spec.dims, array.shape, strict=True)
    )
    if not fits:
        raise RequestError(
            f"{where}: found shape {list(array.shape)}, wanted {list(spec.dims)} (-1 is any size, the batch included)"
        )
    return _decoded(array, where) if spec.dtype == "BYTES" else array


def _decoded(array: np.ndarray, where: str) -> np.ndarray:
    """Bytes as str, the form of a string tensor in ONNX Runtime's Python."""
    texts = np.empty(array.size, dtype=object)
    for index, value in enumerate(array.ravel()):
        try:
            texts[index] = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(f"{where}: element {index} is not valid UTF-8 at byte {error.start}") from None
    return texts.reshape(array.shape)
