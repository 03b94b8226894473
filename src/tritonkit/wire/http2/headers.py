"""Header fields: how a call's become bytes (HPACK, RFC 7541), and what an answer's say.

Fields that every call repeats go into the peer's table with the first call and are one byte each from
then on; their bytes are cached, so that a call's block costs about a microsecond. Nothing is ever
evicted from the table: what does not fit is sent in full. A secret is always sent in full, marked so
that no proxy puts it into a table either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from hpack import Decoder, HPACKError, OversizedHeaderListError

from tritonkit.wire.http2 import frames
from tritonkit.wire.http2.frame_reader import ProtocolError
from tritonkit.wire.http2.secure import Secret
from tritonkit.wire.transport import Headers

__all__ = [
    "LARGEST_LIST",
    "Head",
    "RequestHeaders",
    "ResponseHeaders",
    "SecretHeaders",
]

LARGEST_LIST: Final = 2**16
"""Bytes of an answer's header fields, or of its trailers, by RFC 9113's count: 32 are added for each."""

SecretHeaders = Sequence[tuple[str, str | Secret]]

_SERVICE = "/inference.GRPCInferenceService/"
_STATIC: Final = {
    ":authority": 1, ":path": 4, "content-type": 31, "user-agent": 58, "authorization": 23,
}  # fmt: skip
_POST: Final = b"\x83"
_HTTP: Final = b"\x86"
_HTTPS: Final = b"\x87"
_STATIC_LENGTH: Final = 61
_OUR_TABLE: Final = 4096
_THEIR_TABLE: Final = 4096
"""Bytes of the table that the peer may fill here; what it is never allowed to change."""
_TIMEOUTS_CACHED: Final = 4096
_HEADS_CACHED: Final = 64
_USER_AGENT: Final = "tritonkit"


def _integer(value: int, bits: int, first: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    parts = [first | most]
    value -= most
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _string(text: str) -> bytes:
    data = text.encode("ascii")
    return _integer(len(data), 7, 0) + data


def _literal(name: str, value: str, first: int, bits: int) -> bytes:
    index = _STATIC.get(name)
    start = bytes((first,)) + _string(name) if index is None else _integer(index, bits, first)
    return start + _string(value)


def plain(name: str, value: str) -> bytes:
    """A field that no table is to keep."""
    return _literal(name, value, 0x00, 4)


def secret(name: str, value: str) -> bytes:
    """A field that no proxy may put into a table."""
    return _literal(name, value, 0x10, 4)


class RequestHeaders:
    """Blocks of header fields for one connection.

    Args:
        authority: `host:port` as the caller wrote it.
        tls: whether the scheme is https.
        headers: sent with every call.
        restricted: sent with `restricted_methods` only.
        restricted_methods: the calls that may need them.
    """

    def __init__(
        self,
        authority: str,
        tls: bool,
        headers: SecretHeaders = (),
        restricted: SecretHeaders = (),
        restricted_methods: frozenset[str] = frozenset(),
    ) -> None:
        self._open_call = _POST + (_HTTPS if tls else _HTTP)
        self._common = (
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", _USER_AGENT),
        )
        self._own = _fields(headers)
        self._restricted = _fields(restricted)
        self._restricted_methods = restricted_methods
        self._limit = _OUR_TABLE
        self._update = b""
        self._forget()

    def block(self, method: str, timeout_s: float | None, headers: Headers = ()) -> bytes:
        """The block of one call; blocks must reach the wire in the order they were made."""
        start = self._blocks.get(method) or self._made(method)
        if self._update:
            start, self._update = self._update + start, b""
        if timeout_s is not None:
            # Rounded up to 1 ms below a second and to 10 ms above: few different texts, soon all cached.
            ms = math.ceil(timeout_s * 100) * 10 if timeout_s > 1 else math.ceil(timeout_s * 1000)
            start += self._timeouts.get(ms) or self._timeout(ms)
        return start + _fields(headers) if headers else start

    def resize(self, limit: int) -> None:
        """Obey the peer's table size: start an empty table, and say so in the next block."""
        limit = min(limit, _OUR_TABLE)
        if limit != self._limit:
            self._limit = limit
            self._forget()
            self._update = _integer(0, 5, 0x20) + _integer(limit, 5, 0x20)

    def _forget(self) -> None:
        self._table: dict[tuple[str, str], int] = {}
        self._names: dict[str, int] = {}
        self._size = 0
        self._blocks: dict[str, bytes] = {}
        self._timeouts: dict[int, bytes] = {}

    def _made(self, method: str) -> bytes:
        """The block without its timeout; cached unless it changes the table."""
        entries = len(self._table)
        path = _SERVICE + method
        # Of the paths only that of predictions is worth a place.
        parts = [self._field(":path", path) if method == "ModelInfer" else plain(":path", path)]
        parts += [self._field(name, value) for name, value in self._common]
        own = self._own + (self._restricted if method in self._restricted_methods else b"")
        block = self._open_call + b"".join(parts) + own
        if len(self._table) == entries:
            self._blocks[method] = block
        return block

    def _field(self, name: str, value: str) -> bytes:
        """The field as its place in the table, put there if it was not and there is room."""
        place = self._table.get((name, value))
        if place is not None:
            return _integer(self._index(place), 7, 0x80)
        size = len(name) + len(value) + 32
        if self._size + size > self._limit:
            return plain(name, value)
        self._size += size
        self._table[name, value] = self._names[name] = len(self._table)
        self._blocks.clear()  # every place is one further back now
        self._timeouts.clear()
        return _literal(name, value, 0x40, 6)

    def _index(self, place: int) -> int:
        return _STATIC_LENGTH + len(self._table) - place

    def _timeout(self, ms: int) -> bytes:
        value = f"{ms}m" if ms < 10**8 else f"{math.ceil(ms / 1000)}S"
        place = self._names.get("grpc-timeout")
        if place is None:
            return self._field("grpc-timeout", value)
        field = _integer(self._index(place), 4, 0x00) + _string(value)
        if len(self._timeouts) >= _TIMEOUTS_CACHED:
            self._timeouts.clear()
        self._timeouts[ms] = field
        return field


