"""Bytes of the peer cut into frames, and checked for what every frame must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.frames import HEAD, LARGEST_WINDOW

if TYPE_CHECKING:
    from tritonkit.client.wire.http2.connection import Connection

__all__ = ["LARGEST_FRAME", "FrameReader", "ProtocolError", "number_in"]

LARGEST_FRAME: Final = 2**20
"""Bytes of a DATA frame that the peer may send."""
_LARGEST_OTHER: Final = 64 * 2**10
"""Bytes of any other frame, and of a block of header fields: a peer must not make us buffer without limit."""
_MOST_PIECES: Final = 64
"""The most frames of one block of header fields, because empty ones could follow without end."""


# Globals of this module are cheaper to read, in the loop that every answer goes through.
_DATA, _HEADERS = frames.DATA, frames.HEADERS
_END_STREAM, _PADDED = frames.END_STREAM, frames.PADDED
_PLAIN: Final = frames.END_HEADERS | frames.END_STREAM
"""Flags of a HEADERS frame that is a whole block, without and with the end of the stream."""
_HEAD_SIZE, _unpack_head = HEAD.size, HEAD.unpack_from
_NOTHING: Final = memoryview(b"")


class ProtocolError(Exception):
    """The peer broke the protocol; `code` is the error code it gets."""

    def __init__(self, what: str, code: int = frames.PROTOCOL_ERROR) -> None:
        super().__init__(what)
        self.code = code


class FrameReader:
    """Passes frames to a connection; a partial frame is buffered, except for DATA, which is passed on as it comes."""

    def __init__(self, handler: Connection) -> None:
        self._handler = handler
        self._expects_settings = True
        self._partial = b""
        self._data_left = 0
        self._block: bytearray | None = None
        self._block_of = self._block_pieces = self._block_ends = 0

    def read(self, data: bytes) -> None:
        """Cut these bytes, which follow the last ones; raises `ProtocolError`."""
        if self._partial:
            data, self._partial = self._partial + data, b""
        view, at, end, handler = memoryview(data), 0, len(data), self._handler
        while at < end:
            if self._data_left:
                size = min(self._data_left, end - at)
                self._data_left -= size
                handler.data(view[at : at + size], not self._data_left)
                at += size
                continue
            start = at + _HEAD_SIZE
            if end < start:
                break
            high, low, kind, flags, number = _unpack_head(data, at)
            size, number = high << 16 | low, number & LARGEST_WINDOW
            if size > _LARGEST_OTHER or self._expects_settings or self._block is not None:
                self._check(kind, size)
            if kind == _DATA and not flags & _PADDED:
                handler.data_frame(number, size, flags & _END_STREAM)
                self._data_left, at = size, start
                if not size:
                    handler.data(_NOTHING, True)
                continue
            at_next = start + size
            if end < at_next:
                break
            if kind == _HEADERS and flags | _END_STREAM == _PLAIN:
                handler.fields(number, data[start:at_next], flags & _END_STREAM)
            else:
                self._frame(kind, flags, number, view[start:at_next])
            at = at_next
        self._partial = data[at:]

    def _check(self, kind: int, size: int) -> None:
        if size > (LARGEST_FRAME if kind == frames.DATA else _LARGEST_OTHER):
            raise ProtocolError(f"a frame of {size} bytes", frames.FRAME_SIZE_ERROR)
        if self._expects_settings and kind != frames.SETTINGS:
            raise ProtocolError("its first frame is not SETTINGS")
        if self._block is not None and kind != frames.CONTINUATION:
            raise ProtocolError("another frame between header fields")
        self._expects_settings = False

    def _frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        if kind == frames.HEADERS:
            if flags & frames.PADDED:
                payload = _unpadded(payload)
            if flags & frames.PRIORITY_FLAG:
                payload = payload[5:]
            self._block, self._block_of, self._block_pieces = bytearray(), number, 0
            self._block_ends = flags & frames.END_STREAM
            self._add_to_block(flags, number, payload)
        elif kind == frames.CONTINUATION:
            self._add_to_block(flags, number, payload)
        elif kind == frames.DATA:
            self._handler.data_frame(number, len(payload), flags & frames.END_STREAM)
            self._handler.data(_unpadded(payload), True)
        else:
            self._handler.control(kind, flags, number, payload)

    def _add_to_block(self, flags: int, number: int, payload: memoryview) -> None:
        if self._block is None or number != self._block_of:
            raise ProtocolError("header fields go on that had not begun")
        self._block += payload
        self._block_pieces += 1
        if len(self._block) > _LARGEST_OTHER or self._block_pieces > _MOST_PIECES:
            raise ProtocolError("header fields without end", frames.ENHANCE_YOUR_CALM)
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), None
            self._handler.fields(number, block, self._block_ends)


def number_in(payload: memoryview) -> int:
    """The one number that a RST_STREAM's or WINDOW_UPDATE's payload is; raises `ProtocolError`."""
    if len(payload) != 4:
        raise ProtocolError("a frame of the wrong size", frames.FRAME_SIZE_ERROR)
    return int.from_bytes(payload)


def _unpadded(payload: memoryview) -> memoryview:
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("a frame with more padding than bytes")
    return payload[1 : len(payload) - payload[0]]
