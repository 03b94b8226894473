"""Header fields (HPACK, RFC 7541): how a call's become bytes, and what an answer's say.

In both directions a block that changes no table is kept, so a call's costs about a microsecond. Fields
that every call repeats go into the peer's table with the first calls and are one byte each from then
on. Possible secrets are always sent in full, marked so that no proxy puts them into a table either.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from hpack import Decoder, Encoder, HPACKError, OversizedHeaderListError
from hpack.hpack import encode_integer

from tritonkit.client.wire.channel import RESTRICTED, ChannelConfig
from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.frame_reader import ProtocolError
from tritonkit.client.wire.secure import Secret, SecretHeaders
from tritonkit.client.wire.transport import Headers

__all__ = ["LARGEST_LIST", "Head", "RequestHeaders", "ResponseHeaders"]

LARGEST_LIST: Final = 2**16
"""Bytes of an answer's header fields, or of its trailers, by RFC 9113's count: 32 are added for each."""
_LARGEST_TABLE: Final = 4096
"""Bytes of the table at either end; a peer may allow less for ours."""
_TIMEOUTS_CACHED: Final = 4096
_HEADS_CACHED: Final = 64


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
        self._encoder = Encoder()
        self._first = [(":method", "POST"), (":scheme", "https" if tls else "http")]
        self._common = [
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "tritonkit"),
        ]
        self._own, self._restricted = _literals(headers), _literals(restricted)
        self._restricted_methods = restricted_methods
        self._blocks: dict[str, bytes] = {}
        self._timeouts: dict[int, bytes] = {}

    @classmethod
    def of(cls, channel: ChannelConfig) -> RequestHeaders:
        """The blocks for a new connection of a channel."""
        return cls(channel.authority, channel.tls is not None, channel.headers, channel.key, RESTRICTED)

    def block(self, method: str, timeout_s: float | None, headers: Headers = ()) -> bytes:
        """The block of one call; blocks must reach the wire in the order they were made."""
        block = self._blocks.get(method) or self._start(method)
        if timeout_s is not None:
            # Rounded up to 1 ms below a second and to 10 ms above: few different texts, soon all cached.
            ms = math.ceil(timeout_s * 100) * 10 if timeout_s > 1 else math.ceil(timeout_s * 1000)
            block += self._timeouts.get(ms) or self._timeout(ms)
        return block + _literals(headers) if headers else block

    def resize(self, limit: int) -> None:
        """Obey the peer's table size; the next block says so."""
        limit = min(limit, _LARGEST_TABLE)
        if limit != self._encoder.header_table_size:
            self._encoder.header_table_size = limit
            self._forget()

    def _forget(self) -> None:
        """Drop cached blocks: they name places in a table that has changed."""
        self._blocks.clear()
        self._timeouts.clear()

    def _start(self, method: str) -> bytes:
        """The block without its timeout and the call's own headers."""
        # Of the paths only that of predictions is worth a place in the table.
        path = (":path", f"/inference.GRPCInferenceService/{method}", method != "ModelInfer")
        own = self._own + (self._restricted if method in self._restricted_methods else b"")
        newest = _newest(self._encoder)
        block: bytes = self._encoder.encode([*self._first, path, *self._common], huffman=False)
        block += own
        if _newest(self._encoder) is newest:
            self._blocks[method] = block
        else:
            self._forget()
        return block

    def _timeout(self, ms: int) -> bytes:
        """The field for a timeout; its name, but no further value, gets a place in the table."""
        name, value = b"grpc-timeout", f"{ms}m" if ms < 10**8 else f"{math.ceil(ms / 1000)}S"
        named = any(entry[0] == name for entry in self._encoder.header_table.dynamic_entries)
        newest = _newest(self._encoder)
        field: bytes = self._encoder.encode([(name, value, named)], huffman=False)
        if _newest(self._encoder) is not newest or len(self._timeouts) >= _TIMEOUTS_CACHED:
            self._forget()
        else:
            self._timeouts[ms] = field
        return field


def _newest(coder: Encoder | Decoder) -> object:
    """The entry added last to the table; while it is the same one, no entry has moved."""
    entries = coder.header_table.dynamic_entries
    return entries[0] if entries else None


def _literals(headers: SecretHeaders) -> bytes:
    """Fields that must not enter any table; written by hand, because hpack logs the fields that it writes."""
    fields = b""
    for name, value in headers:
        text = value.reveal() if isinstance(value, Secret) else value
        fields += b"\x10" + _string(name) + _string(text)
    return fields


def _string(text: str) -> bytes:
    size = len(text)
    return (bytes((size,)) if size < 127 else bytes(encode_integer(size, 7))) + text.encode("ascii")


class Head(NamedTuple):
    """The content of a block of an answer's header fields; None for all that is absent."""

    http: int | None
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
        self._decoder.max_allowed_table_size = _LARGEST_TABLE
        self._cache: dict[bytes, Head] = {}

    def read(self, block: bytes) -> Head:
        """The content of a block; `ProtocolError` if it is malformed or has too many fields."""
        cached = self._cache.get(block)
        if cached is not None:
            return cached
        newest = _newest(self._decoder)
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            what = f"header fields of more than {LARGEST_LIST} bytes"
            raise ProtocolError(what, frames.ENHANCE_YOUR_CALM) from error
        except HPACKError as error:
            raise ProtocolError("header fields that are none", frames.COMPRESSION_ERROR) from error
        head = Head(
            _number(fields.get(b":status")),
            _number(fields.get(b"grpc-status")),
            fields.get(b"grpc-message", b"").decode("utf-8", "replace"),
        )
        if _newest(self._decoder) is not newest or len(self._cache) >= _HEADS_CACHED:
            self._cache.clear()
        elif len(block) < 256:
            self._cache[block] = head
        return head
