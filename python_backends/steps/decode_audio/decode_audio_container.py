"""Check the container of an audio file before libsndfile opens it: its kind, and whether all of it is there.

libsndfile reads many formats, and gives what it finds of a truncated file without an error. So only three containers
reach it, and each is checked for its end.
"""

from __future__ import annotations

import struct
import zlib

MOST_PARTS = 65_536
"""Most chunks of a WAV file before its samples, or pages of an Ogg file; an encoder writes a page a second."""
_UNKNOWN = 0x7FFF0000  # programs that write to a pipe leave such a length, or 0
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def complete(data: bytes) -> tuple[str, bytes]:
    """The container's name, and the file as libsndfile is to read it.

    Raises:
        ValueError: it is empty, in another format, or truncated.
    """
    if not data:
        raise ValueError("the file is empty")
    start = data[:4]
    if start in (b"RIFF", b"RIFX", b"RF64") and data[8:12] == b"WAVE":
        return "WAV", _wav(data)
    if start == b"fLaC":
        return "FLAC", data  # it counts its samples, and each of its frames has a checksum
    if start == b"OggS":
        _check_ogg(data)
        return "Ogg", data
    raise ValueError(f"found {_kind(data)}, wanted WAV, FLAC or Ogg")


def _kind(data: bytes) -> str:
    if data[:3] == b"ID3" or (data[0] == 0xFF and data[1:2] and data[1] & 0xE0 == 0xE0):
        return "MPEG audio (MP3 or AAC)"
    if data[4:8] == b"ftyp":
        return "an MP4 file"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "a WebM or Matroska file"
    return f"an unknown format that begins with {data[:8].hex(' ')}"


def _wav(data: bytes) -> bytes:
    """The file, with the length of its samples written in where it is unknown."""
    order = ">" if data[:4] == b"RIFX" else "<"
    place = 12
    for _ in range(MOST_PARTS):
        if place + 8 > len(data):
            raise ValueError("the WAV file is truncated: it has no samples")
        name = data[place : place + 4]
        (size,) = struct.unpack_from(f"{order}I", data, place + 4)
        there = len(data) - place - 8
        if name == b"data":
            if size and size < _UNKNOWN and size > there:
                raise ValueError(f"the WAV file is truncated: its header says {size} bytes of samples, found {there}")
            has_length = 0 < size < _UNKNOWN or data[:4] == b"RF64"
            return data if has_length else data[: place + 4] + struct.pack(f"{order}I", there) + data[place + 8 :]
        place += 8 + size + size % 2
    raise ValueError(f"the WAV file has more than {MOST_PARTS} chunks before its samples")


def _check_ogg(data: bytes) -> None:
    """Walk all pages: each is complete and has its checksum, and they belong to one stream."""
    place, pages, streams = 0, 0, 0
    while place < len(data):
        if pages == MOST_PARTS:
            raise ValueError(f"the Ogg file has more than {MOST_PARTS} pages")
        body = place + 27
        segments = data[body : body + data[place + 26]] if len(data) >= body else b""
        stop = body + len(segments) + sum(segments)
        if len(data) < body or len(segments) != data[place + 26] or stop > len(data):
            raise ValueError(f"the Ogg file is truncated: its page at byte {place} is not complete")
        if data[place : place + 4] != b"OggS" or not _has_checksum(data[place:stop]):
            raise ValueError(f"the Ogg file is damaged: no page with its checksum at byte {place}")
        streams += data[place + 5] >> 1 & 1
        place, pages = stop, pages + 1
    if streams > 1:
        raise ValueError(f"the Ogg file has {streams} streams, wanted one")


def _has_checksum(page: bytes) -> bool:
    """Whether a page has its CRC-32, which Ogg counts from the highest bit where zlib counts from the lowest."""
    (checksum,) = struct.unpack_from("<I", page, 22)
    mirrored = (page[:22] + bytes(4) + page[26:]).translate(_REVERSED)
    crc = zlib.crc32(mirrored, 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2) == checksum
