"""text_crops, orient and text_lines without Triton: lines of text from a picture to a page."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
from orient_core import Settings as Orient
from orient_core import orient
from PIL import Image
from text_crops_core import Settings, check_quads, lines, text_crops, widths
from text_crops_warp import warped
from text_lines_core import Settings as Join
from text_lines_core import text_lines

from tests.python_backends.adapters import Request, adapter, images


def smooth(height: int, width: int) -> np.ndarray:
    """A picture whose pixels all differ from those far away: uint8 [height, width, 3]."""
    values = np.random.default_rng(1).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC))


def encoded(values: np.ndarray) -> bytes:
    """A PNG."""
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


PICTURE = smooth(120, 400)
FILE = encoded(PICTURE)


def box(left: float, top: float, right: float, bottom: float) -> list[list[float]]:
    """An upright quadrilateral."""
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def cut(*quads: Any, **settings: Any) -> list[np.ndarray]:
    """The crops of quadrilaterals given as lists."""
    return text_crops(FILE, np.asarray(quads, np.float32).reshape(-1, 4, 2), Settings(**settings))


def test_upright_texts_are_cut_out_pixel_for_pixel() -> None:
    """Their corners are centers of pixels; the last row and column are not part of a text, as in PaddleOCR."""
    [crop] = cut(box(30, 20, 130, 50))
    np.testing.assert_array_equal(crop, PICTURE[20:50, 30:130])


def test_slanted_texts_are_made_straight() -> None:
    """A text turned by a few degrees looks like the one before it was turned."""
    angle = 0.1
    corners = np.array([[-60, -15], [60, -15], [60, 15], [-60, 15]])
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    turned = Image.fromarray(PICTURE).rotate(-np.degrees(angle), Image.Resampling.BICUBIC, center=(200.5, 60.5))
    [crop] = text_crops(encoded(np.asarray(turned)), (corners @ turn + [200, 60])[None].astype(np.float32), Settings())
    np.testing.assert_allclose(crop.astype(int), PICTURE[45:75, 140:260].astype(int), atol=6)
    assert warped(PICTURE, (400, 120), [1, 0, 0, 0, 1, 0, 0, 0]).tolist() == PICTURE.tolist()
    beyond = warped(PICTURE, (3, 2), [1, 0, -9, 0, 1, 500, 0, 0])
    np.testing.assert_array_equal(beyond, np.tile(PICTURE[-1, 0], (2, 3, 1)))


@pytest.mark.parametrize("shift", [0, 0.001])
def test_pixels_outside_of_the_picture_are_its_last(shift: float) -> None:
    """Both for an upright text and for a slanted one."""
    [crop] = cut(np.add(box(390, 100, 420, 140), [[0, 0], [0, shift], [0, shift], [0, 0]]))
    expected = np.pad(PICTURE[100:, 390:], ((0, 20), (0, 20), (0, 0)), "edge")
    np.testing.assert_array_equal(crop, expected)
    assert not cut(box(500, 100, 530, 140))[0].any()


def test_a_wide_text_is_computed_in_parts() -> None:
    """In columns as in rows: its pixels are the same, and only they take memory."""
    coefficients = [1e-4, 0.3, 2, 2e-5, 0.2, 40, 0, 0]
    tracemalloc.start()
    try:
        wide = warped(PICTURE, (1 << 21, 2), coefficients)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < wide.nbytes + (32 << 20)
    start = 200_000
    shifted = [*coefficients[:2], 2 + 1e-4 * start, *coefficients[3:5], 40 + 2e-5 * start, 0, 0]
    np.testing.assert_array_equal(wide[:, start : start + 9], warped(PICTURE, (9, 2), shifted))


def test_tall_texts_are_turned_counterclockwise() -> None:
    """At the parameter's proportions; 0 turns none."""
    [crop] = cut(box(30, 20, 60, 80))
    np.testing.assert_array_equal(crop, np.rot90(PICTURE[20:80, 30:60]))
    assert cut(box(30, 20, 60, 80), rotate_tall=0)[0].shape == (60, 30, 3)
    assert cut(box(30, 20, 60, 64))[0].shape == (44, 30, 3)
    assert cut(box(30, 20, 60, 65))[0].shape == (30, 45, 3)


def test_widths_are_those_of_the_group() -> None:
    """Lines are grouped by their proportions, and no line gets less than the width."""
    crops = [np.zeros((10, size, 3), np.uint8) for size in (100, 20, 300, 71, 72, 40)]
    settings = Settings(height=48, width=320, group=2)
    found = widths(crops, settings)
    assert found[:, 0].tolist() == [480, 96, 1440, 341, 345, 192]
    assert found[:, 1].tolist() == [1440, 320, 1440, 345, 345, 320]
    alone = widths(crops, Settings(height=48, width=320, group=1))
    assert alone[:, 1].tolist() == [480, 320, 1440, 340, 345, 320]
    assert widths(crops, Settings(max_width=1000))[:, 1].max() == 1000


