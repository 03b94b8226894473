"""crop without Triton: boxes, quadrilaterals and rotated boxes of images, and those that are none."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from crop_core import SHAPES, Settings, check_boxes, corners_around, corners_of, crops, perspective
from decode_image_core import decode_image
from PIL import Image

from tests.python_backends.adapters import Request, adapter, images

RAW: dict[str, Any] = {"dtype": "UINT8", "layout": "NHWC"}


def smooth(height: int, width: int) -> np.ndarray:
    """A picture whose pixels all differ from those far away: uint8 [height, width, 3]."""
    values = np.random.default_rng(1).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC))


def encoded(values: np.ndarray, kind: str = "PNG") -> bytes:
    """The file."""
    file = io.BytesIO()
    Image.fromarray(values).save(file, kind)
    return file.getvalue()


PICTURE = smooth(60, 80)
FILE = encoded(PICTURE)


def cut(boxes: Any, count: int | None = None, data: bytes = FILE, **settings: Any) -> np.ndarray:
    """The crops of boxes given as lists."""
    array = np.asarray(boxes, dtype=np.float32)
    chosen = Settings(**{**RAW, **settings})
    check_boxes(array[None], chosen)
    return crops(data, array, len(array) if count is None else count, chosen)


def test_boxes_of_the_output_s_size_are_cut_out_pixel_for_pixel() -> None:
    """Without a resize nothing changes."""
    pixels = cut([[0, 0, 20, 10], [33, 21, 53, 31], [60, 50, 80, 60]], height=10, width=20)
    for crop, (left, top) in zip(pixels, [(0, 0), (33, 21), (60, 50)], strict=True):
        np.testing.assert_array_equal(crop, PICTURE[top : top + 10, left : left + 20])


@pytest.mark.parametrize("resize", ["stretch", "crop", "letterbox", "shortest"])
@pytest.mark.parametrize("more", [{}, {"layout": "NCHW", "color": "BGR", "dtype": "FP32", "mean": (0.1, 0.2, 0.3)}])
def test_a_box_around_the_image_gives_what_decode_image_gives(resize: str, more: dict[str, Any]) -> None:
    """Resize, padding, layout, color, dtype and scaling are the same."""
    settings = Settings(**{**RAW, **more}, height=32, width=40, resize=resize, resize_to=40 if resize == "crop" else 30)
    whole = np.float32([[0, 0, 80, 60]])
    np.testing.assert_array_equal(crops(FILE, whole, 1, settings)[0], decode_image(FILE, settings))


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_a_box_with_fractions_is_resized_as_its_part_of_the_image(resize: str) -> None:
    """Pixels around the box do not show in it."""
    surrounded = np.full_like(PICTURE, 255)
    surrounded[5:26, 10:51] = PICTURE[5:26, 10:51]
    box = [10.4, 5.2, 50.7, 25.1]
    pixels = cut([box], data=encoded(surrounded), height=16, width=16, resize=resize, pad_value=0)[0]
    region, inner = Image.fromarray(PICTURE).crop((10, 5, 51, 26)), (0.4, 0.2, 40.7, 20.1)
    part = region.resize((16, 16 if resize == "stretch" else 8), box=inner, resample=Image.Resampling.BILINEAR)
    expected = np.zeros((16, 16, 3), np.uint8)
    expected[slice(None) if resize == "stretch" else slice(4, 12)] = np.asarray(part)
    np.testing.assert_allclose(pixels.astype(int), expected.astype(int), atol=1)


def test_a_quadrilateral_that_is_a_box_gives_the_box() -> None:
    """Both forms and a rotated box without an angle meet the same pixels, from any image mode."""
    for data in (FILE, encoded(PICTURE[:, :, 0])):
        box = cut([[30, 20, 50, 40]], data=data, height=20, width=20)
        quad = cut([[[30, 20], [50, 20], [50, 40], [30, 40]]], data=data, form="quad", height=20, width=20)
        turned = cut([[40, 30, 20, 20, 0]], data=data, form="rotated", height=20, width=20)
        np.testing.assert_allclose(quad.astype(int), box.astype(int), atol=1)
        np.testing.assert_allclose(turned.astype(int), box.astype(int), atol=1)


def test_a_rotated_box_is_turned_upright() -> None:
    """Angles go clockwise, so a crop of one by 90 degrees is the picture turned counterclockwise."""
    upright = PICTURE[10:50, 20:50]  # 30 wide, 40 high, around 35, 30
    [pixels] = cut([[35, 30, 40, 30, math.pi / 2]], form="rotated", height=30, width=40)
    np.testing.assert_allclose(pixels.astype(int), np.rot90(upright).astype(int), atol=1)
    [slanted] = cut([[40, 30, 20, 10, math.pi / 6]], form="rotated", height=10, width=20)
    for x, y in ((2.5, 2.5), (10.5, 5.5), (17.5, 8.5)):
        across, down = x - 10, y - 5
        at = 40 + across * math.cos(math.pi / 6) - down * math.sin(math.pi / 6)
        line = 30 + across * math.sin(math.pi / 6) + down * math.cos(math.pi / 6)
        expected = PICTURE[int(line), int(at)].astype(int)
        np.testing.assert_allclose(slanted[int(y), int(x)].astype(int), expected, atol=20)


EYES = (0.25, 0.4, 0.75, 0.4)
"""Places of two points in a crop."""


@pytest.mark.parametrize("angle", [0, 0.3, math.pi / 2, -2.5])
def test_points_come_to_their_places(angle: float) -> None:
    """The crop is the rotated box in which the points lie there; points after those with a place do not count."""
    size, middle = 30.0, np.array([40.0, 30])
    across, down = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
    points = [middle + (x - 0.5) * size * across + (y - 0.5) * size * down for x, y in ((0.25, 0.4), (0.75, 0.4))]
    given = [[*points, [3, 4], [70, 1], [9, 50]]]
    pixels = cut(given, form="points", places=EYES, height=30, width=30, resample="bicubic")
    expected = cut([[*middle, size, size, angle]], form="rotated", height=30, width=30, resample="bicubic")
    np.testing.assert_allclose(pixels.astype(int), expected.astype(int), atol=2)
    smaller = cut(given, form="points", places=EYES, height=8, width=8)
    expected = cut([[*middle, size, size, angle]], form="rotated", height=8, width=8)
    np.testing.assert_allclose(smaller.astype(int), expected.astype(int), atol=2)


def test_points_that_fit_no_similarity_come_as_near_as_they_can() -> None:
    """No turn, scale or shift nearby leaves a smaller sum of squares, and nothing is distorted or mirrored."""
    settings = Settings(form="points", places=(0.2, 0.3, 0.8, 0.3, 0.5, 0.6, 0.3, 0.9, 0.7, 0.9), height=112, width=96)
    points = np.array([[30.0, 20], [51, 24], [38, 33], [29, 44], [46, 41]])

    def missed(corners: np.ndarray) -> float:
        """The sum of squares, in pixels of the image."""
        origin, across, down = corners[0], (corners[1] - corners[0]) / 96, (corners[3] - corners[0]) / 112
        np.testing.assert_allclose([-across[1], across[0]], down)
        at = origin + settings.points[:, :1] * across + settings.points[:, 1:] * down
        return float(((at - points) ** 2).sum())

    corners = corners_around(points, settings)
    least = missed(corners)
    center = corners.mean(axis=0)
    for more in (1.01, 0.99, np.exp(0.01j), np.exp(-0.01j)):
        moved = ((corners - center) @ (1, 1j)) * more
        assert missed(np.stack([moved.real, moved.imag], axis=1) + center) > least
    for shift in ([0.1, 0], [-0.1, 0], [0, 0.1], [0, -0.1]):
        assert missed(corners + shift) > least


def test_points_at_one_place_and_outside_the_image_are_padding() -> None:
    """Neighbors are cut as usual; `detect` fills up with zeros."""
    given = [[[9, 9], [9, 9]], [[0, 0], [0, 0]], [[900, 900], [910, 900]], [[25, 24], [55, 24]]]
    pixels = cut(given, form="points", places=EYES, height=60, width=60, pad_value=3)
    np.testing.assert_array_equal(pixels[:3], 3)
    np.testing.assert_allclose(pixels[3].astype(int), PICTURE[:, 10:70].astype(int), atol=1)


def test_points_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are read as the other lists of numbers are; the points are the input's name."""
    model = adapter("crop", monkeypatch, form="points", places=",".join(map(str, EYES)), height="60", width="60")
    points = np.float32([[[[25, 24], [55, 24], [1, 2]]]])
    [answer] = model.execute([Request(image=images(FILE), points=points)])
    expected = crops(FILE, points[0], 1, Settings(form="points", places=EYES, height=60, width=60))
    np.testing.assert_array_equal(answer[0], expected)


