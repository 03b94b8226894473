"""decode_image without Triton: every kind of image, and everything that is not one."""

import io
import struct
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from decode_image_core import Settings, decode_image, decode_sized, decoded_bytes
from decode_image_linear import linear
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.python_backends.adapters import Request, adapter, images

RAW = {"scale": 1.0, "resample": "nearest"}  # the 0..255 values themselves


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The image as the bytes of a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def handmade_png(width: int, height: int, depth: int, color: int, rows: bytes, chunks: bytes = b"") -> bytes:
    """A PNG of kinds Pillow does not write; `rows` is the data with its filter bytes."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks + data + chunk(b"IEND", b"")


def chunk(name: bytes, data: bytes) -> bytes:
    """One PNG chunk with length and checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    """A smooth random RGB picture, so that JPEG keeps it nearly as it is."""
    values = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC)


def test_rgb_png_gives_its_own_values_channels_first() -> None:
    """A PNG of the wanted size comes out pixel for pixel, as float32 [channels, height, width]."""
    values = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 13
    pixels = decode_image(encoded(Image.fromarray(values)), Settings(height=2, width=3, channels=3, **RAW))
    assert pixels.dtype == np.float32
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, values.transpose(2, 0, 1))


def test_default_scale_mean_and_std() -> None:
    """White is 1.0 by default, and (1 - mean) / std per channel where they are given."""
    white = encoded(Image.new("RGB", (4, 4), "white"))
    np.testing.assert_array_equal(decode_image(white, Settings(height=2, width=2)), 1.0)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pixels = decode_image(white, Settings(height=1, width=1, mean=mean, std=std))
    np.testing.assert_allclose(pixels[:, 0, 0], (1 - np.array(mean)) / np.array(std), rtol=1e-6)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("channels", [1, 3])
def test_bytes_are_the_values_that_floats_are_made_of(kind: str, channels: int) -> None:
    """UINT8 gives the same 0..255 values, resized in the same way, in a quarter of the memory."""
    data = encoded(noise(37, 50), kind)
    size = {"height": 20, "width": 24, "channels": channels}
    pixels = decode_image(data, Settings(dtype="UINT8", **size))
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, decode_image(data, Settings(scale=1.0, **size)))
    assert len(np.unique(pixels)) > 20


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_modes_without_alpha_keep_black_and_white(mode: str) -> None:
    """Bilevel, gray, palette and RGB files all give black 0 and white 255 in RGB and in gray."""
    image = Image.new("L", (2, 1))
    image.putpixel((1, 0), 255)
    data = encoded(image.convert(mode))
    for channels in (1, 3):
        pixels = decode_image(data, Settings(height=1, width=2, channels=channels, **RAW))
        np.testing.assert_array_equal(pixels, [[[0, 255]]] * channels)


@pytest.mark.parametrize(("background", "shows"), [("white", 255), ("black", 0)])
@pytest.mark.parametrize("mode", ["LA", "RGBA", "P"])
def test_transparent_pixels_show_the_background(mode: str, background: str, shows: int) -> None:
    """Clear pixels take the background, whatever color hides beneath; opaque ones keep theirs."""
    image = Image.new("RGBA", (2, 1), (90, 90, 90, 255))
    image.putpixel((0, 0), (200, 200, 200, 0))
    data = encoded(image.quantize(4) if mode == "P" else image.convert(mode))
    pixels = decode_image(data, Settings(height=1, width=2, background=background, **RAW))
    np.testing.assert_allclose(pixels[:, 0, 0], shows)
    np.testing.assert_allclose(pixels[:, 0, 1], 90, atol=1)


def test_half_transparent_pixel_is_mixed() -> None:
    """Black at half opacity over white is mid gray."""
    data = encoded(Image.new("RGBA", (1, 1), (0, 0, 0, 128)))
    pixels = decode_image(data, Settings(height=1, width=1, **RAW))
    np.testing.assert_allclose(pixels, 127, atol=1)


