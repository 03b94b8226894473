"""A process that watches the worker of a command, because engines in the worker read untrusted files.

The watching process shows text that native code wrote to the terminal as text, ends a step that takes longer than its
limit, and explains why an engine ended the worker. A build then begins again without that model.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tritonkit.cli.native_text import NativeText
from tritonkit.cli.options import seconds
from tritonkit.cli.output import note, print_error
from tritonkit.errors import BuildError
from tritonkit.limits import advice, low
from tritonkit.watched import Board, Seen, announce_to, limit

__all__ = ["STEP_VARIABLE", "bound_steps", "fork_worker", "is_watched", "refused"]

STEP_VARIABLE = "TRITONKIT_STEP_TIMEOUT"
"""The longest step of every watched command; `build` has an option for it, too."""

_COMMANDS = {"build", "check-batching", "new", "profile", "release", "report", "tune"}
"""Commands that open networks in their own process."""

_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSYS)
_PIPE_BYTES = 1 << 16
_LOOK_S = 0.5
_FIRST_NOTE_S = 60.0
_ONE_INTERRUPT_S = 0.5
_AFTER_INTERRUPT_S = 3.0

refused: dict[str, BuildError] = {}
"""Model -> the reason why an earlier worker of this command had to be ended; it is not tried again."""


def is_watched(arguments: Sequence[str]) -> bool:
    """Whether a command's work belongs in a separate process."""
    command = arguments[0] if arguments and "--help" not in arguments else ""
    packs = command == "deploy" and bool({"lambda", "--target=lambda"} & set(arguments))
    return packs or command in _COMMANDS


def bound_steps() -> None:
    """Bound each step by the environment's limit, if there is one.

    Raises:
        UsageError: the limit is not a time.
    """
    if limit_text := os.environ.get(STEP_VARIABLE):
        limit(seconds(STEP_VARIABLE, limit_text, least=1))


def fork_worker(command: str, as_json: bool) -> None:
    """Return in a new process that does the command's work; the calling process ends in here, with the same exit."""
    while True:
        board = Board()
        reading, writing = os.pipe()
        watcher = os.getpid()
        worker = os.fork()
        if worker == 0:
            os.close(reading)
            _become_worker(board, writing, watcher)
            return
        os.close(writing)
        watch = _Watch(worker, reading, board)
        status = watch.follow()
        os.close(reading)
        if watch.interrupted:
            note("interrupted: the engine was ended during a step; nothing was published since")
            sys.exit(130)
        entry = board.read()
        error = _explain(status, entry, watch.timed_out, command)
        if error is None:
            _say_limits(status)
            _end_as(status)
        if not entry.can_continue or entry.model in ("", *refused):
            print_error(error, as_json)
            sys.exit(error.exit_code)
        refused[entry.model] = error