def _fields(headers: SecretHeaders) -> bytes:
    return b"".join(
        secret(name, value.reveal()) if isinstance(value, Secret) else plain(name, value)
        for name, value in headers
    )


class Head(NamedTuple):
    """What a block of an answer's header fields says of the call; None where it says nothing."""

    http: int | None
    content_type: str | None
    status: int | None
    message: str
    """`grpc-message` as sent: with its percent signs."""


_UNKNOWN_STATUS = 2


def _number(text: bytes | None) -> int | None:
    if text is None:
        return None
    return int(text) if text.isdigit() and len(text) < 9 else _UNKNOWN_STATUS


class ResponseHeaders:
    """Reads the peer's blocks; one that changes no table is cached by its bytes."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=LARGEST_LIST)
        self._decoder.max_allowed_table_size = _THEIR_TABLE
        self._cache: dict[bytes, Head] = {}

    def read(self, block: bytes) -> Head:
        """What the block says; `ProtocolError` if it is none or stands for too many fields."""
        cached = self._cache.get(block)
        if cached is not None:
            return cached
        table = self._decoder.header_table.dynamic_entries
        before = (len(table), table[0] if table else None)
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            what = f"header fields of more than {LARGEST_LIST} bytes"
            raise ProtocolError(what, frames.ENHANCE_YOUR_CALM) from error
        except HPACKError as error:
            raise ProtocolError("header fields that are none", frames.COMPRESSION_ERROR) from error
        kind, message = fields.get(b"content-type"), fields.get(b"grpc-message", b"")
        head = Head(
            _number(fields.get(b":status")),
            None if kind is None else kind.decode("latin-1"),
            _number(fields.get(b"grpc-status")),
            message.decode("utf-8", "replace"),
        )
        if before != (len(table), table[0] if table else None) or len(self._cache) >= _HEADS_CACHED:
            self._cache.clear()
        elif len(block) < 256:
            self._cache[block] = head
        return head
