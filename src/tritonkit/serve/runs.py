"""One folder for each run, `<root>/.tritonkit/run/TIME-XXXX`, with the log and the copied backends.

While the server runs, the folder also has files for other programs of its owner: `endpoint.json` with its addresses,
and `admin-key` with the key that is needed to change it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerStartError
from tritonkit.serve.core.keys import write_private
from tritonkit.serve.core.launch import ENVIRONMENTS, UNPACKED
from tritonkit.serve.users_runs import forget_run, listed_runs, note_run

if TYPE_CHECKING:
    from tritonkit.serve.values import Endpoint

__all__ = [
    "KEEP",
    "KEY_FILE",
    "clear",
    "find_failed",
    "find_key_file",
    "find_metrics",
    "find_own_key_file",
    "find_runs",
    "new_run_dir",
    "write_owner",
    "write_run",
]

_RUNS = Path(".tritonkit") / "run"

KEY_FILE = "admin-key"
_ENDPOINT_FILE = "endpoint.json"
_OWNER_FILE = "owner"

KEEP = 5
"""Number of runs whose logs stay."""


def new_run_dir(root: Path) -> Path:
    """A new `<root>/.tritonkit/run/TIME-XXXX`, readable by this user alone; old ones are removed.

    Raises:
        ServerStartError: the folder cannot be written.
    """
    runs = root / _RUNS
    try:
        runs.mkdir(parents=True, exist_ok=True)
        _forget_old(runs)
        made = tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs)
    except OSError as error:
        raise ServerStartError(
            str(runs),
            found=f"it cannot be written: {error.strerror or error}",
            todo="free space, or serve a repository whose folder this user may write to",
        ) from error
    return Path(made)


def clear(run_dir: Path) -> None:
    """Remove everything but the log.

    The folder may be gone: once its server has ended, the next server of the project removes the oldest runs.
    """
    forget_run(run_dir)
    for folder in (run_dir / "backends", run_dir / UNPACKED, *run_dir.glob(ENVIRONMENTS)):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        for entry in run_dir.iterdir():
            if not entry.name.startswith("server.log"):
                entry.unlink(missing_ok=True)


def _forget_old(runs: Path) -> None:
    """Remove all runs except the latest; a run whose owner lives is in use, however old."""
    ended = [path for path in sorted(runs.iterdir()) if not _is_owned(path)]
    for path in ended[: -KEEP + 1]:
        shutil.rmtree(path, ignore_errors=True)


def _is_owned(run_dir: Path) -> bool:
    """Whether the server of a run still exists."""
    try:
        os.kill(int((run_dir / _OWNER_FILE).read_text()), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def write_owner(folder: Path, pid: int) -> None:
    """Record the process that runs the server. A later record overwrites it in place, because a full disk must not
    prevent a restart."""
    descriptor = os.open(folder / _OWNER_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(f"{pid:<20}\n")


def write_run(folder: Path, endpoint: Endpoint) -> None:
    """Write the addresses of this run's server, and its key into a second file."""
    facts = {
        "grpc": endpoint.grpc,
        "http": endpoint.http,
        "metrics": endpoint.metrics,
        "models": endpoint.models,
        "failed": dict(endpoint.failed),
        "version": endpoint.version,
    }
    _renew(folder / _ENDPOINT_FILE, json.dumps(facts))
    _renew(folder / KEY_FILE, f"{endpoint.admin_key}\n")
    note_run(folder)


def _renew(file: Path, text: str) -> None:
    """Write a file only if its text has changed. A restarted server mostly writes the same, for which a full disk has
    no room."""
    try:
        same = file.read_text() == text
    except FileNotFoundError:
        same = False
    if not same:
        write_private(file, text)


def find_key_file(root: Path, address: str) -> Path | None:
    """The key file of the running server of this project at a gRPC address; None if there is no such server.

    Args:
        root: the project.
        address: `host:port`; `localhost` stands for 127.0.0.1.
    """
    for folder, facts in _running(root):
        if facts.get("grpc") == _plain(address) and (folder / KEY_FILE).is_file():
            return folder / KEY_FILE
    return None


def find_own_key_file(address: str) -> Path | None:
    """The key file of this user's running server at a gRPC address, in any project."""
    for folder, facts in _told(listed_runs()):
        if facts.get("grpc") == _plain(address) and (folder / KEY_FILE).is_file():
            return folder / KEY_FILE
    return None


def find_runs(root: Path) -> list[dict[str, Any]]:
    """Addresses and models of this project's running servers, the latest first: `grpc`, `http`, `metrics`, `models`."""
    return [facts for _, facts in _running(root)]


def find_metrics(root: Path, address: str) -> str | None:
    """The metrics address of the running server of this project at a gRPC address; None if there is no such server."""
    addresses = (f["metrics"] for f in find_runs(root) if f.get("grpc") == _plain(address))
    return next(addresses, None)


def find_failed(root: Path, address: str) -> dict[str, str]:
    """The models that this project's running server at a gRPC address does without, each with the reason."""
    failures = (f.get("failed", {}) for f in find_runs(root) if f.get("grpc") == _plain(address))
    return next(failures, {})


def _plain(address: str) -> str:
    return address.removeprefix("grpc://").replace("localhost:", "127.0.0.1:")


def _running(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folders of running servers, each with the content of its `endpoint.json`."""
    runs = root / _RUNS
    return _told(sorted(runs.iterdir(), reverse=True) if runs.is_dir() else ())


def _told(folders: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for folder in folders:
        try:
            facts = json.loads((folder / _ENDPOINT_FILE).read_text())
        except (OSError, ValueError):
            continue
        if _is_owned(folder):
            yield folder, facts
