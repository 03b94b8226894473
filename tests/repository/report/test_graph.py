"""Pipelines as graphs: the text of `inspect`, and the drawing of the report."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from tests.repository.report.figures import MACHINE, crowd
from tritonkit.repository.report.graph import CALLERS, Edge, Node, PipelineGraph, draw
from tritonkit.repository.report.page import render

GRAPH = PipelineGraph(
    "page",
    "a pipeline of 3 models, no batches",
    (Node("find", "find", "onnxruntime, no batches"), Node("cut", "cut", "python"), Node("read", "read", "")),
    (
        Edge("image", "UINT8 [-1,-1,3]", CALLERS, ("find", "cut")),
        Edge("boxes", "FP32 [-1,4]", "find", ("cut", CALLERS)),
        Edge("crops", "FP32 [3,8,8]", "cut", ("read",)),
        Edge("text <b>", "BYTES [1]", "read", (CALLERS,)),
    ),
)


def test_the_text_has_each_part_with_what_it_gives() -> None:
    """A reader follows the tensors by name."""
    assert GRAPH.lines() == [
        "page: a pipeline of 3 models, no batches",
        "  callers",
        "    image UINT8 [-1,-1,3] -> find, cut",
        "  find (onnxruntime, no batches)",
        "    boxes FP32 [-1,4] -> cut, callers",
        "  cut (python)",
        "    crops FP32 [3,8,8] -> read",
        "  read",
        "    text <b> BYTES [1] -> callers",
    ]


def test_each_part_is_drawn_below_what_it_takes() -> None:
    """No box lies on another, and callers are at both ends."""
    drawing = draw(GRAPH)
    rows = [box.title for box in sorted(drawing.boxes, key=lambda box: box.y)]
    assert rows == ["callers", "image", "find", "boxes", "cut", "crops", "read", "text <b>", "callers"]
    for y in {box.y for box in drawing.boxes}:
        row = sorted((box.left, box.left + box.width) for box in drawing.boxes if box.y == y)
        assert all(right < left for (_, right), (left, _) in pairwise(row))
    assert all(box.left >= 0 and box.left + box.width <= drawing.width for box in drawing.boxes)
    # Eight go to the next row; `image` passes two rows on its way to `cut`, and `boxes` four to the callers.
    assert len(drawing.lines) == 8 + 3 + 5


def test_the_page_draws_it_as_svg(tmp_path: Path) -> None:
    """Names are escaped, and the picture has its text for those who cannot see it."""
    page = render([crowd(tmp_path)], MACHINE, "today", (GRAPH,))
    begin = page.index('<svg class="pipeline"')
    text = page[begin : page.index("</svg>", begin) + len("</svg>")]
    svg = ElementTree.fromstring(text)  # noqa: S314  our own
    texts = [element.text for element in svg.iter("text")]
    assert {"find", "boxes", "FP32 [-1,4]", "text <b>"} <= set(texts)
    assert "boxes FP32 [-1,4] -> cut, callers" in str(next(svg.iter("desc")).text)
