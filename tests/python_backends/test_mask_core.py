"""mask without Triton: resizing against torch, run lengths against COCO's decoder, every resize, odd inputs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from decode_image_geometry import place
from hypothesis import given
from hypothesis import strategies as st
from mask_core import Settings, masks
from mask_rle import as_json, compress, runs_of_classes, runs_of_mask

PIXELS = {"encoding": "pixels", "height": 64, "width": 96}


def decoded(text: bytes) -> np.ndarray:
    """The mask that rleFrString and rleDecode of pycocotools' maskApi.c make of a JSON text: bool [height, width]."""
    content = json.loads(text)
    height, width = content["size"]
    counts = content["counts"]
    if isinstance(counts, str):
        characters, counts = [ord(one) - 48 for one in counts], []
        while characters:
            value = shift = 0
            while True:
                bits = characters.pop(0)
                value |= (bits & 0x1F) << shift
                shift += 5
                if not bits & 0x20:
                    break
            if bits & 0x10:
                value -= 1 << shift
            counts.append(value + counts[-2] if len(counts) > 2 else value)
    assert all(count > 0 for count in counts[1:])
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return flat.reshape(width, height).T


def interpolated(logits: np.ndarray, height: int, width: int) -> np.ndarray:
    """Torch's own resize of [channels, height, width]."""
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(logits)[None], size=(height, width), mode="bilinear", align_corners=False
    )
    values: np.ndarray = resized[0].numpy()
    return values


@given(st.integers(0, 2**32 - 1))
def test_run_lengths_are_read_back_by_cocos_decoder(seed: int) -> None:
    """Any mask and any map of classes, in both forms; adjacent runs are never empty."""
    chance = np.random.default_rng(seed)
    height, width = (int(side) for side in chance.integers(1, 40, 2))
    mask = chance.random((height, width)) < chance.choice([0, 0.02, 0.5, 0.98, 1])
    for compressed in (True, False):
        np.testing.assert_array_equal(decoded(as_json(runs_of_mask(mask), mask.shape, compressed)), mask)
    classes = chance.integers(0, 5, (height, width)).astype(np.uint8)
    for one, runs in enumerate(runs_of_classes(classes, 4)):
        np.testing.assert_array_equal(decoded(as_json(runs, mask.shape, True)), classes == one)


def test_long_runs_and_large_steps_between_them() -> None:
    """Counts of several characters, growing and shrinking."""
    mask = np.zeros((3000, 4000), dtype=bool)
    mask[:, 7:3000] = True
    mask[5:, 3990] = True
    text = as_json(runs_of_mask(mask), mask.shape, True)
    assert len(text) < 60
    np.testing.assert_array_equal(decoded(text), mask)


def test_an_empty_mask_and_one_without_pixels() -> None:
    """One run of zeros, as pycocotools writes it."""
    assert runs_of_mask(np.zeros((3, 4), dtype=bool)).tolist() == [12]
    assert runs_of_mask(np.ones((3, 4), dtype=bool)).tolist() == [0, 12]
    assert runs_of_mask(np.zeros((0, 4), dtype=bool)).tolist() == [0]
    assert compress(np.array([0])) == "0"


@pytest.mark.parametrize("size", [(64, 96), (480, 640), (33, 20), (1, 1), (1, 700), (300, 1)])
def test_masks_of_a_stretched_image_are_torchs(size: tuple[int, int]) -> None:
    """Resized as interpolate does it, larger or smaller, then each pixel's best class, or sigmoid above a half."""
    logits = np.random.default_rng(4).normal(0, 4, (1, 6, 16, 24)).astype(np.float32)
    expected = interpolated(logits[0], *size)
    outputs = masks(logits, np.array([size]), Settings(function="argmax", **PIXELS))
    assert outputs["mask_size"].tolist() == [list(size)]
    best = np.sort(expected, axis=0)
    clear = best[-1] - best[-2] > 1e-4  # where rounding cannot decide
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(outputs["mask"][0][clear], expected.argmax(axis=0)[clear])
    chosen = masks(logits, np.array([size]), Settings(threshold=0.8, **PIXELS))["mask"][0]
    chances = 1 / (1 + np.exp(-expected))
    clear = np.abs(chances - 0.8) > 1e-4
    np.testing.assert_array_equal(chosen[clear], (chances > 0.8)[clear])


