"""The header of a JPEG, and the part of the file that makes pixels.

Segments: ITU-T T.81, annex B.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from decode_image_header import MOST_METADATA, MOST_PARTS, Header, exif_orientation, xmp_orientation

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNATURE = b"\xff\xd8\xff"
MOST_SCANS = 100  # an encoder writes about ten; each costs a pass over the whole image
SOF = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
ALONE = {0x00, 0x01, *range(0xD0, 0xD9)}  # markers without a length
SOS, EOI, APP1, COM = 0xDA, 0xD9, 0xE1, 0xFE
MAKE_PIXELS = {0xE0, 0xEE}  # of the APPn segments: JFIF and Adobe define the channels
_MARKER = re.compile(rb"\xff[^\xff]", re.DOTALL)
XMP = b"http://ns.adobe.com/xap/1.0/\0"


def matches(data: bytes) -> bool:
    """Whether the file says that it is a JPEG."""
    return data.startswith(SIGNATURE)


def read_header(data: bytes) -> Header:
    """Size and channels from the frame header. ValueError if there is none, or an invalid one."""
    frame, first_scan = b"", b""
    kind = 0
    for marker, segment, _ in _segments(data):
        if marker in SOF:
            if frame:
                raise ValueError("it has two frame headers")
            kind, frame = marker, segment
        first_scan = segment
    if len(frame) < 10:
        raise ValueError("it has no frame header")
    height, width = int.from_bytes(frame[5:7], "big"), int.from_bytes(frame[7:9], "big")
    channels = frame[9]
    if not width or not height or not channels:
        raise ValueError(f"{width} x {height}, {channels} channels")
    # The decoder holds the 16-bit coefficients of an image that comes in several scans.
    several = kind in PROGRESSIVE or first_scan[4:5] != frame[9:10]
    return Header("JPEG", width, height, channels * (2 if several else 1))


def pixels_only(data: bytes) -> tuple[bytes, int]:
    """The file without metadata, and its orientation, 1 to 8 as in EXIF.

    Raises:
        ValueError: more scans or segments than any encoder writes.
    """
    kept, orientation, scans = [data[:2]], 0, len(data)
    for marker, segment, end in _segments(data):
        if marker == APP1 and not orientation and len(segment) <= MOST_METADATA + 4:
            orientation = _orientation(segment[4:])
        if not (0xE0 <= marker <= 0xEF or marker == COM) or marker in MAKE_PIXELS:
            kept.append(segment)
        scans = end
    # Data after the end of the image, such as a second one or a film, is left out: scans that
    # are not counted are not decoded.
    stop = data.find(b"\xff\xd9", scans)
    stop = len(data) if stop < 0 else stop + 2
    if (count := 1 + data.count(b"\xff\xda", scans, stop)) > MOST_SCANS:
        raise ValueError(f"it has {count} scans; at most {MOST_SCANS} are taken")
    return b"".join([*kept, data[scans:stop]]), orientation or 1


def _orientation(body: bytes) -> int:
    if body.startswith(b"Exif\0\0"):
        return exif_orientation(body)
    return xmp_orientation(body) if body.startswith(XMP) else 0


def _segments(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Marker, bytes and end of each segment up to the first scan's header, which is the last."""
    at = 2
    for _ in range(MOST_PARTS):
        match = _MARKER.search(data, at)  # passes over bytes between segments, as libjpeg does
        if match is None or match[0][1] == EOI:
            raise ValueError("it ends before the first scan")
        at, marker = match.start(), match[0][1]
        if marker in ALONE:
            at += 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        end = at + 2 + length
        if length < 2 or end > len(data):
            raise ValueError("the length of a segment does not fit")
        yield marker, data[at:end], end
        if marker == SOS:
            return
        at = end
    raise ValueError(f"it has more than {MOST_PARTS} segments")
