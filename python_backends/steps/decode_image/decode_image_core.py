"""Decode a PNG, JPEG or WebP to the pixels that a network takes.

Order: header checks, decode, 16 to 8 bit, alpha over the background, gray or RGB, EXIF orientation, resize (Pillow,
anti-aliased), padding, scale, mean and std. `resize="crop"` is the ImageNet evaluation transform as torchvision writes
it: shorter side to `resize_to`, then the center. With `dtype="UINT8"` the bytes stay unchanged: a quarter of the data,
for networks that normalize.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

import decode_image_jpeg
import decode_image_png
import decode_image_webp
import numpy as np
from decode_image_geometry import OWN_SIZES, RESIZES, Placement, check_frame, place, want
from decode_image_linear import linear
from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

if TYPE_CHECKING:
    from decode_image_header import Header

FORMATS: dict[str, Any] = {"PNG": decode_image_png, "JPEG": decode_image_jpeg, "WebP": decode_image_webp}
PLUGINS: dict[str, type[ImageFile]] = {"PNG": PngImageFile, "JPEG": JpegImageFile, "WebP": WebPImageFile}
UPRIGHT = {  # by EXIF orientation, as in PIL.ImageOps.exif_transpose
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SWAPS_SIDES = {UPRIGHT[orientation] for orientation in (5, 6, 7, 8)}
TILE = 1 << 20  # pixels
RESAMPLE: dict[str, Image.Resampling | None] = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "linear": None,  # Pillow has none that does not average
}
SUPPORT = {"box": 0.5, "bilinear": 1, "bicubic": 2}  # source pixels on either side that a filter uses
BACKGROUND = {"white": (255, 255, 255, 255), "black": (0, 0, 0, 255)}
DTYPES = {"FP32": np.dtype(np.float32), "UINT8": np.dtype(np.uint8)}
LIMITS = ("max_pixels", "max_bytes", "max_decoded_bytes", "max_batch_decoded_bytes")
BYTE = 1 / 255  # the default scale: bytes to 0..1


@dataclass(frozen=True)
class PixelSettings:
    """The parameters of pixels, which the step `crop` shares; step.yaml explains each."""

    height: int = 224
    width: int = 224
    channels: int = 3
    color: str = "RGB"
    layout: str = "NCHW"
    resize: str = "stretch"
    resize_to: int = 256
    pad_value: int = 114
    resample: str = "bilinear"
    background: str = "white"
    dtype: str = "FP32"
    scale: float = BYTE
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    max_pixels: int = 64_000_000
    max_bytes: int = 32 * 1024 * 1024
    max_decoded_bytes: int = 192 * 1024 * 1024
    max_batch_decoded_bytes: int = 2048 * 1024 * 1024
    resizes: ClassVar[tuple[str, ...]] = RESIZES

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        check_frame(self, self.resizes)
        for name in LIMITS:
            want(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        want(self.channels in (1, 3), "channels", self.channels, "1 (gray) or 3 (RGB)")
        want(self.color in ("RGB", "BGR"), "color", self.color, "RGB or BGR")
        want(self.channels == 3 or self.color == "RGB", "color", "BGR with channels 1", "RGB, or channels 3")
        want(self.layout in ("NCHW", "NHWC"), "layout", self.layout, "NCHW or NHWC")
        want(0 <= self.pad_value <= 255, "pad_value", self.pad_value, "0 to 255")
        want(self.resample in RESAMPLE, "resample", self.resample, f"one of {sorted(RESAMPLE)}")
        want(self.background in BACKGROUND, "background", self.background, "white or black")
        for name in ("mean", "std"):
            size = len(getattr(self, name))
            finite = np.isfinite((self.scale, *getattr(self, name))).all()
            want(bool(finite), f"scale or {name}", "not a finite number", "finite numbers")
            want(size in (1, self.channels), name, f"{size} values", f"1 or {self.channels}")
        want(all(value > 0 for value in self.std), "std", self.std, "values above 0")
        want(self.dtype in DTYPES, "dtype", self.dtype, f"one of {sorted(DTYPES)}")
        if self.dtype == "UINT8":
            plain = self.scale == BYTE and not any(self.mean) and set(self.std) == {1.0}
            want(plain, "dtype", "UINT8 with scale, mean or std", "FP32, or none of these")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image's pixels, where all have one."""
        if self.layout == "NHWC":
            return self.height, self.width, self.channels
        return self.channels, self.height, self.width


