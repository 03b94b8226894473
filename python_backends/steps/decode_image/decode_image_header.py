"""The facts in the headers of all formats: the size of an image before it is decoded, and its orientation."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

MOST_PARTS = 65_536
"""Most chunks or segments in front of the pixels; an encoder writes a few tens, and a chunk per few KiB."""
MOST_METADATA = 65_536
"""Most bytes of EXIF or XMP that are read: the contents of one JPEG segment."""
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


@dataclass(frozen=True)
class Header:
    """An image as its file declares it; width and height as stored, before it is turned upright."""

    format: str
    width: int
    height: int
    pixel_bytes: int
    """Bytes that the decoder takes for a pixel: channels times bytes per channel, twice that in a progressive JPEG, and
    8 in a WebP."""

    @property
    def decoded_bytes(self) -> int:
        """Width x height x `pixel_bytes`."""
        return self.width * self.height * self.pixel_bytes


def exif_orientation(exif: bytes) -> int:
    """Tag 274 of the first directory, 1 to 8; 0 if none can be read.

    Pillow would unpack every tag, several of which may share their bytes.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None or len(exif) < 8:
        return 0
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for place in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, number, value = struct.unpack_from(f"{order}HHIH", exif, place)
            if tag == 274:
                return value if (kind, number) == (3, 1) and 1 <= value <= 8 else 0
    except struct.error:
        pass
    return 0


def xmp_orientation(xmp: bytes) -> int:
    """The orientation in an XMP packet."""
    match = _XMP.search(xmp)
    return int(match[1]) if match else 0
