"""Frames of a recorded connection, changed at random."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

__all__ = ["Mutator", "recorded"]

HEAD = struct.Struct(">BHBBL")
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
STREAMS = (1, 3, 5, 7, 9, 11, 13)
OTHER_STREAMS = (0, 2, 15, 2**31 - 1)
NUMBERS = (0, 1, 2, 5, 8, 9, 100, 2**14, 2**16 - 1, 2**20, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)
FLAGS = (0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x2D, 0xFF)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    size = len(payload)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream & 0xFFFFFFFF) + payload


def recorded(folder: Path) -> list[list[bytes]]:
    """The frames of each recording."""
    recordings = []
    for file in sorted(folder.glob("*.bin")):
        data, frames = file.read_bytes(), []
        while len(data) >= HEAD.size:
            high, low, *_ = HEAD.unpack_from(data)
            end = HEAD.size + (high << 16 | low)
            frames.append(data[:end])
            data = data[end:]
        recordings.append(frames)
    return recordings


class Mutator:
    """Changes frames.

    Args:
        recordings: see `recorded`.
        random: decides.
    """

    def __init__(self, recordings: list[list[bytes]], random: Random) -> None:
        self._recordings = recordings
        self._random = random
        self._all = [frame for frames in recordings for frame in frames]
        # Those that a connection survives come more often: others end it, and what follows is not read.
        self._gentle = [*[self._control] * 5, self._repeated, self._padded, self._moved, self._split]
        self._harsh = [
            self._flipped,
            self._filled,
            self._flagged,
            self._cut,
            self._lying,
            self._noise,
            self._foreign,
            self._settings,
            self._any_byte,
        ]

    def sequence(self) -> list[tuple[bytes, bool]]:
        """Bytes to be read one after the other, and whether they are not as recorded."""
        random = self._random
        frames = random.choice(self._recordings)
        if random.random() < 0.3:  # a connection seen from its middle on, as after a frame lost
            frames = frames[:2] + frames[random.randrange(len(frames)) :]
        pieces: list[tuple[bytes, bool]] = []
        for number, original in enumerate(frames):
            dice = random.random()
            if dice < 0.3 or (number == 0 and dice < 0.95):
                pieces.append((original, False))
            elif dice > 0.99:
                continue  # lost
            else:
                kinds = self._gentle if dice < 0.93 else self._harsh
                pieces += [(data, True) for data in random.choice(kinds)(original)]
                if dice < 0.7:
                    pieces.append((original, False))
        return pieces

    # Each gives what is read in the place of a frame, or before it.

    def _repeated(self, original: bytes) -> list[bytes]:
        return [original] * self._random.randrange(1, 4)

    def _flipped(self, original: bytes) -> list[bytes]:
        """One bit of the payload."""
        changed = bytearray(original)
        if len(changed) > HEAD.size:
            at = self._random.randrange(HEAD.size, min(len(changed), HEAD.size + 64))
            changed[at] ^= 1 << self._random.randrange(8)
        return [bytes(changed)]

    def _any_byte(self, original: bytes) -> list[bytes]:
        changed = bytearray(original)
        changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return [bytes(changed)]

    def _padded(self, original: bytes) -> list[bytes]:
        _, _, kind, flags, stream = HEAD.unpack_from(original)
        if kind not in (DATA, HEADERS) or flags & 8:
            return self._control(original)
        size = self._random.choice((0, 1, 7, 255))
        payload = bytes((size,)) + original[HEAD.size :] + bytes(size)
        return [frame(kind, flags | 8, stream, payload)]

    def _moved(self, original: bytes) -> list[bytes]:
        """To another stream."""
        _, _, kind, flags, _ = HEAD.unpack_from(original)
        streams = STREAMS if self._random.random() < 0.9 else OTHER_STREAMS
        return [frame(kind, flags, self._random.choice(streams), original[HEAD.size :])]

    def _flagged(self, original: bytes) -> list[bytes]:
        _, _, kind, _, stream = HEAD.unpack_from(original)
        return [frame(kind, self._random.choice(FLAGS), stream, original[HEAD.size :])]

    def _control(self, original: bytes) -> list[bytes]:
        """A frame that may come at any time."""
        random = self._random
        stream = random.choice(STREAMS)
        number = random.choice(NUMBERS if random.random() < 0.1 else NUMBERS[1:9]).to_bytes(4)
        dice = random.randrange(10)
        if dice < 2:
            return [frame(PING, random.choice((0, 0, 1)), 0, random.randbytes(8))] * dice
        if dice < 5:
            return [frame(WINDOW, 0, stream if dice < 4 else 0, number)]
        if dice < 6:
            return [frame(RST_STREAM, 0, stream, number)]
        if dice < 7:
            return [frame(PRIORITY, 0, stream, random.randbytes(5))]
        if dice < 8:
            return [frame(DATA, 0, stream, struct.pack(">BL", 0, random.randrange(9)))]
        if dice < 9:
            return [frame(random.randrange(10, 256), random.choice(FLAGS), stream, number)]
        last = random.choice((*STREAMS, *OTHER_STREAMS)).to_bytes(4)
        return [frame(GOAWAY, 0, 0, last + number + b"\xffbye")]

    def _settings(self, original: bytes) -> list[bytes]:
        random = self._random
        pairs = [(random.randrange(1, 9), random.choice(NUMBERS)) for _ in range(random.randrange(4))]
        return [frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in pairs))]

    def _split(self, original: bytes) -> list[bytes]:
        """HEADERS into CONTINUATION, DATA into DATA."""
        _, _, kind, flags, stream = HEAD.unpack_from(original)
        payload = original[HEAD.size :]
        at = self._random.randrange(len(payload) + 1)
        if kind == DATA:
            return [frame(DATA, 0, stream, payload[:at]), frame(DATA, flags, stream, payload[at:])]
        if kind != HEADERS or not flags & 4 or flags & 0x28:
            return self._control(original)
        rest = [payload[at:]] if self._random.random() < 0.95 else [b""] * 70 + [payload[at:]]
        pieces = [frame(CONTINUATION, 0, stream, piece) for piece in rest[:-1]]
        last = frame(CONTINUATION, self._random.choice((4, 4, 4, 0)), stream, rest[-1])
        return [frame(HEADERS, flags & ~4, stream, payload[:at]), *pieces, last]

    def _filled(self, original: bytes) -> list[bytes]:
        """Another payload of the same kind of frame, from any recording."""
        _, _, kind, flags, stream = HEAD.unpack_from(original)
        other = self._random.choice(self._all)
        payload = other[HEAD.size :] if other[3] == kind else self._random.randbytes(8)
        return [frame(kind, flags, stream, payload)]

    def _cut(self, original: bytes) -> list[bytes]:
        """The rest of the payload is missing, and the head knows it."""
        _, _, kind, flags, stream = HEAD.unpack_from(original)
        payload = original[HEAD.size :]
        return [frame(kind, flags, stream, payload[: self._random.randrange(len(payload) + 1)])]

    def _lying(self, original: bytes) -> list[bytes]:
        """The head says another size."""
        size = self._random.choice((0, 1, 8, 2**14, 2**16, 2**16 + 1, 2**20, 2**20 + 1, 2**24 - 1))
        return [HEAD.pack(size >> 16, size & 0xFFFF, *original[3:5], 0) + original[HEAD.size :]]

    def _noise(self, original: bytes) -> list[bytes]:
        return [self._random.randbytes(self._random.randrange(1, 60))]

    def _foreign(self, original: bytes) -> list[bytes]:
        return [self._random.choice(self._all)]
