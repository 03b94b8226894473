"""Samples in files as input of the network: rows go through the pipeline's own steps, and outputs through the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.export.ready.cells import content_of, to_array
from tritonkit.repository.export.ready.rows import CLASS, FILE, Row, Rows, read_rows
from tritonkit.repository.export.ready.step_runner import StepRefusal, StepRunner
from tritonkit.repository.modelspec import PipelineStep, ResolvedStep, SampleFiles, Spec
from tritonkit.repository.modelspec.quality import LABEL_COLUMNS

__all__ = ["Flow", "PreparedSamples", "missing_column", "prepare"]

_BATCH = 32
_MOST_BYTES = 4 << 30
"""Most memory that the tensors of all items take: the reference keeps its outputs for them too."""

Item: TypeAlias = dict[str, Any]
"""Name of a pipeline's tensor -> array without a batch axis."""


class Flow:
    """The flow of tensors through the steps of a pipeline; it has no steps for a network alone."""

    def __init__(self, spec: Spec, place: str) -> None:
        parts = list(zip(spec.steps, spec.model.pipeline, strict=True))
        self.steps = [(step, part) for step, part in parts if step and isinstance(part, PipelineStep)]
        place_of_network = [part for _, part in parts].index("network") if spec.steps else 0
        self.before = sum(step is not None for step in spec.steps[:place_of_network])
        """Number of steps before the network. Other networks do not run here: rows have to have their outputs."""
        self._where = f"{spec.file} {place}"
        self._runners = [StepRunner(step, self._where) for step, _ in self.steps]

    def step(self, index: int) -> ResolvedStep:
        """A step of the pipeline, the network not counted."""
        return self.steps[index][0]

    def inputs(self, index: int) -> dict[str, str]:
        """A step's inputs with the pipeline's names of them."""
        step, entry = self.steps[index]
        return {name: entry.inputs.get(name, name) for name in step.inputs}

    def outputs(self, index: int) -> dict[str, str]:
        """A step's outputs with the pipeline's names of them."""
        step, entry = self.steps[index]
        return {name: entry.outputs.get(name, name) for name in step.outputs}

    def producer(self, tensor: str, end: int, start: int = 0) -> int | None:
        """The last step from `start` to before `end` that gives a tensor."""
        return next((i for i in reversed(range(start, end)) if tensor in self.outputs(i).values()), None)

    def run(self, index: int, items: Sequence[Item]) -> list[Item | StepRefusal]:
        """The outputs of a step, by the pipeline's names, for items that have its inputs.

        Raises:
            BuildError: the step takes or gives windows, of which an item has several.
        """
        if self.step(index).windows:
            raise BuildError(
                self._where,
                found=f"step {self.step(index).folder.name} has windows: true, and a sample is one item",
                wanted="samples and metrics without windows of a document",
                todo="give the network's own inputs as samples (npz: FILE, or a function), and measure its own outputs"
                " (metric: {name: ..., output: NAME})",
            )
        inputs, outputs = self.inputs(index), self.outputs(index)
        given = [{name: item[tensor] for name, tensor in inputs.items() if tensor in item} for item in items]
        return [
            answer if isinstance(answer, StepRefusal) else {outputs[n]: a for n, a in answer.items() if n in outputs}
            for answer in self._runners[index].run(given)
        ]


@dataclass(frozen=True)
class PreparedSamples:
    """Batches of the network's input, with the rows of their items.

    Args:
        batches: the network's input.
        rows: the rows that items come from; None for samples of a function.
        item_rows: the row of each item, in the order of the batches; and for pairs, which of the two it is.
        kept: each item's tensors that steps after the network take, apart from the network's own.
    """

    batches: list[dict[str, Any]]
    rows: Rows | None = None
    item_rows: list[tuple[int, int]] = field(default_factory=list)
    kept: list[Item] = field(default_factory=list)
    axis_added: bool = False
    """Whether items got a first axis of size 1 for a network without a batch axis."""
    _flows: dict[str, Flow] = field(default_factory=dict, init=False, repr=False, compare=False)

    def flow(self, spec: Spec, place: str) -> Flow:
        """The steps for a field of model.yaml, which are opened once for all metrics and variants."""
        if place not in self._flows:
            self._flows[place] = Flow(spec, place)
        return self._flows[place]


