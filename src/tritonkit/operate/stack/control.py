"""Control of a running stack by another process: JSON lines on a socket that only its owner can reach.

A connection is a session: when it ends, in whatever way, its unfinished work is undone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tritonkit import errors
from tritonkit.errors import ServerDied, ServerError, TritonkitError, UsageError
from tritonkit.operate.stack.state import FOLDER, read_state

__all__ = ["Control", "Session", "StackSession"]

_SOCKET = "control.sock"
_LONGEST = 1 << 20
_ANSWER_S = 3600.0
"""Time limit for an answer: longer than loading a model in all replicas takes, as each step of that has a limit."""
_BUSY_S = 3.0
"""Time for the previous session to be undone: its command may have ended just now."""
_UNDONE_S = 60.0
"""Time for a session to be undone while the stack ends."""


class Session(Protocol):
    """Actions of a stack for one connection."""

    def do(self, what: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Perform an action and return its result; a TritonkitError is passed on to the caller."""
        ...

    def close(self) -> None:
        """Undo unfinished work."""
        ...

    def hurry(self) -> None:
        """Make the current action fail soon, because the stack ends."""
        ...


class Control:
    """The stack's side of the socket.

    Args:
        folder: the folder for the socket, which only its owner can read.
        open_session: a function that opens a connection's session; meanwhile other connections are refused.
    """

    def __init__(self, folder: Path, open_session: Callable[[], Session]) -> None:
        self._folder, self._open_session = folder, open_session
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._busy = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._session: Session | None = None
        self._threads: list[threading.Thread] = []
        (folder / _SOCKET).unlink(missing_ok=True)
        with _within(folder) as place:
            self._listener.bind(f"{place}/{_SOCKET}")
        (folder / _SOCKET).chmod(0o600)
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, name="tritonkit-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections, end the current session, and wait until its work is undone."""
        # `close` alone does not wake who waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        if (session := self._session) is not None:
            session.hurry()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_UNDONE_S)
        (self._folder / _SOCKET).unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads = [other for other in self._threads if other.is_alive()] + [thread]
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self._busy.acquire(timeout=_BUSY_S):
                try:
                    self._hold(connection)
                finally:
                    self._session = None
                    self._busy.release()
            else:
                connection.sendall(_line({"error": _BUSY.to_dict()}))
        self._connections.discard(connection)

    def _hold(self, connection: socket.socket) -> None:
        session = self._session = self._open_session()
        try:
            with connection.makefile("rb") as lines, contextlib.suppress(OSError):
                while line := lines.readline(_LONGEST):
                    connection.sendall(_line(_answer(session, line)))
        finally:
            session.close()


_BUSY = UsageError(
    "the stack",
    found="another release or rollback is going on",
    wanted="one at a time",
    todo="wait for it, or end it: Ctrl-C where it runs",
)


def _answer(session: Session, line: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(line)
        number = facts.pop("number", 0)
        try:
            return {"number": number, "done": session.do(str(facts.pop("do")), facts)}
        except TritonkitError as error:
            return {"number": number, "error": error.to_dict()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {
            "error": {"error": "UsageError", "where": "the stack", "found": f"a request that it does not know: {error}"}
        }
    except OSError as error:
        return {"error": {"error": "ServerError", "where": "the stack", "found": str(error)}}


class StackSession:
    """The caller's side: a session with the stack of a project, as a context manager.

    Raises:
        UsageError: no stack runs, or another session is going on.
    """

    def __init__(self, root: Path) -> None:
        if read_state(root) is None:
            raise UsageError(
                f"the stack of {root}",
                found="none runs",
                wanted="one that `tritonkit up` started",
                todo="tritonkit up --detach",
            )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_S)
        try:
            with _within(root / FOLDER / "gateway") as place:
                self._socket.connect(f"{place}/{_SOCKET}")
        except OSError as error:
            self._socket.close()
            raise ServerError(
                f"the stack of {root}",
                found=f"it does not answer: {error.strerror}",
                todo="tritonkit down; tritonkit up --detach",
            ) from error
        self._lines, self._asked = self._socket.makefile("rb"), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The stack undoes unfinished work when the connection ends; that must be done before the caller sees the error.
        with contextlib.suppress(TritonkitError):
            if error is not None:
                self.ask("end")
        self._lines.close()
        self._socket.close()

    def ask(self, what: str, **facts: Any) -> dict[str, Any]:
        """Have the stack perform an action.

        Raises:
            TritonkitError: the error that the stack raised.
            ServerDied: the stack ended meanwhile; the action may have been done.
        """
        self._asked += 1
        with contextlib.suppress(OSError):  # who is refused may be answered before it asks
            self._socket.sendall(_line({"do": what, "number": self._asked, **facts}))
        answer = self._answer()
        # What was asked before may have been left before its answer came, by Ctrl-C.
        while answer.get("number", self._asked) < self._asked:
            answer = self._answer()
        if "error" in answer:
            raise _error(answer["error"])
        done: dict[str, Any] = answer["done"]
        return done

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.readline(_LONGEST)
        except OSError:
            line = b""
        if not line:
            raise ServerDied("the stack", found="it ended while it was asked", todo="tritonkit up")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _error(facts: dict[str, str]) -> TritonkitError:
    kind = getattr(errors, facts.get("error", ""), None)
    if not (isinstance(kind, type) and issubclass(kind, TritonkitError)):
        kind = ServerError
    return kind(
        facts.get("where", "the stack"),
        found=facts.get("found", ""),
        wanted=facts.get("wanted", ""),
        todo=facts.get("do", ""),
        details=facts.get("details", ""),
    )


def _line(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts).encode() + b"\n"


@contextlib.contextmanager
def _within(folder: Path) -> Any:
    """A short path of the folder, by its descriptor, because a socket's path may have 107 characters at most."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
