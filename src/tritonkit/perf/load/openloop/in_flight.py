"""Sequences and streams in flight: the order of calls, and the moments of replies."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.wire.parameters import set_parameters
from tritonkit.client.wire.protos import schema
from tritonkit.perf.load.kinds import CALL
from tritonkit.perf.load.openloop.record import LoadRequest, Pieces

__all__ = ["PARTING", "InFlight"]

PARTING: Final = -1
"""The number of a call that only ends a sequence, and is not counted."""
_IDS: Final = 1 << 62
"""Correlation ids are below 2**63: the run's first is drawn below this, and the next arrival has the next."""


class InFlight:
    """Notes about each request in addition to its times; all arrays grow with the later calls of sequences.

    Args:
        requests: the requests that may be sent.
        count: the number of arrivals in the run.
    """

    def __init__(self, requests: Sequence[LoadRequest], count: int) -> None:
        self.has_pieces = any(request.kind != CALL for request in requests)
        """Whether some requests begin sequences or streams."""
        self._first_id = secrets.randbelow(_IDS) + 1
        self.of = array("q", range(count))
        """The arrival that each belongs to."""
        self.numbers = array("q", [0]) * count
        """The number of each call in its sequence, from 0; or `PARTING`."""
        self._first = array("d", [np.nan]) * count
        self._replies = array("q", [0]) * count
        self._last: dict[int, float] = {}

    def follow(self, index: int, number: int) -> int:
        """The place of one more call of a request's sequence."""
        self.of.append(self.of[index])
        self.numbers.append(number)
        self._first.append(np.nan)
        self._replies.append(0)
        return len(self.of) - 1

    def reply(self, index: int, now: float) -> None:
        """A reply of a stream came."""
        if not self._replies[index]:
            self._first[index] = now
        self._last[index] = now
        self._replies[index] += 1

    def last(self, index: int) -> float | None:
        """The moment of a stream's last reply so far; None if it has had none."""
        return self._last.pop(index, None)

    def named(self, index: int, calls: int) -> bytes:
        """The part of a call's message that names its sequence, and says whether it begins or ends it."""
        number = self.numbers[index]
        message = schema().ModelInferRequest()
        facts = {
            "sequence_id": self._first_id + self.of[index],
            "sequence_start": number == 0,
            "sequence_end": number in (PARTING, calls - 1),
        }
        set_parameters(message, facts)
        written: bytes = message.SerializeToString()
        return written

    def counted(self) -> NDArray[np.bool_]:
        """bool [n]: all but the calls that only end a sequence."""
        return np.not_equal(self.numbers, PARTING)

    def pieces(self, start: float) -> Pieces | None:
        """The record's part for sequences and streams; None if all requests are single calls."""
        if not self.has_pieces:
            return None
        kept = self.counted()
        return Pieces(np.array(self.of)[kept], (np.array(self._first) - start)[kept], np.array(self._replies)[kept])
