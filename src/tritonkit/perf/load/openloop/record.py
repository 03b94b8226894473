"""The requests that a sender sends, and its notes about each: as values, and as arrays in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.wire.transport import Body
from tritonkit.perf.load.kinds import CALL, Kind
from tritonkit.perf.load.workload import Check

__all__ = [
    "INTERRUPTED",
    "MISSED",
    "LoadRequest",
    "Pieces",
    "Record",
    "Stop",
    "joined_records",
    "load_record",
    "save_record",
]

INTERRUPTED: Final = "interrupted"
MISSED: Final = "the target is missed"
"""Reasons why runs end early, in addition to a server that is gone."""


@dataclass(frozen=True)
class LoadRequest:
    """A request as it is sent.

    Args:
        body: one message.
        check: the check of its answer, or of each reply of a stream.
        items: the number of its items.
        kind: its model's kind.
        calls: the number of calls in a sequence, if this request begins one.
        after: the number of the request that is the sequence's next call.
    """

    body: Body
    check: Check
    items: int = 1
    kind: Kind = CALL
    calls: int = 1
    after: int = 0


@dataclass(frozen=True)
class Stop:
    """The condition under which a run ends early.

    Args:
        late_ms: milliseconds. Requests that take longer, answered or not, and failures count; for sequences, first
            calls that take longer, and failures.
        most_late: the run ends when more than this number count; None: never.
        from_s: requests due before this moment of the run do not count.
    """

    late_ms: float = 0.0
    most_late: int | None = None
    from_s: float = 0.0


@dataclass(frozen=True)
class Pieces:
    """Further arrays of a record whose requests begin sequences or streams.

    Args:
        of: int64 [n], the arrival that each request belongs to: its own place, or that of its sequence's first call.
        first: float64 [n], the moment of a stream's first reply; NaN if none came.
        replies: int64 [n], the number of replies.
    """

    of: NDArray[np.int64]
    first: NDArray[np.float64]
    replies: NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """The fate of each request of a run, in the order of their moments; times in seconds from its start. The later
    calls of sequences follow, in the order in which they could be sent.

    Args:
        intended: float64 [n], the moment when it was due.
        sent: float64 [n], the moment when it was sent; NaN if it was not.
        answered: float64 [n], the moment of its answer, failure, or a stream's last reply; NaN if none came.
        outcome: int32 [n]: 0 right, above 0 a failure (`failures[outcome - 1]`), -1 not sent, or given up unfinished.
        failures: the messages of failures.
        cpu_s: processor time of the run.
        ended: the reason why the run ended early, if it did.
        pieces: see `Pieces`; None if all requests are single calls.
    """

    intended: NDArray[np.float64]
    sent: NDArray[np.float64]
    answered: NDArray[np.float64]
    outcome: NDArray[np.int32]
    failures: tuple[str, ...]
    cpu_s: float
    ended: str = ""
    pieces: Pieces | None = None

    @property
    def of(self) -> NDArray[np.int64]:
        """int64 [n]: the arrival that each request belongs to."""
        return np.arange(len(self.intended)) if self.pieces is None else self.pieces.of


def save_record(record: Record, file: Path) -> None:
    """Write it to a file of numpy's."""
    facts = {"failures": record.failures, "cpu_s": record.cpu_s, "ended": record.ended}
    np.savez(
        file,
        intended=record.intended,
        sent=record.sent,
        answered=record.answered,
        outcome=record.outcome,
        facts=np.array(json.dumps(facts)),
        **({} if record.pieces is None else vars(record.pieces)),
    )


def load_record(file: Path) -> Record:
    """Read what `save_record` has written."""
    with np.load(file, allow_pickle=False) as saved:
        facts = json.loads(str(saved["facts"]))
        pieces = None
        if "of" in saved.files:
            pieces = Pieces(saved["of"], saved["first"], saved["replies"])
        return Record(
            saved["intended"],
            saved["sent"],
            saved["answered"],
            saved["outcome"],
            tuple(facts["failures"]),
            facts["cpu_s"],
            facts["ended"],
            pieces,
        )


def joined_records(records: Sequence[Record]) -> Record:
    """The records of several processes as one."""
    words: dict[str, int] = {}
    outcomes = []
    for record in records:
        codes = [words.setdefault(word, len(words)) + 1 for word in record.failures]
        table = np.array([0, *codes, -1], np.int32)  # -1 is the last
        outcomes.append(table[record.outcome])
    return Record(
        np.concatenate([r.intended for r in records]),
        np.concatenate([r.sent for r in records]),
        np.concatenate([r.answered for r in records]),
        np.concatenate(outcomes),
        tuple(words),
        sum(r.cpu_s for r in records),
        # Others are interrupted where one has ended for its own reason.
        next((r.ended for r in sorted(records, key=lambda r: r.ended in ("", INTERRUPTED))), ""),
        _joined_pieces(records),
    )


def _joined_pieces(records: Sequence[Record]) -> Pieces | None:
    there = [record.pieces for record in records if record.pieces]
    if not there:
        return None
    begins = np.cumsum([0, *(len(record.intended) for record in records)])
    return Pieces(
        np.concatenate([r.of + begin for r, begin in zip(records, begins[:-1], strict=True)]),
        np.concatenate([pieces.first for pieces in there]),
        np.concatenate([pieces.replies for pieces in there]),
    )