def test_tall_crops_are_turned() -> None:
    """Crops of each form that are rotate_tall times as high as wide go counterclockwise; others stay."""
    upright = PICTURE[10:50, 20:40]
    more = {"rotate_tall": 1.5, "height": 20, "width": 40}
    forms: dict[str, Any] = {
        "box": [20, 10, 40, 50],
        "quad": [[20, 10], [40, 10], [40, 50], [20, 50]],
        "rotated": [30, 30, 20, 40, 0],
    }
    for form, box in forms.items():
        [pixels] = cut([box], form=form, **more)
        np.testing.assert_allclose(pixels.astype(int), np.rot90(upright).astype(int), atol=1)
    [wide] = cut([[20, 10, 60, 30]], **more)
    np.testing.assert_array_equal(wide, PICTURE[10:30, 20:60])


def test_perspective_leads_from_corner_to_corner() -> None:
    """The coefficients take the corners of the crop to those of the quadrilateral, and lines to lines."""
    corners = np.array([[10.0, 5], [70, 12], [60, 55], [4, 40]])
    a, b, c, d, e, f, g, h = perspective((30, 20), corners)
    for (x, y), expected in zip([(0, 0), (30, 0), (30, 20), (0, 20)], corners, strict=True):
        below = g * x + h * y + 1
        np.testing.assert_allclose([(a * x + b * y + c) / below, (d * x + e * y + f) / below], expected, atol=1e-8)