def test_sixteen_bit_gray_is_scaled_not_clipped() -> None:
    """0, half and full of a 16-bit PNG become 0, 128 and 255."""
    values = np.array([[0, 32896, 65535]], dtype=np.uint16)
    data = encoded(Image.fromarray(values))
    pixels = decode_image(data, Settings(height=1, width=3, channels=1, **RAW))
    np.testing.assert_array_equal(pixels, [[[0, 128, 255]]])


def test_sixteen_bit_gray_with_a_transparent_value() -> None:
    """The one 16-bit value that tRNS names as clear shows the background."""
    rows = b"\x00" + struct.pack(">HH", 1000, 30000)
    data = handmade_png(2, 1, 16, 0, rows, chunk(b"tRNS", struct.pack(">H", 1000)))
    pixels = decode_image(data, Settings(height=1, width=2, channels=1, **RAW))
    np.testing.assert_array_equal(pixels, [[[255, round(30000 / 257)]]])


@pytest.mark.parametrize(("color", "samples"), [(2, 3), (4, 2), (6, 4)])
def test_sixteen_bit_color_and_alpha(color: int, samples: int) -> None:
    """16-bit RGB, gray with alpha and RGBA come out in 0..255."""
    pixel = [0x4000] * (samples - 1) + [0xFFFF if color in (4, 6) else 0x4000]
    rows = b"\x00" + struct.pack(f">{samples}H", *pixel)
    data = handmade_png(1, 1, 16, color, rows)
    pixels = decode_image(data, Settings(height=1, width=1, **RAW))
    np.testing.assert_allclose(pixels, 64, atol=1)


def test_cmyk_jpeg_is_converted() -> None:
    """Full cyan in a CMYK JPEG is green and blue without red."""
    data = encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG", quality=95)
    pixels = decode_image(data, Settings(height=1, width=1, **RAW))
    np.testing.assert_allclose(pixels[:, 0, 0], [0, 255, 255], atol=3)


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_webp_is_decoded(mode: str, lossless: bool) -> None:
    """Lossless WebP gives a PNG's own pixels, lossy nearly; what is clear shows the background."""
    image = noise(20, 30).convert(mode)
    if mode == "RGBA":
        image.putalpha(Image.new("L", image.size, 0))
    settings = Settings(height=20, width=30, **RAW)
    expected = decode_image(encoded(image), settings)
    pixels = decode_image(encoded(image, "WEBP", lossless=lossless, quality=95), settings)
    np.testing.assert_allclose(pixels, expected, atol=0 if lossless else 40)
    assert np.abs(pixels - expected).mean() < 4


def test_webp_has_the_size_of_its_header() -> None:
    """Each of the three kinds of header gives the size before anything is decoded."""
    image = noise(19, 301)
    for options in ({"lossless": True}, {"quality": 50}, {"quality": 50, "exif": b"Exif\0\0MM"}):
        data = encoded(image, "WEBP", **options)
        assert decoded_bytes(data, Settings()) == 19 * 301 * 8
        with pytest.raises(ValueError, match="the image is 301 x 19"):
            decode_image(data, Settings(max_pixels=300))


def test_bgr_and_nhwc_are_the_same_values_in_another_order() -> None:
    """Color order and layout move values; mean and std go with the output's channels."""
    data = encoded(noise(9, 12))
    mean = (0.1, 0.2, 0.3)
    size = {"height": 9, "width": 12}
    plain = decode_image(data, Settings(**size, mean=mean))
    last = decode_image(data, Settings(**size, mean=mean, layout="NHWC"))
    np.testing.assert_array_equal(last, plain.transpose(1, 2, 0))
    turned = decode_image(data, Settings(**size, mean=mean[::-1], color="BGR"))
    np.testing.assert_array_equal(turned, plain[::-1])
    both = decode_image(data, Settings(**size, dtype="UINT8", color="BGR", layout="NHWC"))
    assert both.flags.c_contiguous
    np.testing.assert_array_equal(both, np.asarray(noise(9, 12))[:, :, ::-1])
    gray = decode_image(data, Settings(**size, channels=1, layout="NHWC"))
    assert gray.shape == (9, 12, 1)


