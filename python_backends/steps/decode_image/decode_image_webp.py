"""The header of a WebP file, and the part of the file that makes pixels.

Container: https://developers.google.com/speed/webp/docs/riff_container
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from decode_image_header import MOST_METADATA, MOST_PARTS, Header, exif_orientation, xmp_orientation

if TYPE_CHECKING:
    from collections.abc import Iterator

PIXEL_BYTES = 8
"""The decoder holds two RGBA images next to each other, and Pillow two copies of its result."""
LOSSY, LOSSLESS, EXTENDED, ALPHA = b"VP8 ", b"VP8L", b"VP8X", b"ALPH"
ANIMATION = 0x02  # flags of VP8X
METADATA = 0x04 | 0x08 | 0x20  # XMP, EXIF and a color profile


def matches(data: bytes) -> bool:
    """Whether the file says that it is WebP."""
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def read_header(data: bytes) -> Header:
    """The size from the first chunk. ValueError if it does not describe an image."""
    name, chunk = next(_chunks(data), (b"", memoryview(b"")))
    body = bytes(chunk[8:18])
    if len(body) < 10 and not (name == LOSSLESS and len(body) >= 5):
        raise ValueError("it has no frame header")
    if name == EXTENDED:
        width, height = (int.from_bytes(body[at : at + 3], "little") + 1 for at in (4, 7))
    elif name == LOSSY and body[3:6] == b"\x9d\x01\x2a":
        width, height = (side & 0x3FFF for side in struct.unpack("<HH", body[6:10]))
    elif name == LOSSLESS and body[0] == 0x2F:
        (bits,) = struct.unpack("<I", body[1:5])
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        raise ValueError(f"it begins with {name!r}")
    if not width or not height:
        raise ValueError(f"{width} x {height}")
    return Header("WebP", width, height, PIXEL_BYTES)


def pixels_only(data: bytes) -> tuple[bytes, int]:
    """The file without metadata, and its orientation, 1 to 8 as in EXIF.

    Raises:
        ValueError: an animation, a truncated file or chunk, or more chunks than any encoder writes.
    """
    if len(data) < 8 + int.from_bytes(data[4:8], "little"):
        raise ValueError("it is truncated")
    kept: list[bytes] = []
    orientation = 0
    for name, chunk in _chunks(data):
        if name == EXTENDED and len(chunk) < 18:
            raise ValueError("its VP8X chunk is too short")
        if name in (b"ANIM", b"ANMF") or (name == EXTENDED and chunk[8] & ANIMATION):
            raise ValueError("it is an animation; one frame is taken")
        if name == EXTENDED:
            kept.append(bytes([*chunk[:8], chunk[8] & ~METADATA, *chunk[9:]]))
        elif name in (LOSSY, LOSSLESS, ALPHA):
            kept.append(bytes(chunk) + b"\0" * (len(chunk) % 2))
        elif not orientation and len(chunk) <= MOST_METADATA + 8:
            orientation = _orientation(name, bytes(chunk[8:]))
    body = b"WEBP" + b"".join(kept)
    return b"RIFF" + struct.pack("<I", len(body)) + body, orientation or 1


def _orientation(name: bytes, body: bytes) -> int:
    if name == b"EXIF":
        return exif_orientation(body)
    return xmp_orientation(body) if name == b"XMP " else 0


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and bytes of each chunk; the last one of a truncated file is shorter than it says."""
    view = memoryview(data)[: 8 + int.from_bytes(data[4:8], "little")]
    at = 12
    for _ in range(MOST_PARTS):
        if at + 8 > len(view):
            return
        name, length = struct.unpack_from("<4sI", view, at)
        yield name, view[at : at + 8 + length]
        at += 8 + length + length % 2
    raise ValueError(f"it has more than {MOST_PARTS} chunks")