def test_pixels_outside_the_image_are_padding() -> None:
    """Boxes are cut off at its edges; a quadrilateral that reaches out has pad_value there."""
    [box] = cut([[-20, -10, 20, 10]], height=10, width=20, pad_value=9)
    np.testing.assert_array_equal(box, PICTURE[:10, :20])
    quad = [[[-20, 0], [20, 0], [20, 10], [-20, 10]]]
    [pixels] = cut(quad, form="quad", height=10, width=40, pad_value=9)
    np.testing.assert_array_equal(pixels[:, :20], 9)
    np.testing.assert_allclose(pixels[:, 21:].astype(int), PICTURE[:10, 1:20].astype(int), atol=1)


@pytest.mark.parametrize(
    "box",
    [[5, 5, 5, 9], [5, 5, 9, 5], [9, 9, 5, 5], [90, 5, 99, 9], [-9, -9, -1, -1], [0, 0, 0, 0], [5, 5, 5.001, 9]],
)
def test_boxes_without_an_area_in_the_image_are_padding(box: list[float]) -> None:
    """Neighbors are cut as usual."""
    pixels = cut([box, [0, 0, 8, 8]], height=8, width=8, pad_value=3)
    np.testing.assert_array_equal(pixels[0], 3)
    np.testing.assert_array_equal(pixels[1], PICTURE[:8, :8])


def test_quadrilaterals_without_an_area_are_padding() -> None:
    """Four equal corners, a line, and a rotated box without a height."""
    quads = [np.full((4, 2), 7), [[0, 0], [9, 9], [18, 18], [27, 27]]]
    np.testing.assert_array_equal(cut(quads, form="quad", height=8, width=8, pad_value=3), 3)
    np.testing.assert_array_equal(cut([[9, 9, 5, 0, 1]], form="rotated", height=8, width=8, pad_value=3), 3)


def test_only_the_boxes_that_count_are_cut() -> None:
    """Without any, the image is not decoded at all."""
    boxes = [[0, 0, 8, 8], [8, 8, 16, 16]]
    pixels = cut(boxes, count=1, height=8, width=8, pad_value=3)
    np.testing.assert_array_equal(pixels[0], PICTURE[:8, :8])
    np.testing.assert_array_equal(pixels[1], 3)
    assert (cut(boxes, count=0, data=b"no image", height=8, width=8) == 114).all()
    assert cut(np.zeros((0, 4)), data=b"no image", height=8, width=8).shape == (0, 8, 8, 3)
    with pytest.raises(ValueError, match="not a PNG, JPEG or WebP"):
        cut(boxes, data=b"no image")


