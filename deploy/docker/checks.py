"""Checks before a container works: it refuses a key that others can read, and a repository that it cannot serve.

They run in the images: standard library only, and nothing of tritonkit.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

__all__ = ["BUILD", "MIB", "Refused", "check_key", "check_memory", "check_repository", "printable", "read_needs"]

MIB = 1 << 20
_KEY = re.compile(r"[A-Za-z0-9._~-]{16,256}")


BUILD = "build the models: docker compose up builder (pods: tritonkit build, tritonkit deploy image)"


class Refused(Exception):
    """A mistake to fix before the next start: where, what was found, what to do."""

    def __init__(self, where: Path, found: str, todo: str) -> None:
        super().__init__(f"error: {printable(where)}: {printable(found)}\n  do: {todo}")


def printable(text: object) -> str:
    """Text with its control characters escaped: names come from a repository, which may be anyone's."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def check_key(file: Path) -> str:
    """The key in a file. Refused where it is missing, weak, or open to other users."""
    try:
        mode = file.stat().st_mode
        text = file.read_text().strip()
    except FileNotFoundError:
        raise Refused(
            file, "there is no key file", "docker compose up builder makes one; or mount a file of yours there"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            file,
            f"the key cannot be read: {error}",
            f"give it to user {os.getuid()}: chown {os.getuid()} FILE && chmod 400 FILE",
        ) from None
    if mode & stat.S_IRWXO:
        raise Refused(
            file,
            f"every user can read or change the key (mode {stat.S_IMODE(mode):o})",
            "chmod o-rwx FILE, and change the key: someone may have read it",
        )
    if not _KEY.fullmatch(text):
        raise Refused(
            file,
            f"not a key: {len(text)} characters",
            "16 to 256 letters, digits or ._~- in one line: openssl rand -hex 24 > FILE",
        )
    return text


def check_repository(folder: Path) -> list[str]:
    """The names of the models in a repository. Refused where it is empty, half built or unreadable."""
    try:
        # Not glob(), which passes over folders it may not enter.
        entries = sorted(folder.iterdir())
        configs = [entry / "config.pbtxt" for entry in entries]
        configs = [config for config in configs if config.exists()]
    except OSError as error:
        raise _unreadable(folder, error) from None
    if not configs:
        problem = "no NAME/config.pbtxt in it" if entries else "the model repository is empty"
        raise Refused(folder, problem, BUILD)
    for config in configs:
        _check_model(config.parent)
    return [config.parent.name for config in configs]


def read_needs(file: Path) -> dict[str, Any]:
    """The needs that the builder computed from the repository; empty if no builder ran."""
    try:
        needs = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Refused(file, f"it cannot be read: {error}", BUILD) from None
    return needs if isinstance(needs, dict) else {}


def check_memory(needs: dict[str, Any], folder: Path) -> None:
    """Refused where /dev/shm is too small for the Python stubs: one would die in mid-service.

    Room for a second generation of them (`shm_bytes`) is wanted, and needed only for reloading under
    the heaviest load.
    """
    state = os.statvfs(folder)
    size = state.f_blocks * state.f_frsize
    needed = int(needs.get("shm_bytes", 0))
    if size < int(needs.get("stubs_bytes", 0)):
        raise Refused(
            folder,
            f"{size // MIB} MiB, and the repository's Python stubs want {needed // MIB} MiB",
            "tritonkit manifests --target compose, then docker compose up again"
            f" (docker run: --shm-size={needed // MIB}m; pods: tritonkit deploy, and apply it again)",
        )


def _check_model(folder: Path) -> None:
    try:
        versions = [path for path in folder.iterdir() if path.name.isdecimal()]
        (folder / "config.pbtxt").read_bytes()
        missing = [file for version in versions for file in _missing(version)]
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from None
    if not versions:
        missing = [folder / "1"]
    if missing:
        raise Refused(
            folder,
            f"half built: there is no {'version folder ' if not versions else ''}{missing[0].relative_to(folder)}",
            BUILD,
        )


def _missing(version: Path) -> list[Path]:
    """The files its manifest names that are not there; an OSError where one cannot be read."""
    manifest = version / "manifest.json"
    names = json.loads(manifest.read_text()).get("files", {}) if manifest.exists() else {}
    files = [version / name for name in names]
    for file in files:
        if file.exists():
            file.open("rb").close()
    return [file for file in files if not file.exists()]


def _unreadable(folder: Path, error: Exception) -> Refused:
    user = f"user {os.getuid()}"
    return Refused(folder, f"{user} cannot read it: {error}", "chmod -R a+rX model_repository")
