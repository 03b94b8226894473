"""The guard's rule in plain Python, over all bytes together, as a reference for comparison."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from tests.native.guarded import DATA, HEADERS, PADDED, PREFACE, REFUSED, RST_STREAM


@dataclass
class Outcome:
    """The bytes that the server reads: `data`, up to the read `reset_at`, which fails; None: no failure."""

    data: bytearray
    reset_at: int | None = None
    refused: list[int] = field(default_factory=list)


@dataclass
class _Stream:
    prefix: bytearray = field(default_factory=bytearray)
    left: int = 0
    refused: bool = False
    condemned: bool = False
    """Refused, and not marked yet."""


def follow(data: bytes, readings: Sequence[int], limit: int) -> Outcome:
    """The result for `data`, read in pieces of these lengths, under a limit in bytes."""
    ends = list(accumulate(readings))

    def reading(offset: int) -> int:
        return bisect_right(ends, offset)

    outcome = Outcome(bytearray(data))
    for offset, (byte, expected) in enumerate(zip(data, PREFACE, strict=False)):
        if byte != expected:
            outcome.reset_at = reading(offset)
            return outcome
    streams: dict[int, _Stream] = {}
    last, start = 0, len(PREFACE)
    while start + 9 <= len(data) and outcome.reset_at is None:
        length = int.from_bytes(data[start : start + 3], "big")
        kind, flags = data[start + 3], data[start + 4]
        number = int.from_bytes(data[start + 5 : start + 9], "big") & 0x7FFFFFFF
        end = start + 9 + length
        if kind == HEADERS and number % 2 and number > last:
            last = number
            streams[number] = _Stream()
        elif kind == RST_STREAM and length == 4:
            streams.pop(number, None)
        elif kind == DATA and number in streams:
            stream, first = streams[number], start + 9
            offset: int | None
            if stream.condemned:
                offset, may_wait = start + 8, False
            else:
                if flags & PADDED and first < min(end, len(data)):
                    end = max(first + 1, end - data[first])
                    first += 1
                offset = _refused_at(stream, data, first, min(end, len(data)), limit)
                may_wait = offset is not None and stream.left > end - offset - 1
            if offset is not None and reading(offset) == reading(start + 4):
                outcome.data[start + 4] |= REFUSED
                outcome.refused.append(number)
                stream.condemned = False
            elif may_wait:
                stream.condemned = True
            elif offset is not None:
                outcome.reset_at = reading(offset)
        start += 9 + length
    return outcome


def _refused_at(stream: _Stream, data: bytes, first: int, end: int, limit: int) -> int | None:
    """The place of the byte with which a message's prefix is complete, and the message refused."""
    offset = first
    while offset < end and not stream.refused:
        if stream.left:
            part = min(stream.left, end - offset)
            stream.left -= part
            offset += part
            continue
        stream.prefix.append(data[offset])
        offset += 1
        if len(stream.prefix) == 5:
            stream.left = int.from_bytes(stream.prefix[1:], "big")
            stream.refused = stream.prefix[0] != 0 or stream.left > limit
            stream.prefix.clear()
            if stream.refused:
                return offset - 1
    return None