def test_boxes_within_the_limit_of_pixels_are_cut() -> None:
    """Boxes outside the image, without an area, and those that do not count have none."""
    boxes = [[0, 0, 40, 60], [90, 0, 99, 60], [20, 20, 10, 10], [40, 0, 80, 60], [0, 0, 80, 60]]
    pixels = cut(boxes, count=4, height=60, width=40, max_crop_pixels=4800, pad_value=3)
    np.testing.assert_array_equal(pixels[3], PICTURE[:, 40:])
    assert (pixels[[1, 2, 4]] == 3).all()


@pytest.mark.parametrize("form", ["box", "quad", "rotated"])
def test_an_empty_batch_of_boxes_is_fit(form: str) -> None:
    """A request without items has no box that is not finite."""
    check_boxes(np.zeros((0, 3, *SHAPES[form]), np.float32), Settings(form=form))


def test_an_image_of_one_pixel() -> None:
    """It fills a crop, in each form."""
    data = encoded(np.full((1, 1, 3), 200, np.uint8))
    assert (cut([[0, 0, 1, 1]], data=data, height=5, width=4) == 200).all()
    quad = [[[0, 0], [1, 0], [1, 1], [0, 1]]]
    assert (cut(quad, data=data, form="quad", height=5, width=4) == 200).all()


def test_a_huge_quadrilateral_takes_no_more_than_the_image() -> None:
    """It is warped at the image's own number of pixels."""
    far = 1e7
    quad = [[[-far, -far], [far, -far], [far, far], [-far, far]]]
    [pixels] = cut(quad, form="quad", height=8, width=8, pad_value=5)
    assert pixels.shape == (8, 8, 3)
    assert (pixels[0] == 5).all()


@pytest.mark.parametrize(
    ("boxes", "more", "message"),
    [
        ([[0, 0, np.nan, 1]], {}, "input 'box', item 0: a number is not finite"),
        ([[0, 0, 5, 5, np.inf]], {"form": "rotated"}, "input 'rotated', item 0: a number is not finite"),
        ([[0, 0, 5]], {}, r"input 'box': found shape \[1, 3\], wanted \[-1, 4\]"),
        ([[0, 0, 5, 5]], {"form": "quad"}, r"input 'quad': found shape \[1, 4\], wanted \[-1, 4, 2\]"),
        ([[[1, 2]]], {"form": "points", "places": EYES}, r"found shape \[1, 1, 2\], wanted .* at least 2 points, as"),
        ([[[1, 2, 3]] * 2], {"form": "points", "places": EYES}, r"found shape \[1, 2, 3\], wanted \[-1, -1, 2\] with"),
        ([[[1, np.nan]] * 2], {"form": "points", "places": EYES}, "input 'points', item 0: a number is not finite"),
        ([[0, 0, 5, 5]] * 3, {"k": 2}, "input 'box': found 3 for an image; at most 2"),
        ([[[0, 0], [9, 9], [9, 0], [0, 9]]], {"form": "quad"}, "quad 0: its corners do not go round it"),
        ([[[0, 0], [9, 0], [3, 3], [0, 9]]], {"form": "quad"}, "quad 0: its corners do not go round it"),
        ([[[0, 0], [9, 0], [18, 0], [0, 9]]], {"form": "quad"}, "quad 0: three of its corners lie on a line"),
        ([[[0, 0], [9, 0], [9, 0], [0, 9]]], {"form": "quad"}, "quad 0: three of its corners lie on a line"),
        (
            [[0, 0, 80, 60]] * 3,
            {"max_crop_pixels": 14_399},
            "its 3 crops have 14400 pixels of the image; at most 14399",
        ),
        ([[-9, -9, 99, 99]] * 3, {"max_crop_pixels": 14_399}, "its 3 crops have 14400 pixels"),
        ([[40, 30, 40, 30, 1]] * 3, {"form": "rotated", "max_crop_pixels": 3599}, "its 3 crops have 3600 pixels"),
        (
            [[[-1e7, -1e7], [1e7, -1e7], [1e7, 1e7], [-1e7, 1e7]]],
            {"form": "quad", "height": 8, "width": 8, "max_crop_pixels": 4799},
            "its 1 crops have 4800 pixels",
        ),
    ],
)
def test_what_is_no_box_is_refused(boxes: Any, more: dict[str, Any], message: str) -> None:
    """The message names the input, and the item or the box."""
    with pytest.raises(ValueError, match=message):
        cut(boxes, **more)


