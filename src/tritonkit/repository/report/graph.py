"""A pipeline as a graph of models and tensors: as text, and laid out for a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CALLERS", "Drawing", "Edge", "Node", "PipelineGraph", "draw"]

CALLERS = "callers"
"""The name of callers as the source or the target of a tensor."""


@dataclass(frozen=True)
class Node:
    """A part of a pipeline: its Triton model and a few words about it."""

    name: str
    model: str
    words: str


@dataclass(frozen=True)
class Edge:
    """A tensor of a pipeline: the part that gives it, and those that take it."""

    tensor: str
    type: str
    """Dtype and dims, such as `FP32 [-1,64]`."""
    source: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class PipelineGraph:
    """A pipeline's parts in order, and the tensors between them and the callers."""

    name: str
    words: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def lines(self) -> list[str]:
        """The graph as text: each part below the one before it, with the tensors that it gives."""
        lines = [f"{self.name}: {self.words}"]
        for name, words in ((CALLERS, ""), *((node.name, node.words) for node in self.nodes)):
            lines.append(f"  {name}{f' ({words})' if words else ''}")
            lines += [
                f"    {edge.tensor} {edge.type} -> {', '.join(edge.targets)}"
                for edge in self.edges
                if edge.source == name
            ]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The facts for `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class DrawnBox:
    """A part or a tensor of a drawing; `x` and `y` are its center."""

    title: str
    words: str
    x: float
    y: float
    width: float
    is_tensor: bool

    @property
    def left(self) -> float:
        """The left edge."""
        return self.x - self.width / 2


@dataclass(frozen=True)
class Drawing:
    """A graph whose boxes have places: rows from the callers down to the callers."""

    graph: PipelineGraph
    width: float
    height: float
    boxes: tuple[DrawnBox, ...]
    lines: tuple[str, ...]
    """The paths between the boxes, for SVG."""


ROW = 64.0
HEIGHT = 40.0
"""Height of a row, and of a box in it."""
_GAP = 28.0
_LETTER = 7.6
"""Width of a letter of 13 pixels, on the safe side."""
_PASS = 12.0
"""Room that a line takes in a row that it crosses."""


@dataclass(eq=False)
class _Place:
    """A part, a tensor, or a line that crosses a row, while places are looked for."""

    row: int
    box: tuple[str, str, bool] | None
    above: list[_Place]
    x: float = 0.0

    @property
    def width(self) -> float:
        if self.box is None:
            return _PASS
        title, words, _ = self.box
        return max(len(title), 0.9 * len(words)) * _LETTER + 20


def draw(graph: PipelineGraph) -> Drawing:
    """Place the parts in rows, each below all tensors that it takes, and lines that cross no box."""
    places: dict[str, _Place] = {}
    tensors: dict[Edge, _Place] = {}
    every: list[_Place] = []

    def place(row: int, box: tuple[str, str, bool], above: Sequence[_Place]) -> _Place:
        every.append(made := _Place(row, box, []))
        for upper in above:
            for between in range(upper.row + 1, row):
                every.append(upper := _Place(between, None, [upper]))
            made.above.append(upper)
        return made

    def give(source: str) -> None:
        for edge in (edge for edge in graph.edges if edge.source == source):
            tensors[edge] = place(places[source].row + 1, (edge.tensor, edge.type, True), [places[source]])

    places[CALLERS] = place(0, (CALLERS, "", False), ())
    give(CALLERS)
    for node in graph.nodes:
        taken = [one for edge, one in tensors.items() if node.name in edge.targets]
        row = 1 + max((one.row for one in taken), default=0)
        places[node.name] = place(row, (node.name, node.words, False), taken)
        give(node.name)
    got = [one for edge, one in tensors.items() if CALLERS in edge.targets]
    place(1 + max((one.row for one in every), default=0), (CALLERS, "", False), got)
    return _laid_out(graph, every)


def _laid_out(graph: PipelineGraph, every: Sequence[_Place]) -> Drawing:
    """The drawing of places whose rows are known: in each row ordered by what is above, then centered."""
    rows: dict[int, list[_Place]] = {}
    for one in every:
        rows.setdefault(one.row, []).append(one)
    widths = {row: sum(one.width + _GAP for one in ones) for row, ones in rows.items()}
    width = max(widths.values())
    for row in sorted(rows):
        rows[row].sort(key=lambda one: sum(up.x for up in one.above) / len(one.above) if one.above else 0.0)
        left = (width - widths[row]) / 2
        for one in rows[row]:
            one.x = left + (one.width + _GAP) / 2
            left += one.width + _GAP
    boxes = tuple(
        DrawnBox(one.box[0], one.box[1], one.x, _y(one), one.width, one.box[2]) for one in every if one.box is not None
    )
    lines = tuple(_line(up, one) for one in every for up in one.above)
    return Drawing(graph, width, ROW * len(rows), boxes, lines)


def _y(one: _Place) -> float:
    return ROW * (one.row + 0.5)


def _line(upper: _Place, lower: _Place) -> str:
    """A curve from below one place to above the next; through a row that it crosses it is straight."""
    begin, top, bottom = _y(upper) - HEIGHT / 2, _y(upper) + HEIGHT / 2, _y(lower) - HEIGHT / 2
    middle = (top + bottom) / 2
    crossed = "" if upper.box else f"{upper.x:.1f} {begin:.1f}L"
    curve = f"C{upper.x:.1f} {middle:.1f} {lower.x:.1f} {middle:.1f} {lower.x:.1f} {bottom:.1f}"
    return f"M{crossed}{upper.x:.1f} {top:.1f}{curve}"
