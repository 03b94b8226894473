"""The header of a PNG, and the part of the file that makes pixels.

Pillow keeps every text, profile and EXIF tag unpacked: a file of 64 KiB takes 250 MiB that way, one of 30 MiB a minute.
So it gets only the chunks that make pixels, and the orientation is read here. Chunks:
https://www.w3.org/TR/png-3/#11Chunks
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from decode_image_header import MOST_METADATA, MOST_PARTS, Header, exif_orientation, xmp_orientation

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by color type; a palette stands for RGB
MAKE_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
TEXTS = (b"tEXt", b"zTXt", b"iTXt")
PROFILE, XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"


def matches(data: bytes) -> bool:
    """Whether the file says that it is a PNG."""
    return data.startswith(SIGNATURE)


def read_header(data: bytes) -> Header:
    """Size and depth from IHDR, which comes first. ValueError if it does not describe an image."""
    if len(data) < 29 or data[8:16] != b"\x00\x00\x00\rIHDR":
        raise ValueError("it does not begin with IHDR")
    width, height, depth, color = struct.unpack(">IIBB", data[16:26])
    if not width or not height or color not in CHANNELS or depth not in (1, 2, 4, 8, 16):
        raise ValueError(f"{width} x {height}, bit depth {depth}, color type {color}")
    return Header("PNG", width, height, CHANNELS[color] * (2 if depth == 16 else 1))


def pixels_only(data: bytes) -> tuple[bytes, int]:
    """The file without metadata, and its orientation, 1 to 8 as in EXIF.

    Raises:
        ValueError: several frames, or more chunks than any encoder writes.
    """
    kept: list[memoryview] = [memoryview(data)[:8]]
    orientation = 0
    for name, whole in _chunks(data):
        body = whole[8:-4]
        if name == b"acTL" and len(body) >= 4 and struct.unpack_from(">I", body)[0] > 1:
            raise ValueError("it has several frames (an animated PNG); one is taken")
        if name in MAKE_PIXELS:
            kept.append(whole)
        elif not orientation and len(body) <= MOST_METADATA:
            orientation = _orientation(name, bytes(body))
    return b"".join(kept), orientation or 1


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and bytes of each chunk; the last one of a truncated file is shorter than it says."""
    view, at = memoryview(data), len(SIGNATURE)
    for _ in range(MOST_PARTS):
        if at >= len(data):
            return
        length, name = struct.unpack(">I4s", data[at : at + 8].ljust(8, b"\0"))
        yield name, view[at : at + length + 12]
        at += length + 12
    raise ValueError(f"it has more than {MOST_PARTS} chunks")


def _orientation(name: bytes, body: bytes) -> int:
    """The orientation in a chunk of metadata; 0 without one."""
    if name == b"eXIf":
        return exif_orientation(body)
    if name not in TEXTS:
        return 0
    keyword, _, text = body.partition(b"\0")
    if keyword == PROFILE and name != b"iTXt":  # ImageMagick: two lines, then EXIF as hexadecimal
        lines = (_inflated(text[1:]) if name == b"zTXt" else text).split(b"\n")[3:]
        try:
            return exif_orientation(bytes.fromhex(b"".join(lines).decode("ascii")))
        except ValueError:
            return 0
    if keyword == XMP and name == b"iTXt":
        content = text[2:].split(b"\0", 2)[-1]
        return xmp_orientation(_inflated(content) if text[:1] == b"\x01" else content)
    return 0


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(content, 2 * MOST_METADATA)
    except zlib.error:
        return b""
