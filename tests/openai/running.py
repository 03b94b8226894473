"""`tritonkit openai` as a person starts it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["asked", "running"]

_JSON = {"content-type": "application/json"}


@contextmanager
def running(folder: Path, *arguments: str, files: int | None = None, cwd: Path | None = None) -> Iterator[str]:
    """Its URL, with the path; at the end it has said nothing of a traceback.

    Args:
        files: the most it may open.
        cwd: the working folder.
    """
    log = folder / "openai.log"
    command = [sys.executable, "-m", "tritonkit.cli", "openai", "--port", "0", *arguments]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    with (
        log.open("w") as log_file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log_file, text=True, cwd=cwd) as process,
    ):
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:1] == ["openai"], log.read_text()
            yield words[1]
        finally:
            process.terminate()
            process.wait(60)
    assert "Traceback" not in log.read_text(), log.read_text()


def asked(url: str, data: bytes | None = None, headers: Mapping[str, str] = _JSON) -> tuple[int, dict[str, Any]]:
    """Status and JSON of one request."""
    request = urllib.request.Request(url, data, dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