@dataclass(frozen=True)
class Settings(PixelSettings):
    """The step's parameters."""

    image_size: bool = False
    resizes: ClassVar[tuple[str, ...]] = RESIZES + OWN_SIZES


def decoded_bytes(data: bytes, settings: PixelSettings) -> int:
    """Bytes that an image takes when it is decoded, from its header: width x height x the format's bytes per pixel.

    Raises:
        ValueError: not a PNG, JPEG or WebP, damaged at its beginning, or beyond a limit.
    """
    return _checked_header(data, settings).decoded_bytes


def decode_image(data: bytes, settings: PixelSettings) -> np.ndarray:
    """The pixels of `decode_sized`."""
    return decode_sized(data, settings)[0]


def decode_sized(data: bytes, settings: PixelSettings) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode one image, in at most three times its `decoded_bytes` of memory in addition to the file's own.

    Returns:
        Pixels [channels, height, width], or [height, width, channels] with `layout` NHWC: float32,
        `(value 0..255 * scale - mean) / std`; or uint8, 0..255. And height and width of the upright image.

    Raises:
        ValueError: not a PNG, JPEG or WebP, too large (before decoding), several frames, truncated or damaged.
    """
    image, size = _decoded(data, settings, resizes=True)
    return pixels_of(_resized(image, settings), settings), size[::-1]


def decode_upright(data: bytes, settings: PixelSettings) -> Image.Image:
    """The whole image, upright, with 8 bits, in gray (L) or RGB; within the limits of `decode_sized`."""
    return _decoded(data, settings, resizes=False)[0]


def _decoded(data: bytes, settings: PixelSettings, resizes: bool) -> tuple[Image.Image, tuple[int, int]]:
    """The upright image, and its width and height."""
    header = _checked_header(data, settings)
    size = (header.width, header.height)
    try:
        data, orientation = FORMATS[header.format].pixels_only(data)
    except ValueError as error:
        raise ValueError(f"the {header.format} image is refused: {error}") from None
    turn = UPRIGHT.get(orientation)
    upright = size[::-1] if turn in SWAPS_SIDES else size
    if resizes:
        check_resize(upright, place(upright, settings), settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about odd metadata, which changes no pixel
        # Each step drops a name, so that its memory is freed before the next copy is made.
        image: Image.Image = _loaded(data, header)
        image = _flat(image, settings)
        if turn is not None:
            image = image.transpose(turn)
    return image, upright


def _checked_header(data: bytes, settings: PixelSettings) -> Header:
    if not data:
        raise ValueError("the image has 0 bytes")
    if len(data) > settings.max_bytes:
        raise ValueError(f"the image has {len(data)} bytes; at most {settings.max_bytes} are taken")
    kind = next((kind for kind, of in FORMATS.items() if of.matches(data)), None)
    if kind is None:
        raise ValueError(f"not a PNG, JPEG or WebP: it starts with {data[:8].hex(' ')}")
    try:
        header: Header = FORMATS[kind].read_header(data)
    except ValueError as error:
        raise ValueError(f"the {kind} image has a damaged header: {error}") from None
    size = f"{header.width} x {header.height}"
    if header.width * header.height > settings.max_pixels:
        raise ValueError(f"the image is {size}; at most {settings.max_pixels} pixels are taken")
    if header.decoded_bytes > settings.max_decoded_bytes:
        raise ValueError(
            f"the image is {size} x {header.pixel_bytes} bytes; at most"
            f" {settings.max_decoded_bytes} bytes are taken (parameter max_decoded_bytes)"
        )
    return header


def _loaded(data: bytes, header: Header) -> ImageFile:
    """The decoded image.

    Pillow's classes are called directly: `Image.open` would try other formats and judge the size by a process-wide
    limit with process-wide warnings.
    """
    size = f"{header.width} x {header.height}"
    try:
        image = PLUGINS[header.format](BytesIO(data))
    except Exception as error:  # Pillow raises a dozen classes on damaged files
        raise ValueError(f"the {header.format} image has a damaged header: {error}") from error
    if image.size != (header.width, header.height):  # the limits were checked against the other size
        raise ValueError(f"the {header.format} image has a damaged header: {size} or {image.size}")
    try:
        image.load()
    except Exception as error:
        raise ValueError(f"the {header.format} image ({size}) is damaged: {error}") from error
    return image


def check_resize(size: tuple[int, int], placement: Placement, settings: PixelSettings) -> None:
    """Refuse an image that Pillow cannot resize within the memory limit.

    Pillow may shrink the width first and then the height, and keeps a weight for each source pixel along both sides, so
    an image of a few KiB that is one pixel wide would take gigabytes.
    """
    if settings.resample not in SUPPORT:
        return
    left, top, right, bottom = placement.box
    between = placement.size[0] * (bottom - top) * settings.channels
    weights = 16 * SUPPORT[settings.resample] * (right - left + bottom - top)
    if between + weights > settings.max_decoded_bytes:
        raise ValueError(
            f"the image is {size[0]} x {size[1]}: to resize it takes {between + weights:.0f} bytes; at"
            f" most {settings.max_decoded_bytes} are taken (parameter max_decoded_bytes)"
        )


def _flat(image: Image.Image, settings: PixelSettings) -> Image.Image:
    """8-bit gray or RGB with any transparency laid over the background; gray stays gray."""
    gray = settings.channels == 1 or image.mode[0] in "1LI"
    mode = "L" if gray else "RGB"
    if not image.mode.startswith("I") and not image.has_transparency_data:
        return image if image.mode == mode else image.convert(mode)
    flat = Image.new(mode, image.size)
    # The image is processed in parts, because the intermediate values take four or more bytes per pixel.
    width = min(image.width, TILE)
    height = max(TILE // width, 1)
    for top in range(0, image.height, height):
        for left in range(0, image.width, width):
            box = (left, top, min(left + width, image.width), min(top + height, image.height))
            flat.paste(_flat_tile(image.crop(box), mode, settings), box)
    return flat


def _flat_tile(image: Image.Image, mode: str, settings: PixelSettings) -> Image.Image:
    if image.mode.startswith("I"):
        image = _eight_bit(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, BACKGROUND[settings.background])
        image = Image.alpha_composite(ground, layer).convert("RGB")
    return image.convert(mode)


def _eight_bit(image: Image.Image) -> Image.Image:
    """A 16-bit gray image in 8 bits: 65,535 becomes 255 (Pillow's own convert would clip)."""
    values = np.asarray(image).astype(np.uint32)
    gray = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):  # PNG's tRNS: this one 16-bit value is transparent
        gray.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return gray