def yolo_letterbox(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, top, width and height by the formulas that Ultralytics publishes for its LetterBox (auto=False)."""
    ratio = min(target[1] / size[1], target[0] / size[0])
    new = round(size[0] * ratio), round(size[1] * ratio)
    across, down = (target[0] - new[0]) / 2, (target[1] - new[1]) / 2
    return round(across - 0.1), round(down - 0.1), *new


@pytest.mark.parametrize("size", [(640, 480), (480, 641), (33, 64), (1000, 17), (1, 1), (5, 4), (1281, 719)])
@pytest.mark.parametrize("target", [(64, 64), (64, 48), (31, 64)])
def test_letterbox_is_that_of_yolo(size: tuple[int, int], target: tuple[int, int]) -> None:
    """The image lies where YOLO puts it, and pad_value lies around it, before scale, mean and std."""
    image = noise(size[1], size[0])
    settings = Settings(height=target[1], width=target[0], resize="letterbox", scale=1.0, pad_value=7, mean=(1.0,))
    pixels, source = decode_sized(encoded(image), settings)
    assert source == size[::-1]
    left, top, width, height = yolo_letterbox(size, target)
    inside = (slice(None), slice(top, top + height), slice(left, left + width))
    expected = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels[inside], expected - 1.0)
    pixels[inside] = 6
    np.testing.assert_array_equal(pixels, 6)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((640, 480), (66, 50)),
        ((480, 640), (50, 66)),
        ((50, 50), (50, 50)),
        ((2000, 500), (80, 20)),
        ((3, 900), (1, 70)),
    ],
)
def test_shortest_has_the_size_of_torchvision(size: tuple[int, int], shown: tuple[int, int]) -> None:
    """The shorter side has resize_to, or less where the longer would not fit; padding is right and at the bottom."""
    image = noise(size[1], size[0])
    settings = Settings(height=70, width=80, resize="shortest", resize_to=50, scale=1.0)
    pixels = decode_image(encoded(image), settings)
    expected = np.asarray(image.resize(shown, Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels[:, : shown[1], : shown[0]], expected)
    assert (pixels[:, shown[1] :] == 114).all()
    assert (pixels[:, :, shown[0] :] == 114).all()


@pytest.mark.parametrize("resize", ["stretch", "crop", "letterbox", "shortest"])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_one_pixel_of_any_mode_fills_its_place(mode: str, resize: str) -> None:
    """A white image of 1 x 1 is white wherever it lies."""
    white = Image.fromarray(np.full((1, 1), 65535, np.uint16)) if mode == "I;16" else Image.new("RGB", (1, 1), "white")
    data = encoded(white if mode == "I;16" else white.convert(mode), "JPEG" if mode == "CMYK" else "PNG")
    to = 6 if resize == "shortest" else 8
    pixels, size = decode_sized(data, Settings(height=6, width=8, resize=resize, resize_to=to))
    assert size == (1, 1)
    assert (pixels[:, :, 1:6] > 0.99).all() if resize != "shortest" else (pixels[:, :, :6] > 0.99).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_image_size_is_that_of_the_upright_image(kind: str, orientation: int) -> None:
    """Height and width are those that a viewer shows."""
    exif = Image.Exif()
    exif[274] = orientation
    _, size = decode_sized(encoded(noise(4, 10), kind, exif=exif), Settings())
    assert size == ((10, 4) if orientation > 4 else (4, 10))


UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_exif_orientation_is_applied(orientation: int) -> None:
    """A picture stored turned or mirrored comes out upright (EXIF 2.3, tag 274)."""
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    exif = Image.Exif()
    exif[274] = orientation
    upright = UPRIGHT[orientation](stored)
    settings = Settings(height=upright.shape[0], width=upright.shape[1], channels=1, **RAW)
    pixels = decode_image(encoded(Image.fromarray(stored), exif=exif), settings)
    np.testing.assert_array_equal(pixels[0], upright)


def test_unreadable_exif_is_ignored() -> None:
    """Damaged metadata neither refuses the image nor warns."""
    data = encoded(noise(8, 8), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert decode_image(data, Settings(height=8, width=8)).shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (b"hello, I am text", "not a PNG, JPEG or WebP"),
        (b"\x89PNG\r\n\x1a\n", "damaged header"),
        (b"\xff\xd8\xff", "damaged header"),
        (b"\xff\xd8\xff\xe0" + b"\x00" * 100, "damaged header"),
        (encoded(Image.new("RGB", (4, 4)), "GIF"), "not a PNG, JPEG or WebP"),
        (encoded(Image.new("RGB", (4, 4)), "BMP"), "not a PNG, JPEG or WebP"),
        (encoded(Image.new("RGB", (4, 4)), "TIFF"), "not a PNG, JPEG or WebP"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "not a PNG, JPEG or WebP"),
        (b"RIFF\x24\x00\x00\x00WEBP", "damaged header: it has no frame header"),
        (b"RIFF\x24\x00\x00\x00WEBPVP8 \x14\x00\x00\x00" + bytes(20), "damaged header: it begins with"),
    ],
)
def test_what_is_not_an_image_is_refused(data: bytes, message: str) -> None:
    """Empty, text, other formats and bare magic bytes each get a message that says so."""
    with pytest.raises(ValueError, match=message):
        decode_image(data, Settings())


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_no_cut_gives_half_an_image(kind: str) -> None:
    """Cut at any byte, a file is refused, or, with only its end mark gone, decodes in full."""
    settings = Settings(height=24, width=24)
    data = encoded(noise(24, 24), kind)
    whole = decode_image(data, settings)
    accepted = 0
    for length in range(len(data)):
        try:
            pixels = decode_image(data[:length], settings)
        except ValueError:
            continue
        accepted += 1
        np.testing.assert_array_equal(pixels, whole)
    assert accepted <= 24


def test_half_a_webp_says_that_it_is_truncated() -> None:
    """A cut WebP is refused before it is decoded."""
    data = encoded(noise(64, 48), "WEBP")
    with pytest.raises(ValueError, match="the WebP image is refused: it is truncated"):
        decode_image(data[: len(data) * 3 // 4], Settings())


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "progressive"])
def test_half_a_file_says_that_it_is_damaged(kind: str) -> None:
    """The message names the format, the size and what the decoder met."""
    options = {"progressive": True} if kind == "progressive" else {}
    data = encoded(noise(64, 48), "JPEG" if kind == "progressive" else kind, **options)
    with pytest.raises(ValueError, match=r"(PNG|JPEG) image \(48 x 64\) is damaged: .*truncated"):
        decode_image(data[: len(data) * 3 // 4], Settings())


def huge_jpeg() -> bytes:
    """A small JPEG whose header claims 20,000 x 20,000."""
    data = bytearray(encoded(noise(16, 16), "JPEG"))
    start = data.index(b"\xff\xc0")
    data[start + 5 : start + 9] = struct.pack(">HH", 20_000, 20_000)
    return bytes(data)


@pytest.mark.parametrize("data", [handmade_png(20_000, 20_000, 8, 2, b"\x00" * 100), huge_jpeg()], ids=["png", "jpeg"])
def test_too_many_pixels_are_refused_before_decoding(data: bytes) -> None:
    """20,000 x 20,000 is refused from the header (what follows is damaged), without touching Pillow's state."""
    before = (Image.MAX_IMAGE_PIXELS, list(warnings.filters))
    with pytest.raises(ValueError, match=r"20000 x 20000; at most 64000000 pixels"):
        decode_image(data, Settings())
    assert (Image.MAX_IMAGE_PIXELS, list(warnings.filters)) == before


def test_a_file_past_max_bytes_is_refused() -> None:
    """The encoded size has its own limit."""
    data = encoded(noise(8, 8))
    with pytest.raises(ValueError, match=rf"{len(data)} bytes; at most {len(data) - 1}"):
        decode_image(data, Settings(max_bytes=len(data) - 1))
    decode_image(data, Settings(max_bytes=len(data)))


@given(st.data(), st.sampled_from(["PNG", "JPEG", "WEBP"]))
def test_damage_gives_an_error_or_an_image(data: st.DataObject, kind: str) -> None:
    """With any bytes overwritten, the outcome is a ValueError or finite pixels of the right shape."""
    file = bytearray(encoded(noise(12, 12), kind))
    places = st.tuples(st.integers(8, len(file) - 1), st.integers(0, 255))
    for place, value in data.draw(st.lists(places, min_size=1, max_size=4)):
        file[place] = value
    try:
        pixels = decode_image(bytes(file), Settings(height=8, width=8, max_pixels=1_000_000))
    except ValueError:
        return
    assert pixels.shape == (3, 8, 8)
    assert np.isfinite(pixels).all()


@pytest.mark.parametrize("size", [(300, 400), (400, 300), (224, 224), (77, 500), (1000, 999)])
@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "box"])
def test_crop_is_the_imagenet_transform(size: tuple[int, int], resample: str) -> None:
    """The pixels are those of torchvision's Resize(256) then CenterCrop(224) but for rounding."""
    image = noise(*size, seed=3)
    short = min(image.size)
    scaled = image.resize(tuple(int(256 * side / short) for side in image.size), Image.Resampling[resample.upper()])
    left, top = (round((side - 224) / 2) for side in scaled.size)
    expected = np.asarray(scaled.crop((left, top, left + 224, top + 224)))
    pixels = decode_image(encoded(image), Settings(resize="crop", resample=resample, scale=1.0))
    difference = np.abs(pixels - expected.transpose(2, 0, 1))
    assert difference.max() <= 2
    assert difference.mean() < 0.02