def _become_worker(board: Board, native: int, watcher: int) -> None:
    """Keep the terminal for Python alone: descriptors 1 and 2, which native code writes to, lead to the watching
    process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != watcher:  # it ended before that
        os._exit(1)
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        before.flush()
        kept = os.fdopen(os.dup(number), "w", buffering=1, encoding=before.encoding, errors=before.errors)
        os.dup2(native, number)
        setattr(sys, name, kept)
        setattr(sys, f"__{name}__", kept)
    os.close(native)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, _Interrupt())
    announce_to(board)


class _Interrupt:
    """Ctrl-C reaches the worker twice, from the terminal and from the watching process: it counts once."""

    def __init__(self) -> None:
        self._last_s = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        again, self._last_s = now - self._last_s < _ONE_INTERRUPT_S, now
        if not again:
            signal.default_int_handler(number, frame)


class _Watch:
    """Watches over one worker until it has ended."""

    def __init__(self, worker: int, native: int, board: Board) -> None:
        self._worker, self._native, self._board = worker, native, board
        self._text = NativeText()
        self._writers = [native]
        self._turn, self._elapsed_s, self._next_note_s = 0, 0.0, _FIRST_NOTE_S
        self._looked_s = time.monotonic()
        self._interrupted_turn, self._waited_s = -1, 0.0
        self.timed_out = False
        """Whether a step was ended because of its time limit."""
        self.interrupted = False
        """Whether the worker was ended because it did not end after Ctrl-C."""

    def follow(self) -> int:
        """The worker's wait status, once it has ended."""
        os.set_blocking(self._native, False)
        with _forwarding(self._forward) as woken:
            while True:
                ended, status = os.waitpid(self._worker, os.WNOHANG)
                if ended:
                    break
                self._look()
                ready, _, _ = select.select([*self._writers, woken], [], [], _LOOK_S)
                if woken in ready:
                    os.read(woken, 4096)
                self._show()
        self._show()
        self._text.end()
        return status

    def _forward(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._worker, number)
        if number == signal.SIGINT:  # read after the signal: a step that has just begun has it, too
            self._interrupted_turn = self._board.read().turn

    def _show(self) -> None:
        """Show no more than a pipe holds, so that endless output cannot keep this process from its work."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._native, _PIPE_BYTES)
            self._text.feed(data)
            if not data:  # closed by all: it would be ready for ever
                self._writers.clear()

    def _look(self) -> None:
        """Count the time of a step. While this process itself stands still, as after Ctrl-Z, it does not count."""
        entry, now = self._board.read(), time.monotonic()
        passed, self._looked_s = min(now - self._looked_s, 2 * _LOOK_S), now
        if entry.turn != self._turn or not entry.step:
            self._turn, self._elapsed_s, self._next_note_s = entry.turn, 0.0, _FIRST_NOTE_S
            self._waited_s = 0.0
            return
        self._elapsed_s += passed
        if self.timed_out or self.interrupted:
            return
        # Python hears of an interrupt when the engine gives it back; then it may go on with another step all the same.
        self._waited_s += passed if entry.turn == self._interrupted_turn else 0.0
        self.timed_out = self._elapsed_s >= entry.limit_s
        self.interrupted = not self.timed_out and self._waited_s >= _AFTER_INTERRUPT_S
        if self.timed_out or self.interrupted:
            _kill(self._worker)
        elif self._elapsed_s >= self._next_note_s:
            self._next_note_s *= 2
            name = f"{entry.model}: " if entry.model else ""
            note(f"{name}{entry.step}: for {_said(self._elapsed_s)} now, for at most {_said(entry.limit_s)}")


@contextlib.contextmanager
def _forwarding(hand_on: Callable[[int], None]) -> Iterator[int]:
    """Pass signals on to the worker; yield a descriptor that is readable when one came, or the worker ended."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)

    def forward(number: int, _: FrameType | None) -> None:
        hand_on(number)

    # One that is ignored, as nohup and a shell's background jobs have it, stays so.
    heard = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in heard}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(waking)


def _kill(worker: int) -> None:
    """End a worker that reacts to no signal, and the processes that it started."""
    others = list(_descendants(worker))
    os.kill(worker, signal.SIGKILL)
    for pid in others:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)


def _descendants(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _descendants(child)


def _explain(status: int, entry: Seen, timed_out: bool, command: str) -> BuildError | None:
    """The error for a worker that did not end by itself; None for one that did."""
    where = f"models/{entry.model}" if entry.model else "this command"
    if timed_out:
        longest = _said(entry.limit_s)
        own = "tritonkit build --step-timeout 2h"
        return BuildError(
            where,
            found=f"{entry.step}: it did not end within {longest}, and was ended",
            wanted=f"at most {longest} for each step in an engine",
            todo="look for a loop without an end in the file; or, for a network that needs longer, raise the limit: "
            + (own if command == "build" else f"{STEP_VARIABLE}=2h tritonkit {command}"),
        )
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in _CRASHES:
        return None
    name = signal.Signals(os.WTERMSIG(status)).name
    limits = advice(low(), "this command")
    doing = f" during this step: {entry.step}" if entry.step else ""
    if name == "SIGKILL":
        return BuildError(
            where,
            found=f"the process that worked was killed (SIGKILL){doing}",
            wanted="room for its work: the kernel kills a process so where memory, or its limit of time, is used up",
            todo=limits or "build on a machine with more memory, or export a smaller network",
        )
    return BuildError(
        where,
        found=f"an engine ended the process that worked ({name}){doing}",
        wanted="a network that the engine can take",
        todo=limits or "export the network again, or choose another variant",
    )


def _say_limits(status: int) -> None:
    """Name low limits if a library may have ended the worker because of them, as some exit with little explanation."""
    if os.waitstatus_to_exitcode(status) == 1 and (limits := low()):
        note(f"note: it ended with exit code 1; {advice(limits, 'this command')}")


def _end_as(status: int) -> NoReturn:
    """End as the worker did, by the same signal too."""
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.waitstatus_to_exitcode(status))


def _said(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:.0f} s"