def _resized(image: Image.Image, settings: PixelSettings) -> np.ndarray:
    """The image at the requested size, in gray or RGB as requested: uint8 [height, width, channels]."""
    return placed(image, place(image.size, settings), settings)


def placed(image: Image.Image, placement: Placement, settings: PixelSettings) -> np.ndarray:
    """A part of the image in its place, with `pad_value` around it: uint8 [height, width, channels]."""
    width, height = placement.size
    mode = "L" if settings.channels == 1 else "RGB"
    if settings.resample == "linear":
        values = np.asarray(image.convert(mode)).reshape(image.height, image.width, settings.channels)
        values = linear(values, placement.size, placement.box)
    else:
        image = image.resize(placement.size, RESAMPLE[settings.resample], box=placement.box).convert(mode)
        values = np.asarray(image).reshape(height, width, settings.channels)
    if placement.size == (settings.width, settings.height) or settings.resize in OWN_SIZES:
        return values
    left, top = placement.at
    padded = np.full((settings.height, settings.width, settings.channels), settings.pad_value, dtype=np.uint8)
    padded[top : top + height, left : left + width] = values
    return padded


def pixels_of(values: np.ndarray, settings: PixelSettings) -> np.ndarray:
    """Pixels uint8 [height, width, channels] in the color order, layout and dtype of the settings, scaled."""
    if settings.color == "BGR":
        values = values[:, :, ::-1]
    if settings.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    pixels = np.array(values, dtype=DTYPES[settings.dtype], order="C")
    if settings.dtype == "UINT8":
        return pixels
    axes = (1, 1, -1) if settings.layout == "NHWC" else (-1, 1, 1)
    if settings.scale != 1:  # each pass over the pixels takes time, also one that changes nothing
        pixels *= np.float32(settings.scale)
    if any(settings.mean):
        pixels -= np.asarray(settings.mean, dtype=np.float32).reshape(axes)
    if set(settings.std) != {1}:
        pixels /= np.asarray(settings.std, dtype=np.float32).reshape(axes)
    return pixels