def test_lines_of_a_picture_are_padded_with_zeros() -> None:
    """A line has its own pixels from the left on; rows after the last have zeros and a width that fits."""
    crops = cut(box(30, 20, 130, 50), box(0, 60, 300, 90))
    outputs = lines(crops, 3, Settings())
    assert outputs["line"].shape == (3, 48, 480, 3)
    assert outputs["widths"].tolist() == [[160, 480], [480, 480], [1, 320]]
    assert not outputs["line"][0, :, 160:].any()
    assert not outputs["line"][2].any()
    expected = Image.fromarray(PICTURE[20:50, 30:130]).resize((160, 48), Image.Resampling.BILINEAR)
    line = outputs["line"][0, :, :160]
    np.testing.assert_allclose(line[:, :, ::-1].astype(int), np.asarray(expected, int), atol=1)
    start = outputs["start"]
    assert start.shape == (3, 3, 48, 192)
    scaled = (line.astype(np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5
    np.testing.assert_allclose(start[0, :, :, :160], scaled, atol=1e-6)
    assert not start[0, :, :, 160:].any()
    assert start[1, :, :, 191].any()


def test_a_picture_without_texts_is_not_decoded() -> None:
    """Its file may be anything."""
    assert text_crops(b"no picture", np.zeros((0, 4, 2), np.float32), Settings()) == []
    outputs = lines([], 1, Settings())
    assert outputs["line"].shape == (1, 48, 1, 3)
    assert outputs["widths"].tolist() == [[1, 320]]


@pytest.mark.parametrize(
    ("quad", "message"),
    [
        ([[0, 0], [50, 50], [50, 0], [0, 50]], "quad 0: its corners do not go round"),
        ([[0, 0], [50, 0], [100, 0], [0, 50]], "quad 0: three of its corners"),
        (box(0, 0, 3e5, 3e5), "its 1 lines have 90000000000 pixels of the picture"),
    ],
)
def test_quadrilaterals_that_are_none_are_refused(quad: Any, message: str) -> None:
    """The number is named."""
    with pytest.raises(ValueError, match=message):
        cut(quad)


def test_quadrilaterals_without_an_area_are_black() -> None:
    """Texts stay in their order; a quadrilateral outside of the picture is black, too."""
    outside = [[500, 10], [600, 20], [600, 50], [500, 40]]
    [point, away, text] = cut(box(5, 5, 5, 5), outside, box(30, 20, 130, 50))
    assert point.shape == (1, 1, 3)
    assert not away.any()
    assert text.shape == (30, 100, 3)


def test_too_many_and_infinite_quadrilaterals_are_refused() -> None:
    """Before anything is decoded."""
    with pytest.raises(ValueError, match="found 3 for a picture; at most 2"):
        check_quads(np.zeros((1, 3, 4, 2)), Settings(k=2))
    quads = np.zeros((2, 1, 4, 2))
    quads[1, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="item 1: a number is not finite"):
        check_quads(quads, Settings())


@pytest.mark.parametrize(
    "wrong",
    [{"height": 0}, {"width": 0}, {"max_width": 100}, {"group": 0}, {"rotate_tall": -1.0}, {"mean": (1.0, 2.0)}],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """The message names the parameter."""
    with pytest.raises(ValueError, match=f"parameter {next(iter(wrong))}: found"):
        Settings(**wrong)


def test_the_adapter_answers_pictures_of_a_request_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts decide which quadrilaterals are read; the other request's broken picture is its own error."""
    quads = np.array([[box(30, 20, 130, 50), box(0, 60, 300, 90)], [box(30, 20, 130, 50), box(0, 0, 0, 0)]], np.float32)
    good = Request(image=images(FILE, FILE), quad=quads, count=np.array([[2], [1]], np.int32))
    bad = Request(image=images(b"x"), quad=quads[:1], count=np.array([[1]], np.int32))
    none = Request(image=images(b"x"), quad=quads[:1], count=np.array([[0]], np.int32))
    [found, error, empty] = adapter("text_crops", monkeypatch).execute([good, bad, none])
    assert found.shape == (2, 2, 48, 480, 3)
    assert not found[1, 1].any()
    assert "input 'image', item 0: not a PNG" in error.text
    assert empty.shape == (1, 2, 48, 1, 3)


def test_lines_upside_down_are_turned_and_all_are_filled_up() -> None:
    """A score above the threshold turns the text alone; the padding stays on the right, gray."""
    line = np.zeros((2, 48, 60, 3), np.uint8)
    line[:, :, :40] = smooth(48, 40)
    scores = np.array([[0.05, 0.95], [0.15, 0.85]], np.float32)
    pixels = orient(line, np.array([[40, 70], [40, 70]]), scores, Orient())
    scaled = (smooth(48, 40).astype(np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5
    assert pixels.shape == (2, 3, 48, 70)
    np.testing.assert_allclose(pixels[1, :, :, :40], scaled, atol=1e-6)
    np.testing.assert_allclose(pixels[0, :, :, :40], scaled[:, ::-1, ::-1], atol=1e-6)
    assert not pixels[:, :, :, 40:].any()
    np.testing.assert_allclose(orient(line, np.array([[40, 70]] * 2), None, Orient(scores=False))[0], pixels[1])


@pytest.mark.parametrize(
    ("sizes", "scores", "message"),
    [
        ([[0, 70]], [[1, 0]], "input 'widths', item 0: found 0 of 70"),
        ([[61, 70]], [[1, 0]], "item 0: found 61 of 70, wanted 1 to the 60"),
        ([[50, 40]], [[1, 0]], "item 0: found 50 of 40"),
        ([[40, 4097]], [[1, 0]], r"item 0: found 4097; at most 4096 are taken \(parameter max_width\)"),
        ([[40, 70], [40, 80]], [[1, 0], [1, 0]], "item 1: found 80, and 70 before"),
        ([[40, 70]], [[np.nan, 0]], "input 'scores', item 0"),
    ],
)
def test_widths_and_scores_that_are_none_are_refused(sizes: Any, scores: Any, message: str) -> None:
    """Input and item are named."""
    line = np.zeros((len(sizes), 48, 60, 3), np.uint8)
    with pytest.raises(ValueError, match=message):
        orient(line, np.array(sizes), np.array(scores, np.float32), Orient())


@pytest.mark.parametrize("wrong", [{"height": 0}, {"max_width": 0}, {"threshold": 2.0}, {"mean": (1.0, 2.0)}])
def test_parameters_of_orient_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """The message names the parameter."""
    with pytest.raises(ValueError, match=f"parameter {next(iter(wrong))}: found"):
        Orient(**wrong)


def test_the_adapter_needs_no_scores_without_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameter says whether there is one."""
    arrays = {"line": np.zeros((1, 48, 60, 3), np.uint8), "widths": np.array([[40, 70]], np.int32)}
    [pixels] = adapter("orient", monkeypatch, scores="false").execute([Request(**arrays)])
    assert pixels.shape == (1, 3, 48, 70)
    [error] = adapter("orient", monkeypatch).execute([Request(**arrays)])
    assert "input 'scores' is missing" in error.text


def joined(texts: list[list[str]], scores: Any, counts: Any, **settings: Any) -> dict[str, np.ndarray]:
    """The outputs for pages of lines."""
    rows = np.array([[text.encode() for text in row] for row in texts], dtype=object)
    quads = np.arange(rows.size * 8, dtype=np.float32).reshape(*rows.shape, 4, 2)
    return text_lines(quads, rows, np.float32(scores), np.int32(counts)[:, None], Join(**settings))


def test_empty_and_unsure_lines_are_left_out() -> None:
    """The others stay in their order, with their scores and quadrilaterals; the count of the input counts."""
    outputs = joined([["one", " ", "two", "three"], ["é", "b", "", ""]], [[1, 1, 0.4, 0.5], [0.9, 1, 0, 0]], [4, 1])
    assert outputs["page"].tolist() == [[b"one\nthree"], ["é".encode()]]
    assert outputs["text"].tolist() == [[b"one", b"three"], ["é".encode(), b""]]
    assert outputs["score"].tolist() == [[1, 0.5], [np.float32(0.9), 0]]
    assert outputs["count"].tolist() == [[2], [1]]
    assert outputs["quad"][0, :, 0, 0].tolist() == [0, 24]
    assert joined([["one", "two"]], [[1, 1]], [2], separator="space")["page"].tolist() == [[b"one two"]]


def test_a_page_without_lines_is_empty() -> None:
    """Its outputs have one row."""
    outputs = joined([["one"]], [[1]], [0])
    assert outputs["page"].tolist() == [[b""]]
    assert (outputs["text"].shape, outputs["quad"].shape, outputs["count"].tolist()) == ((1, 1), (1, 1, 4, 2), [[0]])


def test_numbers_of_lines_that_differ_are_refused() -> None:
    """The message has each; a score that is not a number is refused where it counts."""
    with pytest.raises(ValueError, match="found 2 of quad, 1 of text, 1 of score, wanted as many of each"):
        text_lines(
            np.zeros((1, 2, 4, 2), np.float32),
            np.full((1, 1), b"", object),
            np.zeros((1, 1), np.float32),
            np.zeros((1, 1), np.int32),
            Join(),
        )
    with pytest.raises(ValueError, match="a score is not a number"):
        joined([["one"]], [[np.nan]], [1])
    assert joined([["one"]], [[np.nan]], [0])["count"].tolist() == [[0]]
    with pytest.raises(ValueError, match="parameter separator"):
        Join(separator="tab")
