"""An encoded PNG or JPEG to the pixels a network takes.

Order: header checks, decode, EXIF orientation, 16 to 8 bit, alpha over the background, grey or RGB,
resize (Pillow, anti-aliased), scale, mean and std. `resize="crop"` is the ImageNet evaluation
transform as torchvision writes it: shorter side to `resize_to`, then the centre. With
`dtype="UINT8"` the bytes stay as they are: a quarter of the data, for networks that normalise.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
RESAMPLE = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
BACKGROUND = {"white": (255, 255, 255, 255), "black": (0, 0, 0, 255)}
DTYPES = {"FP32": np.dtype(np.float32), "UINT8": np.dtype(np.uint8)}
BYTE = 1 / 255  # the default scale: bytes to 0..1


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    height: int = 224
    width: int = 224
    channels: int = 3
    resize: str = "stretch"
    resize_to: int = 256
    resample: str = "bilinear"
    background: str = "white"
    dtype: str = "FP32"
    scale: float = BYTE
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    max_pixels: int = 64_000_000
    max_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        """Raise ValueError for values that make no step."""
        for name in ("height", "width", "resize_to", "max_pixels", "max_bytes"):
            _want(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _want(self.channels in (1, 3), "channels", self.channels, "1 (grey) or 3 (RGB)")
        _want(self.resize in ("stretch", "crop"), "resize", self.resize, "stretch or crop")
        _want(self.resample in RESAMPLE, "resample", self.resample, f"one of {sorted(RESAMPLE)}")
        _want(self.background in BACKGROUND, "background", self.background, "white or black")
        for name in ("mean", "std"):
            size = len(getattr(self, name))
            finite = np.isfinite((self.scale, *getattr(self, name))).all()
            _want(bool(finite), f"scale or {name}", "not a finite number", "finite numbers")
            _want(size in (1, self.channels), name, f"{size} values", f"1 or {self.channels}")
        _want(all(value > 0 for value in self.std), "std", self.std, "values above 0")
        if self.resize == "crop":
            side = max(self.height, self.width)
            _want(self.resize_to >= side, "resize_to", self.resize_to, f"at least {side}")
        _want(self.dtype in DTYPES, "dtype", self.dtype, f"one of {sorted(DTYPES)}")
        if self.dtype == "UINT8":
            plain = self.scale == BYTE and not any(self.mean) and set(self.std) == {1.0}
            _want(plain, "dtype", "UINT8 with scale, mean or std", "FP32, or none of these")


def _want(holds: bool, name: str, found: object, wanted: str) -> None:
    if not holds:
        raise ValueError(f"parameter {name}: found {found}, wanted {wanted}")


def decode_image(data: bytes, settings: Settings) -> np.ndarray:
    """Decode one image.

    Returns:
        [channels, height, width]: float32, `(value 0..255 * scale - mean) / std`; or uint8, 0..255.

    Raises:
        ValueError: not a PNG or JPEG, too large (before decoding), truncated or damaged.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about odd metadata, which changes no pixel
        image = _opened(data, settings)
        size = f"{image.width} x {image.height}"
        if image.width * image.height > settings.max_pixels:
            raise ValueError(f"the image is {size}; at most {settings.max_pixels} pixels are taken")
        try:
            image.load()
        except Exception as error:  # Pillow raises a dozen classes on damaged files
            raise ValueError(f"the {image.format} image ({size}) is damaged: {error}") from error
        return _pixels(_resized(_plain(_upright(image), settings), settings), settings)


def _opened(data: bytes, settings: Settings) -> ImageFile:
    """The image with its header read and nothing decoded.

    Pillow's classes are called directly: `Image.open` would try other formats and judge the size by
    a process-wide limit with process-wide warnings.
    """
    if not data:
        raise ValueError("the image has 0 bytes")
    if len(data) > settings.max_bytes:
        raise ValueError(f"the image has {len(data)} bytes; at most {settings.max_bytes} are taken")
    if data.startswith(PNG):
        plugin: type[ImageFile] = PngImageFile
    elif data.startswith(JPEG):
        plugin = JpegImageFile
    else:
        raise ValueError(f"not a PNG or JPEG: it starts with {data[:8].hex(' ')}")
    try:
        return plugin(BytesIO(data))
    except Exception as error:
        raise ValueError(f"the {plugin.format} image has a damaged header: {error}") from error


def _upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF orientation says; unreadable EXIF is ignored, as viewers do."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def _plain(image: Image.Image, settings: Settings) -> Image.Image:
    """8-bit grey or RGB with any transparency laid over the background."""
    if image.mode.startswith("I"):
        image = _eight_bit(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, BACKGROUND[settings.background])
        image = Image.alpha_composite(ground, layer)
        image = image.convert("RGB")
    return image.convert("L" if settings.channels == 1 else "RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """A 16-bit grey image in 8 bits: 65,535 becomes 255 (Pillow's own convert would clip)."""
    values = np.asarray(image).astype(np.uint32)
    grey = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):  # PNG's tRNS: this one 16-bit value is transparent
        grey.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return grey


def _resized(image: Image.Image, settings: Settings) -> Image.Image:
    size = (settings.width, settings.height)
    box = _crop_box(image.size, settings) if settings.resize == "crop" else None
    return image.resize(size, RESAMPLE[settings.resample], box=box)


def _crop_box(size: tuple[int, int], settings: Settings) -> tuple[float, float, float, float]:
    """The part of the source that torchvision's Resize then CenterCrop would keep.

    Resampling only this part gives the same pixels but for rounding, and a 1 x 1,000,000 image does
    not first become 256 x 256,000,000.
    """
    short = min(size)
    scaled = [int(settings.resize_to * side / short) for side in size]
    wanted = (settings.width, settings.height)
    starts = [round((have - want) / 2.0) for have, want in zip(scaled, wanted, strict=True)]
    ratios = [side / have for side, have in zip(size, scaled, strict=True)]
    left, top = (start * ratio for start, ratio in zip(starts, ratios, strict=True))
    right, bottom = (
        min((start + want) * ratio, side)
        for start, want, ratio, side in zip(starts, wanted, ratios, size, strict=True)
    )
    return left, top, right, bottom


def _pixels(image: Image.Image, settings: Settings) -> np.ndarray:
    values = np.asarray(image, dtype=DTYPES[settings.dtype]).reshape(
        settings.height, settings.width, settings.channels
    )
    planes = np.ascontiguousarray(values.transpose(2, 0, 1))  # [channels, height, width]
    if settings.dtype == "UINT8":
        return planes
    mean = np.asarray(settings.mean, dtype=np.float32)[:, None, None]
    std = np.asarray(settings.std, dtype=np.float32)[:, None, None]
    planes *= np.float32(settings.scale)
    planes -= mean
    planes /= std
    return planes
