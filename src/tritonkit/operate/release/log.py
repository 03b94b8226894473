"""The requests that a release judges, as the gateway logs them (`gateway.logs.RELEASE_LOG`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tritonkit.operate.gateway.clusters import CANDIDATE

__all__ = ["Judged", "ReleaseLog", "read_line"]

_LONGEST_BYTES = 64 << 20
_NOT_OK = 400
_SERVER_ERROR = 500
# Of gRPC: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS; NOT_FOUND and RESOURCE_EXHAUSTED
# too, for the gateway has let the request pass: the model is not there, or has no room.
_FAILED = frozenset({2, 4, 5, 8, 12, 13, 14, 15})
_GONE = ("DC", "DPE", "RL", "RLSE")
"""Envoy's flags for: the caller left, spoke no HTTP, or exceeded the rate of its key."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One request.

    Args:
        candidate: whether it went to the candidate.
        ms: milliseconds from the request's last byte to its answer's first byte.
        failed: whether the server failed it, or another server answered in the candidate's place.
        refused: whether it was refused for a fault of the caller's.
        key: the name of the caller's key.
    """

    candidate: bool
    ms: float
    failed: bool
    refused: bool = False
    key: str = ""


def read_line(line: str, hosts: Collection[str] = ()) -> Judged | None:
    """The request of a line; None if it says nothing about a version, such as one that was never sent whole.

    Args:
        hosts: the candidate's addresses.
    """
    fields = line.rstrip("\n").split("\t")
    if len(fields) != 7:
        return None
    cluster, host, code, grpc, flags, micros, key = fields
    if any(flag in _GONE for flag in flags.split(",")) or not (code.isdecimal() and micros.isdecimal()):
        return None
    if grpc.isdecimal():
        failed, bad = int(grpc) in _FAILED, int(grpc) != 0
    else:
        failed, bad = int(code) >= _SERVER_ERROR, int(code) >= _NOT_OK
    candidate = cluster.endswith(CANDIDATE)
    # The replicas answer where the candidate does not: its callers see nothing of it, but it has failed.
    failed = failed or (candidate and host not in hosts)
    return Judged(candidate, int(micros) / 1000, failed, bad and not failed, key)


class ReleaseLog:
    """A context manager that reads new lines of the log. Lines that were read are cut off, so that it stays small.

    Args:
        file: the log, to which Envoy appends.
        hosts: the candidate's addresses.
    """

    def __init__(self, file: Path, hosts: Collection[str]) -> None:
        self._file, self._hosts, self._rest = file, hosts, ""
        self._opened: IO[str] | None = None

    def __enter__(self) -> ReleaseLog:
        self._opened = self._file.open(encoding="utf-8", errors="replace")
        self._opened.seek(0, os.SEEK_END)
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def read(self) -> Sequence[Judged]:
        """Requests logged since the last call."""
        assert self._opened is not None  # noqa: S101
        *lines, self._rest = (self._rest + self._opened.read()).split("\n")
        if self._opened.tell() > _LONGEST_BYTES:
            # Lines written between the two are lost, which costs the judgment nothing.
            os.truncate(self._file, 0)
            self._opened.seek(0)
        entries = (read_line(line, self._hosts) for line in lines)
        return [judged for judged in entries if judged is not None]
