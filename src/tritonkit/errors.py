"""The errors that a caller can catch, and the exit code of each branch on the command line.

TritonkitError              1  the root; every other error is one
├── UsageError              2  the command line or a function argument is wrong
├── SpecError               2  a model folder says something that cannot be built
├── BuildError              3  a model could not be trained, exported or checked
│   ├── GateError           3  it was built, and it is not good enough to publish
│   ├── RenderError         3  its configuration would not say what the spec requests
│   └── PublishError        3  the repository could not be written
├── ServerError             4  Triton could not be run
│   ├── ServerNotFound      4  there is no tritonserver, or it lacks something on this machine
│   ├── ServerStartError    4  it was started and did not become ready
│   └── ServerDied          4  it, or a Python stub in it, ended while serving
├── StoreError              5  a store of backups, or a backup in it, cannot be used
│   └── StoreBusy           5  other work in the store must end first
├── ReleaseAborted          6  a release was undone automatically
└── ClientError             5  a call failed
    ├── InvalidInput        5  refused before sending: names, dtypes, shapes, sizes
    ├── ModelNotFound       5  the server does not serve that model or version
    │   └── ModelNotReady   5  it knows the model and serves no version of it now
    ├── InferenceError      5  the server took the request and answered with an error
    │   ├── Overloaded      5  there is no room for it now, at the server or in this client
    │   └── Unsupported     5  the server lacks the call, or an extension that the call needs
    ├── DeadlineExceeded    5  no answer within the time allowed
    └── ServerUnavailable   5  no answer at that address
        ├── ServerStopping  5  the server is about to end
        └── CircuitOpen     5  it failed so often that it is left alone for a moment
"""

from __future__ import annotations

import copy
import copyreg
from typing import Any, ClassVar

from tritonkit.text import barred, printable, short_numbers

__all__ = [
    "BuildError",
    "CircuitOpen",
    "ClientError",
    "DeadlineExceeded",
    "GateError",
    "InferenceError",
    "InvalidInput",
    "ModelNotFound",
    "ModelNotReady",
    "Overloaded",
    "PublishError",
    "ReleaseAborted",
    "RenderError",
    "ServerDied",
    "ServerError",
    "ServerNotFound",
    "ServerStartError",
    "ServerStopping",
    "ServerUnavailable",
    "SpecError",
    "StoreBusy",
    "StoreError",
    "TritonkitError",
    "Unsupported",
    "UsageError",
    "copy_error",
]


class TritonkitError(Exception):
    """The root: says where, what was found, what was wanted and what to do.

    `where` is a place a person can open (a file and field, an address, a model and input);
    `details` is longer evidence, such as the last lines of a log. The attributes keep the text as given.
    `str` of the error is safe to show: a server's words can neither control a terminal nor pass for tritonkit's.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, where: str, *, found: str, wanted: str = "", todo: str = "", details: str = "") -> None:
        self.where = where
        self.found = found
        self.wanted = wanted
        self.todo = todo
        self.details = details
        super().__init__(where, found)

    def __str__(self) -> str:
        where = printable(self.where, lines=False)
        lines = [f"{where}: {barred(self.found)}"]
        if self.wanted:
            lines.append(f"  wanted: {barred(self.wanted)}")
        if self.todo:
            lines.append(f"  do: {barred(self.todo)}")
        if self.details:
            lines.append(f"  | {barred(self.details)}")
        return short_numbers("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        # For copies and pickles: `BaseException` would call the constructor without its keywords.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def in_a_line(self) -> str:
        """One line with everything but the details."""
        parts = [f"{self.where}: {self.found}"]
        parts += [f"wanted: {self.wanted}"] if self.wanted else []
        parts += [f"do: {self.todo}"] if self.todo else []
        return short_numbers("; ".join(parts))

    def to_dict(self) -> dict[str, str]:
        """The same facts for `--json`."""
        facts = {
            "error": type(self).__name__,
            "where": self.where,
            "found": self.found,
            "wanted": self.wanted,
            "do": self.todo,
            "details": self.details,
        }
        return {key: value for key, value in facts.items() if value}


class UsageError(TritonkitError):
    """The command line or a function argument is wrong."""

    exit_code = 2


class SpecError(TritonkitError):
    """A model folder describes something that cannot be built."""

    exit_code = 2


class BuildError(TritonkitError):
    """A model could not be trained, exported or checked."""

    exit_code = 3


class GateError(BuildError):
    """A model was built and is not good enough to publish."""


class RenderError(BuildError):
    """A configuration would not say what the spec requests."""


class PublishError(BuildError):
    """The repository could not be written; its former state is unchanged."""


class ServerError(TritonkitError):
    """Triton could not be run."""

    exit_code = 4


class ServerNotFound(ServerError):
    """There is no tritonserver, or it lacks something on this machine."""


class ServerStartError(ServerError):
    """Triton was started and did not become ready."""


class ServerDied(ServerError):
    """Triton, or a Python stub in it, ended while serving."""


class StoreError(TritonkitError):
    """A store of backups cannot be used, or a backup in it is not what was put there."""

    exit_code = 5


class StoreBusy(StoreError):
    """Other work in the store must end first."""


class ReleaseAborted(TritonkitError):
    """A release was undone automatically: the version before answers all requests."""

    exit_code = 6


class ClientError(TritonkitError):
    """A call failed.

    `unprocessed` is True if the server certainly did not begin with the call, so sending it again does nothing twice.
    Otherwise the server may have done all of it. `code` is gRPC's name of the answer's status, such as
    `INVALID_ARGUMENT`, also where a model chose it. It is empty if no answer came, and in streams, for which Triton
    has no status.
    """

    exit_code = 5

    def __init__(
        self,
        where: str,
        *,
        found: str,
        wanted: str = "",
        todo: str = "",
        details: str = "",
        unprocessed: bool = False,
        code: str = "",
    ) -> None:
        super().__init__(where, found=found, wanted=wanted, todo=todo, details=details)
        self.unprocessed = unprocessed
        self.code = code


class InvalidInput(ClientError):
    """Refused before sending: names, dtypes, shapes or sizes do not fit the model."""


class ModelNotFound(ClientError):
    """The server does not serve that model or version."""


class ModelNotReady(ModelNotFound):
    """The server knows the model and serves no version of it now: it is loading one, or is about to end."""


class InferenceError(ClientError):
    """The server took the request and answered with an error."""


class Overloaded(InferenceError):
    """There is no room for the request now: the server's queue is full, the client's own limit is reached, or the
    model says that it is unavailable."""


class Unsupported(InferenceError):
    """The server lacks the call, or an extension of the protocol that the call needs."""


class DeadlineExceeded(ClientError):
    """No answer within the time allowed."""


class ServerUnavailable(ClientError):
    """No answer comes from that address."""


class ServerStopping(ServerUnavailable):
    """The server is about to end; a call on another connection may reach a server that is not."""


class CircuitOpen(ServerUnavailable):
    """The address failed so often that the client leaves it alone for a moment; nothing was sent."""


def copy_error(error: Exception) -> Exception:
    """A copy of an error: one object, raised in two threads or tasks, would mix their tracebacks.

    An error that cannot be copied, or whose copy would say something else, is returned itself.
    """
    try:
        copied = copy.copy(error)
        copied.__cause__ = error.__cause__
        return copied if str(copied) == str(error) else error
    except Exception:
        return error