def test_a_box_that_is_too_thin_to_resize_is_refused() -> None:
    """The limit is that of decode_image."""
    data = encoded(np.zeros((400_000, 1), np.uint8))
    with pytest.raises(ValueError, match="box 0: the image is 1 x 400000: to resize it takes"):
        cut([[0, 0, 1, 400_000]], data=data)


def test_corners_go_round_from_the_upper_left() -> None:
    """Clockwise on the screen, where y grows downwards."""
    np.testing.assert_allclose(corners_of(np.array([5, 5, 4, 2, 0])), [[3, 4], [7, 4], [7, 6], [3, 6]])
    np.testing.assert_allclose(corners_of(np.array([5, 5, 4, 2, math.pi / 2]))[0], [6, 3], atol=1e-9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"form": "circle"}, "form: found circle, wanted one of box, quad, rotated"),
        ({"form": "points"}, r"places: found \[\], wanted x and y of at least two points"),
        ({"form": "points", "places": (0.1, 0.2, 0.3)}, "places: found .*, wanted x and y of at least two points"),
        ({"form": "points", "places": (0.1, 0.2, 0.1, 0.2)}, "places: found .*, wanted points of which some differ"),
        ({"form": "points", "places": (0.1, 0.2, 0.1, math.inf)}, "places: found .*, wanted finite numbers"),
        (
            {"form": "points", "places": (0.1, 0.2, 0.1, 1e308)},
            "places: found .*, wanted finite numbers, shares of the",
        ),
        (
            {"form": "points", "places": (38.3, 51.7, 73.5, 51.5)},
            "places: found .*, wanted .* shares of the crop up to 10",
        ),
        ({"form": "points", "places": (0, 0, 1e-200, 0)}, "places: found .*, wanted points of which some differ"),
        ({"places": EYES}, r"places: found \[0.25, .*, wanted none with form box"),
        ({"k": 0}, "k: found 0"),
        ({"max_crop_pixels": 0}, "max_crop_pixels: found 0"),
        ({"rotate_tall": -1.0}, "rotate_tall: found -1.0"),
        ({"height": 0}, "height: found 0"),
        ({"resize": "pad"}, "resize: found pad"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """Each parameter names itself, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)


def test_a_request_is_answered_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an item, without a box, and next to a request whose image is damaged."""
    model = adapter("crop", monkeypatch, height="6", width="5")
    none = Request(image=images(), box=np.zeros((0, 3, 4), np.float32))
    empty = Request(image=images(FILE), box=np.zeros((1, 0, 4), np.float32))
    two = Request(image=images(FILE, FILE), box=np.float32([[[0, 0, 9, 9]], [[5, 5, 9, 9]]]))
    damaged = Request(image=images(FILE, FILE[:-40]), box=np.float32([[[0, 0, 9, 9]]] * 2))
    answers = model.execute([none, empty, two, damaged])
    assert [answer.shape for answer in answers[:3]] == [(0, 3, 3, 6, 5), (1, 0, 3, 6, 5), (2, 1, 3, 6, 5)]
    expected = crops(FILE, np.float32([[5, 5, 9, 9]]), 1, Settings(height=6, width=5))
    np.testing.assert_array_equal(answers[2][1], expected)
    assert answers[3].kind == "invalid"
    assert "input 'image', item 1: the PNG image" in answers[3].text


def test_images_that_do_not_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without a box takes no room; a request that has none left gets its own error."""
    model = adapter("crop", monkeypatch, max_batch_decoded_bytes=str(2 * PICTURE.nbytes))
    box, no_box = np.float32([[[0, 0, 9, 9]]]), np.zeros((3, 0, 4), np.float32)
    answers = model.execute(
        [
            Request(image=images(FILE), box=box),
            Request(image=images(FILE, FILE), box=np.repeat(box, 2, axis=0)),
            Request(image=images(FILE, FILE, FILE), box=no_box),
            Request(image=images(FILE, FILE, FILE), box=np.repeat(box, 3, axis=0)),
        ]
    )
    assert [getattr(answer, "kind", "") for answer in answers] == ["", "unavailable", "", "invalid"]
    assert "3 images of 43200 bytes decoded; at most 28800 are taken together" in answers[3].text