@dataclass
class _Preparation:
    """Rows that become items; columns are looked up by the names of the pipeline's tensors."""

    spec: Spec
    signature: Signature
    place: str
    files: SampleFiles
    rows: Rows
    flow: Flow
    axis_added: bool = False

    @cached_property
    def _named_files(self) -> frozenset[str]:
        """Inputs whose cells name files."""
        if self.files.files is not None:
            return frozenset(self.files.files)
        if self.files.folder is not None:
            return frozenset(name for name, column in self._columns.items() if column == FILE)
        return frozenset(name for name, example in self.spec.model.example.items() if example.file is not None)

    @cached_property
    def _columns(self) -> dict[str, str | tuple[str, ...]]:
        """Inputs with their columns, where these have other names."""
        columns: dict[str, str | tuple[str, ...]] = dict(self.files.inputs)
        outer = [name for name in self._outer if name not in columns]
        if self.files.folder is not None and len(outer) == 1:
            columns[outer[0]] = FILE
        elif len(self._outer) == 1 and not self.flow.steps and not self._has(outer, self.files.pairs):
            self._add_vector(columns)
        return columns

    def _has(self, names: Sequence[str], more: Mapping[str, Any]) -> bool:
        return not names or names[0] in self.rows.columns or names[0] in more

    def _add_vector(self, columns: dict[str, str | tuple[str, ...]]) -> None:
        """Take all columns but those of labels as the elements of the network's only input, if it is a vector."""
        [info] = self.signature.inputs
        apart = {self.files.labels, self.files.group}
        apart |= {metric.labels for metric in self.spec.model.quality.ready.values()}
        if self.files.labels is None:
            apart |= {next((name for name in LABEL_COLUMNS if name in self.rows.columns), None)}
        elements = tuple(name for name in self.rows.columns if name not in apart)
        if len(info.shape) == 1 and info.shape[0] == len(elements) and len(elements) > 1:
            columns[info.name] = elements

    @cached_property
    def _outer(self) -> list[str]:
        """Tensors that no step gives: those that callers send."""
        names = [tensor for i in range(len(self.flow.steps)) for tensor in self._taken(i)]
        names += [
            info.name for info in self.signature.inputs if self.flow.producer(info.name, self.flow.before) is None
        ]
        return list(dict.fromkeys(names))

    def _taken(self, index: int) -> list[str]:
        outputs = {info.name for info in self.signature.outputs} if index >= self.flow.before else set()
        return [
            t for t in self.flow.inputs(index).values() if self.flow.producer(t, index) is None and t not in outputs
        ]

    def items(self, indices: Sequence[int]) -> Iterator[tuple[tuple[int, int], Item, Item]]:
        """Each item's row and side, its input of the network, and the tensors kept for later steps."""
        sides = (0, 1) if self.files.pairs else (0,)
        sources = [(index, side) for index in indices for side in sides]
        for start in range(0, len(sources), _BATCH):
            chunk = sources[start : start + _BATCH]
            values = _Values(self, chunk)
            inputs = {
                info.name: values.of(info.name, self.flow.before, info.dtype, info.shape)
                for info in self.signature.inputs
            }
            kept = values.for_later(inputs)
            for number, source in enumerate(chunk):
                taken = {
                    info.name: self._fitting(inputs[info.name][number], info.shape) for info in self.signature.inputs
                }
                yield source, taken, {name: arrays[number] for name, arrays in kept.items()}

    def _fitting(self, array: Any, shape: Sequence[int]) -> Any:
        """A step's output for a network without a batch axis, whose first axis has the size 1."""
        short = not self.signature.batched and array.ndim == len(shape) - 1 and shape[0] in (1, -1)
        self.axis_added |= short
        return array[None] if short else array

    def has_column(self, tensor: str) -> bool:
        """Whether the rows have a tensor themselves."""
        return tensor in self._columns or tensor in self.files.pairs or tensor in self.rows.columns

    def cell(self, tensor: str, source: tuple[int, int], dtype: str, dims: Sequence[int]) -> Any:
        """A tensor of one row."""
        index, side = source
        row = self.rows.rows[index]
        column = self.files.pairs[tensor][side] if tensor in self.files.pairs else None
        names = column or self._columns.get(tensor, tensor)
        try:
            cells = [self._cell(row, name) for name in ([names] if isinstance(names, str) else names)]
            if tensor in self._named_files:
                inside = self.rows.folder.is_relative_to(self.spec.folder.resolve())
                root = self.spec.folder if inside else self.rows.folder
                cells = [content_of(cell, self.rows.folder, root) for cell in cells]
            value = cells[0] if isinstance(names, str) else [_number(cell) for cell in cells]
            return to_array(value, dtype, dims)
        except ValueError as error:
            found, _, wanted = str(error).partition("; wanted ")
            shown = names if isinstance(names, str) else ", ".join(names)
            raise self.refused(f"{row.place}, {shown} for input {tensor}: {found}", wanted) from None

    def _cell(self, row: Row, column: str) -> Any:
        if column not in self.rows.columns:
            raise self.no_column(column, "")
        if column not in row.values:
            raise ValueError(f"it has no {column!r}; wanted it in each row")
        return row.values[column]

    def no_column(self, column: str, purpose: str) -> BuildError:
        """The error for a column that the source does not have."""
        return missing_column(self.spec, self.place, self.rows, column, purpose)

    def refused(self, found: str, wanted: str = "") -> BuildError:
        """The error for a row that cannot be used."""
        return BuildError(
            f"{self.spec.file} {self.place}", found=found, wanted=wanted, todo="correct or remove that row"
        )


