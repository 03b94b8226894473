"""Commands as a person types them: in a process of their own, or quicker in this one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

from tests.conftest import PROJECT
from tritonkit.cli import main

__all__ = ["failed", "tritonkit", "tritonkit_here"]

Done = subprocess.CompletedProcess[str]


def tritonkit(*arguments: str, cwd: Path = PROJECT) -> Done:
    """Run a command in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "tritonkit.cli", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


def tritonkit_here(*arguments: str, cwd: Path = PROJECT) -> Done:
    """`tritonkit` in this process: the same function that the installed script calls.

    A process of its own takes half a second to start, and most tests are about words and exit codes.
    """
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as end:
            code = end.code
    return Done(arguments, int(str(code or 0)), out.getvalue(), err.getvalue())


def failed(done: Done, code: int) -> str:
    """Standard error of a command that must have failed in the documented way."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(("error:", "{", "Usage:")) or "\nerror:" in done.stderr
    return done.stderr
