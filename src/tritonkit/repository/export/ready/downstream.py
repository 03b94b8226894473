"""Tensors after the network: its outputs by item, and the outputs of the steps that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.errors import BuildError
from tritonkit.repository.export.ready.prepared import Item, PreparedSamples
from tritonkit.repository.export.ready.step_runner import StepRefusal
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import Spec

__all__ = ["Downstream", "Output"]


@dataclass(frozen=True)
class Output:
    """A tensor after the network: numpy's kind of its dtype (`f`, `i`, `O` for texts), and its shape for one item."""

    name: str
    kind: str
    shape: tuple[int, ...]
    step: int | None
    """The step that gives it; None for the network."""
    final: bool
    """Whether no later step takes it, so that callers get it."""

    @property
    def text(self) -> str:
        """The tensor in messages: `logits (floats [10])`."""
        kinds = {"f": "floats", "O": "texts", "b": "bools"}
        return f"{self.name} ({kinds.get(self.kind, 'integers')} {list(self.shape)})"


class Downstream:
    """The tensors after a network, for the items of samples."""

    def __init__(self, spec: Spec, prepared: PreparedSamples, batched: bool) -> None:
        self._spec = spec
        self._prepared = prepared
        self._batched = batched
        self._flow = prepared.flow(spec, "quality.metric")

    def outputs(self, batch: Batch) -> list[Output]:
        """All tensors after the network; the batch shows the types and shapes of its outputs."""
        flow = self._flow
        outputs = [
            Output(name, _kind(array.dtype), self._item(array, 0).shape, None, self._is_final(name, None))
            for name, array in batch.items()
        ]
        for index in range(flow.before, len(flow.steps)):
            for own, tensor in flow.outputs(index).items():
                dtype, shape = flow.step(index).outputs[own]
                kind = "O" if dtype == "BYTES" else _kind(NUMPY_DTYPES.get(dtype, "float32"))
                outputs = [output for output in outputs if output.name != tensor]
                outputs.append(Output(tensor, kind, shape, index, self._is_final(tensor, index)))
        return outputs

    def _is_final(self, tensor: str, step: int | None) -> bool:
        flow = self._flow
        later = range(flow.before if step is None else step + 1, len(flow.steps))
        return not any(
            tensor in flow.inputs(i).values() and flow.producer(tensor, i, flow.before) == step for i in later
        )

    def network_outputs(self, tensor: str, names: Sequence[str]) -> set[str]:
        """The network's outputs, of these names, from which a tensor follows."""
        flow = self._flow
        producer = flow.producer(tensor, len(flow.steps), flow.before)
        return self._followed(tensor, producer, frozenset(names))

    def _followed(self, tensor: str, producer: int | None, names: frozenset[str]) -> set[str]:
        if producer is None:
            return {tensor} & names
        flow, followed = self._flow, set()
        for taken in flow.inputs(producer).values():
            followed |= self._followed(taken, flow.producer(taken, producer, flow.before), names)
        return followed

    def items(self, batches: Sequence[Batch], tensors: Sequence[str]) -> list[Item]:
        """The named tensors of each item, among others.

        Raises:
            BuildError: a step after the network refuses an item.
        """
        items = [
            {name: self._item(array, row) for name, array in batch.items()}
            for batch in batches
            for row in range(self._rows(batch))
        ]
        flow = self._flow
        needed = self._needed(tensors)
        if needed:
            items = [{**before, **item} for before, item in zip(self._before(len(items)), items, strict=True)]
        for index in needed:
            for number, answer in enumerate(flow.run(index, items)):
                if isinstance(answer, StepRefusal):
                    raise self._refused(index, number, answer)
                items[number] |= answer
        return items

    def _needed(self, tensors: Sequence[str]) -> list[int]:
        """The steps after the network that these tensors follow from, in order."""
        flow = self._flow
        left = [(tensor, len(flow.steps)) for tensor in tensors]
        needed: set[int] = set()
        while left:
            tensor, end = left.pop()
            index = flow.producer(tensor, end, flow.before)
            if index is not None:
                needed.add(index)
                left += [(taken, index) for taken in flow.inputs(index).values()]
        return sorted(needed)

    def _before(self, count: int) -> list[Item]:
        """The tensors of items before the network: its inputs, and those that later steps take."""
        inputs = [
            {name: self._item(array, row) for name, array in batch.items()}
            for batch in self._prepared.batches
            for row in range(self._rows(batch))
        ][:count]
        kept = self._prepared.kept or [{}] * len(inputs)
        return [{**taken, **more} for taken, more in zip(inputs, kept, strict=False)]

    def _rows(self, batch: Batch) -> int:
        return len(next(iter(batch.values()))) if self._batched else 1

    def _item(self, array: Any, row: int) -> Any:
        if self._batched:
            return array[row]
        return array[0] if self._prepared.axis_added and array.ndim and len(array) == 1 else array

    def _refused(self, index: int, number: int, refusal: StepRefusal) -> BuildError:
        place = f"item {number}"
        if self._prepared.rows is not None:
            row, _ = self._prepared.item_rows[number]
            place = self._prepared.rows.rows[row].place
        return BuildError(
            f"{self._spec.file} quality.metric",
            found=f"{place}: {refusal}",
            wanted=f"outputs that step {self._flow.step(index).folder.name} takes",
            todo="correct the pipeline, or measure the network's own output: metric: {name: ..., output: NAME}",
        )


def _kind(dtype: Any) -> str:
    import numpy as np

    kind = str(np.dtype(dtype).kind)
    return {"u": "i", "S": "O", "U": "O", "V": "f"}.get(kind, kind)