@pytest.mark.parametrize("encoding", ["rle", "counts"])
@pytest.mark.parametrize("function", ["threshold", "argmax"])
def test_run_lengths_are_those_of_the_pixels(function: str, encoding: str) -> None:
    """One text for each channel, of each image's own size."""
    logits = np.random.default_rng(5).normal(0, 4, (2, 3, 8, 8)).astype(np.float32)
    sizes = np.array([[40, 60], [9, 70]])
    more: dict[str, Any] = {"function": function, "height": 32, "width": 32, "resize": "letterbox"}
    pixels = masks(logits, sizes, Settings(encoding="pixels", **more))
    texts = masks(logits, sizes, Settings(encoding=encoding, **more))["rle"]
    assert texts.shape == (2, 3)
    assert set(json.loads(texts[0, 0])) == {"size", "counts"}
    for item, (height, width) in enumerate(sizes):
        for channel in range(3):
            if function == "argmax":
                expected = pixels["mask"][item, :height, :width] == channel
            else:
                expected = pixels["mask"][item, channel, :height, :width] == 1
            np.testing.assert_array_equal(decoded(texts[item, channel]), expected)
            assert expected.any()


def test_a_batch_is_padded_to_its_largest_image() -> None:
    """Outside an image's own size are 255 for classes, 0 for masks."""
    logits = np.random.default_rng(6).normal(0, 4, (2, 3, 8, 8)).astype(np.float32)
    sizes = np.array([[5, 9], [12, 4]])
    classes = masks(logits, sizes, Settings(function="argmax", **PIXELS))["mask"]
    assert classes.shape == (2, 12, 9)
    assert (classes[0, 5:] == 255).all()
    assert (classes[1, :, 4:] == 255).all()
    assert classes[0, :5].max() < 3
    chosen = masks(logits + 100, sizes, Settings(**PIXELS))["mask"]
    assert chosen.shape == (2, 3, 12, 9)
    assert chosen.sum() == 3 * (45 + 48)


def test_a_batch_of_thin_images() -> None:
    """Run lengths count each image by itself; a tall one and a wide one together fit."""
    sizes = np.array([[1, 9000], [9000, 1]])
    texts = masks(np.full((2, 1, 2, 2), 5, np.float32), sizes, Settings(max_values=18_000))["rle"]
    for text, size in zip(texts[:, 0], sizes.tolist(), strict=True):
        assert decoded(text).shape == tuple(size)
        assert decoded(text).all()


