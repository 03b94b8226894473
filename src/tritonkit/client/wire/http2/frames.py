"""HTTP/2's frames (RFC 9113) as bytes: their heads, kinds, flags, settings and error codes."""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "ACK",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONTINUATION",
    "DATA",
    "ENABLE_PUSH",
    "END_HEADERS",
    "END_STREAM",
    "ENHANCE_YOUR_CALM",
    "FLOW_CONTROL_ERROR",
    "FRAME_SIZE_ERROR",
    "GOAWAY",
    "HEAD",
    "HEADERS",
    "HEADER_TABLE_SIZE",
    "INITIAL_WINDOW_SIZE",
    "LARGEST_WINDOW",
    "MAX_CONCURRENT_STREAMS",
    "MAX_FRAME_SIZE",
    "MAX_HEADER_LIST_SIZE",
    "NO_ERROR",
    "PADDED",
    "PING",
    "PREFACE",
    "PRIORITY",
    "PRIORITY_FLAG",
    "PROTOCOL_ERROR",
    "PUSH_PROMISE",
    "REFUSED_STREAM",
    "RST_STREAM",
    "SETTINGS",
    "WINDOW_UPDATE",
    "error_name",
    "frame",
    "goaway",
    "going_away",
    "header_frames",
    "rst_stream",
    "settings",
    "window_update",
]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEAD: Final = struct.Struct(">BHBBL")
"""A frame's first 9 bytes: length (its high byte, its low two), kind, flags, stream."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

_ERROR_NAMES: Final = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)

LARGEST_WINDOW: Final = 2**31 - 1
"""Largest window of flow control, and largest number of a stream."""

_SETTING = struct.Struct(">HL")
_NUMBER = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    size = len(payload)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def window_update(stream: int, more: int) -> bytes:
    """Allow the peer `more` bytes on a stream, or with stream 0 on the connection."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(more))


def rst_stream(stream: int, code: int) -> bytes:
    """The frame that ends a stream immediately."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def goaway(code: int) -> bytes:
    """A GOAWAY frame with the reason for closing; a server opens no streams, so the last one is 0."""
    return frame(GOAWAY, 0, 0, struct.pack(">LL", 0, code))


def going_away(payload: memoryview) -> tuple[int, str]:
    """The content of a GOAWAY of at least 8 bytes: the last stream that the peer looked at, and its reason."""
    last, code = struct.unpack_from(">LL", payload)
    words = bytes(payload[8:200]).decode("utf-8", "replace")
    return last & LARGEST_WINDOW, f"{error_name(code)} {words}".rstrip()


def error_name(code: int) -> str:
    """An error code's name, or its number if it has none."""
    return _ERROR_NAMES[code] if code < len(_ERROR_NAMES) else str(code)


def header_frames(stream: int, block: bytes, largest: int) -> bytes:
    """A block of header fields as HEADERS and, past the peer's frame size, CONTINUATION frames."""
    if len(block) <= largest:
        return frame(HEADERS, END_HEADERS, stream, block)
    frames = [frame(HEADERS, 0, stream, block[:largest])]
    for start in range(largest, len(block), largest):
        last = END_HEADERS if start + largest >= len(block) else 0
        frames.append(frame(CONTINUATION, last, stream, block[start : start + largest]))
    return b"".join(frames)