def test_crop_of_a_thin_image_stays_small() -> None:
    """A 1 x 1,000,000 image is cropped without first being blown up to 256 x 256,000,000."""
    data = encoded(Image.new("L", (1_000_000, 1), 255))
    pixels = decode_image(data, Settings(resize="crop"))
    np.testing.assert_array_equal(pixels, 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"height": 0}, "height: found 0"),
        ({"channels": 2}, "channels: found 2"),
        ({"resize": "squash"}, "resize: found squash"),
        ({"resample": "cubic"}, "resample: found cubic"),
        ({"background": "red"}, "background: found red"),
        ({"dtype": "FP16"}, "dtype: found FP16"),
        ({"dtype": "UINT8", "scale": 1.0}, "dtype: found UINT8 with scale, mean or std"),
        ({"dtype": "UINT8", "mean": (0.5,)}, "wanted FP32, or none of these"),
        ({"dtype": "UINT8", "std": (0.2, 0.2, 0.2)}, "wanted FP32, or none of these"),
        ({"mean": (0.1, 0.2)}, "mean: found 2 values"),
        ({"std": (0.0,)}, "std: found"),
        ({"scale": float("nan")}, "wanted finite numbers"),
        ({"resize": "crop", "resize_to": 200}, "resize_to: found 200, wanted at least 224"),
        ({"resize": "shortest", "resize_to": 225}, "resize_to: found 225, wanted at most 224"),
        ({"color": "GBR"}, "color: found GBR"),
        ({"color": "BGR", "channels": 1}, "color: found BGR with channels 1"),
        ({"layout": "CHW"}, "layout: found CHW"),
        ({"pad_value": 256}, "pad_value: found 256, wanted 0 to 255"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, object], message: str) -> None:
    """Each parameter names itself, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)


@pytest.mark.parametrize(
    ("resize", "size", "to", "expected"),
    [
        ("at_least", (100, 50), 64, (128, 64)),
        ("at_least", (130, 90), 64, (128, 96)),
        ("at_least", (5, 5), 64, (64, 64)),
        ("at_least", (1000, 10), 64, (512, 32)),
        ("at_most", (100, 50), 64, (64, 32)),
        ("at_most", (60, 20), 64, (64, 32)),
        ("at_most", (6, 300), 64, (32, 64)),
    ],
)
def test_sizes_of_their_own_are_multiples(
    resize: str, size: tuple[int, int], to: int, expected: tuple[int, int]
) -> None:
    """The shorter side is enlarged to a length, or the longer shrunk, and both are rounded; a side is never 0."""
    settings = Settings(height=32, width=32, resize=resize, resize_to=to)
    picture = noise(size[1], size[0])
    pixels, source = decode_sized(encoded(picture), settings)
    assert pixels.shape == (3, expected[1], expected[0])
    assert source == size[::-1]
    same = np.asarray(picture.resize(expected, Image.Resampling.BILINEAR), np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(pixels, same, atol=1e-6)


def test_images_of_a_request_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of their own may differ between requests, and not in one; both layouts and no image at all are answered."""
    wide, high = encoded(noise(32, 64)), encoded(noise(64, 32))
    shapes = {"NCHW": (2, 3, 32, 64), "NHWC": (2, 32, 64, 3)}
    for layout, shape in shapes.items():
        own = {"height": "32", "width": "32", "resize": "at_most", "resize_to": "64", "layout": layout}
        model = adapter("decode_image", monkeypatch, **own)
        requests = [images(wide, wide), images(high), images(wide, high), images()]
        one, other, error, none = model.execute([Request(image=image) for image in requests])
        assert one.shape == shape
        assert sorted(other.shape) == sorted((1, *shape[1:]))
        assert "item 1: resized it is" in error.text
        assert error.kind == "invalid"
        assert len(none) == 0