def test_the_largest_logits_are_resized_without_infinity() -> None:
    """The difference of two of them is finite, so that pixels between them are decided as others."""
    logits = np.array([[[[-1e38, 1e38]]]], np.float32)
    pixels = masks(logits, np.array([[1, 8]]), Settings(encoding="pixels"))["mask"]
    assert pixels[0, 0, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("resize", ["stretch", "crop", "letterbox", "shortest"])
@pytest.mark.parametrize("size", [(120, 200), (400, 90), (50, 50)])
def test_a_mask_lies_where_the_source_has_it(resize: str, size: tuple[int, int]) -> None:
    """Logits that say where in the source they lie come back to that place, whatever the resize."""
    resize_to = 96 if resize == "crop" else 50
    settings = Settings(resize=resize, resize_to=resize_to, **PIXELS)
    placed = place(size[::-1], settings)
    down = (np.arange(64) + 0.5 - placed.at[1]) * placed.scale[1] + placed.box[1]
    across = (np.arange(96) + 0.5 - placed.at[0]) * placed.scale[0] + placed.box[0]
    upper = np.repeat((size[0] / 2 - down)[:, None], 96, axis=1)
    left = np.repeat((size[1] / 2 - across)[None], 64, axis=0)
    logits = np.stack([upper, left])[None].astype(np.float32)
    outputs = masks(logits, np.array([size]), settings)["mask"][0]
    inside = np.zeros(size, dtype=bool)
    x0, y0, x1, y1 = placed.box
    inside[round(y0) : round(y1), round(x0) : round(x1)] = True
    expected_upper = inside & (np.arange(size[0])[:, None] + 0.5 < size[0] / 2)
    expected_left = inside & (np.arange(size[1]) + 0.5 < size[1] / 2)
    for channel, expected in zip(outputs, (expected_upper, expected_left), strict=True):
        edge = 2 * (size[0] + size[1])  # a line of pixels on each side of what crop keeps
        assert (channel != expected).sum() <= (edge if resize == "crop" else 0)
    classes = masks(logits, np.array([size]), Settings(function="argmax", resize=resize, resize_to=resize_to, **PIXELS))
    seen = classes["mask"][0] != 255
    assert (seen != inside).sum() <= (2 * (size[0] + size[1]) if resize == "crop" else 0)


def test_a_fixed_size_needs_no_image_size() -> None:
    """Masks of the network's whole image in mask_height x mask_width."""
    logits = np.random.default_rng(8).normal(0, 4, (2, 2, 10, 12)).astype(np.float32)
    settings = Settings(image_size=False, mask_height=30, mask_width=20, resize="letterbox", **PIXELS)
    outputs = masks(logits, None, settings)
    assert outputs["mask"].shape == (2, 2, 30, 20)
    expected = interpolated(logits[1], 30, 20)
    clear = np.abs(expected) > 1e-4
    np.testing.assert_array_equal(outputs["mask"][1][clear], (expected > 0)[clear])


def test_values_that_are_probabilities_already() -> None:
    """sigmoid false compares the values themselves."""
    logits = np.float32([[[[0.4, 0.6]]]])
    settings = Settings(sigmoid=False, image_size=False, encoding="pixels", mask_height=1, mask_width=2)
    assert masks(logits, None, settings)["mask"].tolist() == [[[[0, 1]]]]


def test_a_large_image_is_resized_in_parts() -> None:
    """The parts together are the whole."""
    logits = np.random.default_rng(9).normal(0, 4, (1, 9, 30, 40)).astype(np.float32)
    outputs = masks(logits, np.array([[900, 1100]]), Settings(function="argmax", **PIXELS))["mask"][0]
    expected = interpolated(logits[0], 900, 1100)
    best = np.sort(expected, axis=0)
    clear = best[-1] - best[-2] > 1e-4
    np.testing.assert_array_equal(outputs[clear], expected.argmax(axis=0)[clear])


@pytest.mark.parametrize("encoding", ["rle", "counts", "pixels"])
@pytest.mark.parametrize("function", ["threshold", "argmax"])
@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_an_image_without_pixels_has_empty_masks(function: str, encoding: str, size: tuple[int, int]) -> None:
    """A warm-up request has such a size, because its values are zeros."""
    outputs = masks(
        np.zeros((1, 2, 3, 3), np.float32), np.array([size]), Settings(function=function, encoding=encoding)
    )
    if encoding == "pixels":
        assert outputs["mask"].shape[-2:] == size
    else:
        assert json.loads(outputs["rle"][0, 1])["size"] == list(size)


@pytest.mark.parametrize(
    ("logits", "sizes", "more", "message"),
    [
        (np.full((2, 1, 2, 2), np.nan), [[2, 2], [2, 2]], {}, "'logits', item 0: a value is not finite"),
        (np.full((1, 1, 2, 2), np.inf), [[2, 2]], {}, "'logits', item 0: a value is not finite"),
        (np.zeros((1, 1, 0, 2)), [[2, 2]], {}, r"'logits': found shape \[1, 0, 2\]"),
        (np.zeros((1, 1, 2, 2)), [[2, 2]], {"function": "argmax"}, "found 1 channels, wanted 2 to 255"),
        (np.zeros((1, 256, 2, 2)), [[2, 2]], {"function": "argmax"}, "found 256 channels"),
        (np.zeros((1, 1, 2, 2)), [[2, -2]], {}, "'image_size': found -2, wanted none below 0"),
        (np.zeros((1, 3, 2, 2)), [[100, 100]], {"max_values": 29_999}, "30000 values; at most 29999 .*max_values"),
        (np.zeros((1, 3, 2, 2)), [[2**40, 2**40]], {}, "at most 33554432 are taken"),
        (np.zeros((2, 1, 2, 2)), [[1, 9000], [9000, 1]], {"encoding": "pixels"}, "162000000 values; at most 33554432"),
        (np.zeros((2, 1, 2, 2)), [[0, 9000], [9000, 0]], {"encoding": "pixels"}, "162000000 values; at most 33554432"),
        (np.zeros((1, 3, 2, 2)), [[0, 2**40]], {}, f"{3 * 2**40} values; at most 33554432"),
        (np.full((2, 1, 2, 2), 3e38), [[2, 2], [2, 2]], {}, "'logits', item 0: a value is not finite, or beyond 1e.38"),
        (np.full((1, 1, 2, 2), -3e38), [[2, 2]], {}, "'logits', item 0: a value is not finite, or beyond 1e.38"),
    ],
)
def test_what_makes_no_mask_is_refused(
    logits: np.ndarray, sizes: list[list[int]], more: dict[str, Any], message: str
) -> None:
    """Each message names the input, and the item where there is one."""
    with pytest.raises(ValueError, match=message):
        masks(logits.astype(np.float32), np.array(sizes), Settings(**more))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"function": "max"}, "function: found max"),
        ({"encoding": "png"}, "encoding: found png, wanted rle, counts or pixels"),
        ({"threshold": 1.0}, "threshold: found 1.0, wanted above 0 and below 1"),
        ({"threshold": float("inf"), "sigmoid": False}, "threshold: found inf"),
        ({"mask_width": 0}, "mask_width: found 0"),
        ({"resize": "pad"}, "resize: found pad"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """Each parameter names itself, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)