def _number(cell: Any) -> Any:
    return float(cell) if isinstance(cell, str) else cell


def missing_column(spec: Spec, place: str, rows: Rows, column: str, purpose: str) -> BuildError:
    """The error for a column that the source does not have."""
    return BuildError(
        f"{spec.file} {place}",
        found=f"{rows.name} has no column {column!r}{purpose}; it has {', '.join(map(repr, rows.columns)) or 'none'}",
        wanted="a column for each input, and one with the right answers",
        todo=f"name the column: `inputs: {{{column}: COLUMN}}` for an input, `labels: COLUMN` for the right answers",
    )


class _Values:
    """The tensors before the network of a few items, each made once."""

    def __init__(self, preparation: _Preparation, sources: Sequence[tuple[int, int]]) -> None:
        self._preparation = preparation
        self._flow = preparation.flow
        self._sources = sources
        self._made: dict[tuple[str, int | None], list[Any]] = {}

    def of(self, tensor: str, end: int, dtype: str, dims: Sequence[int]) -> list[Any]:
        """A tensor of all items as the part at `end` gets it: a column, or the output of an earlier step."""
        producer = None if self._preparation.has_column(tensor) else self._flow.producer(tensor, end)
        key = (tensor, producer)
        if key not in self._made:
            if producer is not None:
                self._run(producer)
            elif self._preparation.has_column(tensor):
                cell = self._preparation.cell
                self._made[key] = [cell(tensor, source, dtype, dims) for source in self._sources]
            else:
                raise self._preparation.no_column(tensor, " for the input of that name")
        return self._made[key]

    def for_later(self, inputs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The tensors before the network that steps after it take, as far as the rows have them."""
        later: dict[str, list[Any]] = {}
        flow = self._flow
        for index in range(flow.before, len(flow.steps)):
            for name, tensor in flow.inputs(index).items():
                available = self._preparation.has_column(tensor) or flow.producer(tensor, flow.before) is not None
                made_later = flow.producer(tensor, index, flow.before) is not None
                if available and not made_later and tensor not in inputs:
                    later[tensor] = self.of(tensor, flow.before, *flow.step(index).inputs[name])
        return later

    def _run(self, index: int) -> None:
        """Run a step, and keep its outputs."""
        step, given = self._flow.step(index), {}
        for name, tensor in self._flow.inputs(index).items():
            available = self._preparation.has_column(tensor) or self._flow.producer(tensor, index) is not None
            if available or name not in step.optional:
                given[tensor] = self.of(tensor, index, *step.inputs[name])
        items = [{name: arrays[i] for name, arrays in given.items()} for i in range(len(self._sources))]
        answers = self._flow.run(index, items)
        for number, answer in enumerate(answers):
            if isinstance(answer, StepRefusal):
                row = self._preparation.rows.rows[self._sources[number][0]]
                raise self._preparation.refused(f"{row.place}: {answer}", "a row that the step takes")
        for tensor in self._flow.outputs(index).values():
            made = [answer.get(tensor) for answer in answers if not isinstance(answer, StepRefusal)]
            if all(array is not None for array in made):
                self._made[tensor, index] = made


def prepare(
    spec: Spec, signature: Signature, place: str, files: SampleFiles, most: int | None = None
) -> PreparedSamples:
    """Data in files as batches of the network's input; items of one shape lie together.

    Args:
        place: the field of model.yaml.
        most: the number of items to take.

    Raises:
        BuildError: a column is missing, a row cannot be used, or the items need too much memory.
    """
    rows = read_rows(spec, place, files)
    preparation = _Preparation(spec, signature, place, files, rows, Flow(spec, place))
    groups: dict[Any, list[tuple[tuple[int, int], Item, Item]]] = {}
    size = count = 0
    for item in preparation.items(_chosen(rows, files, most)):
        size, count = size + sum(_bytes_of(array) for part in item[1:] for array in part.values()), count + 1
        if size > _MOST_BYTES:
            raise BuildError(
                f"{spec.file} {place}",
                found=f"the tensors of more than {count - 1} items take over {_MOST_BYTES >> 30} GiB of memory",
                wanted="samples that fit into memory",
                todo=f"set quality.max_samples: {count // 2}, or give fewer rows",
            )
        groups.setdefault(tuple(array.shape for array in item[1].values()), []).append(item)
    batches, ordered = [], []
    together = _BATCH if signature.batched else 1
    for group in groups.values():
        for start in range(0, len(group), together):
            part = group[start : start + together]
            ordered += part
            batches.append(_joined([taken for _, taken, _ in part], signature.batched))
    sources, kept = [source for source, _, _ in ordered], [kept for _, _, kept in ordered]
    return PreparedSamples(batches, rows, sources, kept, preparation.axis_added)


def _bytes_of(array: Any) -> int:
    """The memory of an array, with that of its texts."""
    return int(array.nbytes) + (sum(map(sys.getsizeof, array.flat)) if array.dtype.hasobject else 0)


def _joined(items: Sequence[Item], batched: bool) -> dict[str, Any]:
    import numpy as np

    return {name: np.stack([item[name] for item in items]) if batched else items[0][name] for name in items[0]}


def _chosen(rows: Rows, files: SampleFiles, most: int | None) -> list[int]:
    """The rows to take: evenly from the whole; with groups, whole groups from the beginning; of folders of classes the
    first, which are of all classes in turns."""
    count = len(rows.rows)
    if most is None:
        return list(range(count))
    most = max(1, most // 2) if files.pairs else most
    if files.folder is not None and CLASS in rows.columns:
        return list(range(min(most, count)))
    if files.group is None or files.folder is not None:
        return list(range(count)) if most >= count else [round(i * (count - 1) / max(1, most - 1)) for i in range(most)]
    members: dict[str, list[int]] = {}
    for index, row in enumerate(rows.rows):
        members.setdefault(str(row.values.get(files.group)), []).append(index)
    chosen: list[int] = []
    for group in members.values():
        if chosen and len(chosen) + len(group) > most:
            break
        chosen += group
    return chosen