@pytest.mark.parametrize(
    ("size", "to"), [((90, 70), (64, 48)), ((20, 30), (64, 48)), ((64, 48), (64, 48)), ((1, 1), (5, 3))]
)
def test_linear_never_averages(size: tuple[int, int], to: tuple[int, int]) -> None:
    """Each pixel lies between two of the source along each axis, computed in float; gray and parts too."""
    values = np.asarray(noise(size[1], size[0]))
    settings = Settings(height=to[1], width=to[0], resample="linear", dtype="UINT8", layout="NHWC")
    pixels = decode_image(encoded(Image.fromarray(values)), settings)
    weights = []
    for have, want in zip(size[::-1], to[::-1], strict=True):
        places = np.clip((np.arange(want) + 0.5) * have / want - 0.5, 0, have - 1)
        weights.append(np.maximum(0, 1 - abs(places[:, None] - np.arange(have))))
    expected = np.einsum("rh,cw,hwk->rck", *weights, values)
    np.testing.assert_allclose(pixels.astype(float), expected, atol=1)
    gray = Settings(height=to[1], width=to[0], resample="linear", dtype="UINT8", channels=1)
    assert decode_image(encoded(Image.fromarray(values[:, :, 0])), gray).shape == (1, to[1], to[0])


def test_linear_takes_no_memory_for_rows_that_it_does_not_use() -> None:
    """A few KiB of PNG may be an image of millions of rows."""
    values = np.zeros((300_000, 1, 3), np.uint8)
    tracemalloc.start()
    try:
        linear(values, (640, 640), (0.0, 0.0, 1.0, 300_000.0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_linear_resizes_a_part() -> None:
    """The middle of an image is resized as the image itself would be."""
    values = np.asarray(noise(64, 64))
    middle = linear(values, (32, 32), (16.0, 16.0, 48.0, 48.0))
    np.testing.assert_array_equal(middle, values[16:48, 16:48])
