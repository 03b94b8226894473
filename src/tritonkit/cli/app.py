"""The command line: the only place that prints.

Every command takes `--json` for programs where it prints a table for people; errors go to standard
error, and the exit code says which part failed (see `tritonkit.errors`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import warnings
from typing import Annotated, NoReturn

import typer

from tritonkit import __version__
from tritonkit.cli import watch
from tritonkit.cli.lazy import LazyGroup
from tritonkit.cli.output import print_error, print_line
from tritonkit.disk import refused_by_system
from tritonkit.errors import TritonkitError
from tritonkit.limits import advice, is_of_limits
from tritonkit.text import printable

__all__ = ["app", "main"]

app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _version(show: bool) -> None:
    if show:
        print_line(f"tritonkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """From a model spec to a served prediction on NVIDIA Triton."""


class _HarmlessRecord(logging.LogRecord):
    """A line of a library's log, which may hold names from a model's file."""

    def getMessage(self) -> str:  # noqa: N802 - as logging calls it
        """The message as text."""
        return printable(super().getMessage())


def _write_logs_as_text() -> None:
    """Let no log or warning of a library act on the terminal."""
    logging.setLogRecordFactory(_HarmlessRecord)
    plain = warnings.formatwarning
    warnings.formatwarning = lambda *parts, **more: printable(plain(*parts, **more))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake ends in a message and an exit code, never a traceback."""
    if arguments is None:
        arguments = sys.argv[1:]
        _open_closed_streams()
        _write_logs_as_text()
        if watch.is_watched(arguments):
            watch.fork_worker(arguments[0], "--json" in arguments)
    # transformers imports torchao where it is installed, which logs each GPU kernel that it lacks.
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        _run(arguments)
    except TritonkitError as error:
        _fail(error, arguments)
    except (MemoryError, OSError, ImportError) as error:
        if (understood := _understood(error)) is None:
            raise
        _fail(understood, arguments)
    except KeyboardInterrupt:
        sys.exit(130)


def _open_closed_streams() -> None:
    """Open standard streams that a caller closed (`>&-`) to /dev/null, so that no file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is its own
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", closefd=False))
            setattr(sys, f"__{name}__", getattr(sys, name))


def _run(arguments: list[str]) -> None:
    if watch.is_watched(arguments):
        watch.bound_steps()
    try:
        app(arguments, prog_name="tritonkit")
    finally:
        # Here a full disk behind standard output has words; when the interpreter ends it has none.
        sys.stdout.flush()


def _understood(error: Exception) -> TritonkitError | None:
    """The error for a refusal by the system or a limit anywhere in a command; None for a bug of tritonkit."""
    refused = _refused(error) if isinstance(error, OSError) else None
    limits = is_of_limits(error)
    return _too_little(error, limits) if limits else refused


def _too_little(error: Exception, limits: str) -> TritonkitError:
    """The error for a limit of this process that ended a command anywhere."""
    words = str(error).strip().splitlines() or ["no message"]
    return TritonkitError(
        "tritonkit",
        found=f"{type(error).__name__}: {words[-1]}",  # NumPy's advice on imports comes before the reason
        wanted="room for this command",
        todo=advice(limits, "this command"),
    )


def _refused(error: OSError) -> TritonkitError | None:
    """The error for a refusal of the system's, such as a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        # What is left would be written, and refused, once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # `| head`
        sys.exit(1)
    return refused_by_system(error)


def _fail(error: TritonkitError, arguments: list[str]) -> NoReturn:
    # Where standard error cannot be written either, the exit code has to do.
    with contextlib.suppress(OSError):
        print_error(error, as_json="--json" in arguments)
    sys.exit(error.exit_code)
