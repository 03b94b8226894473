"""The builder's work: fill the repository if it is empty or stale, and hand the server what it needs.

    builder.py [tritonkit build ARGUMENT ...]

Starts as root for one thing: to leave the checkout's files to the user who owns the checkout, and the
server's to the server's user. The build itself runs as that owner. Exit codes are `tritonkit`'s.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from checks import Refused, check_key

__all__ = ["main"]

PROJECT = Path("/project")
KEYS = Path("/keys")
HANDOVER = Path("/handover")
SERVER_USER = 10001


def main() -> int:
    """Build, then hand over; 0, or the exit code of what failed."""
    owner = PROJECT.stat()
    try:
        key = _key(owner)
    except (Refused, OSError) as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 2
    _give(PROJECT / _repository(), owner)
    build = _tritonkit(owner, "build", *sys.argv[1:])
    if build.returncode != 0:
        return build.returncode
    repository = _repository()
    needs = _tritonkit(owner, "manifests", "--json", "--repository", repository, capture=True)
    if needs.returncode != 0:
        return needs.returncode
    _hand_over("admin-key", f"{key}\n")
    _hand_over("needs.json", needs.stdout)
    return 0


def _key(owner: os.stat_result) -> str:
    """The key, made at the first start: the owner of the checkout can read it, and nobody else."""
    file = KEYS / "admin-key"
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(f"{secrets.token_hex(24)}\n")
        os.chown(file, owner.st_uid, owner.st_gid)
    return check_key(file)


def _repository() -> str:
    """The folder that `tritonkit build` writes for its target."""
    words = " ".join(sys.argv[1:]).replace("--target=", "--target ").split()
    target = words[words.index("--target") + 1] if "--target" in words[:-1] else "cpu"
    return "model_repository" if target == "cpu" else f"model_repository_{target}"


def _give(folder: Path, owner: os.stat_result) -> None:
    """Docker makes the folder of a mount as root's where there is none."""
    if folder.is_dir() and not any(folder.iterdir()):
        os.chown(folder, owner.st_uid, owner.st_gid)


def _tritonkit(owner: os.stat_result, *words: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `tritonkit` as the owner of the checkout, for whom the image has no name."""
    names = {"HOME": "/tmp", "USER": "builder", "LOGNAME": "builder"}  # noqa: S108 (a tmpfs)
    # The server's image has this Python, whatever server environment lies in the checkout.
    names["TRITONKIT_STUB_PYTHON"] = ".".join(map(str, sys.version_info[:2]))
    names |= {"UV_CACHE_DIR": str(PROJECT / ".tritonkit" / "uv")}  # downloads stay, and take no memory
    return subprocess.run(
        [sys.executable, "-m", "tritonkit.cli", *words],
        cwd=PROJECT,
        env=os.environ | names,
        text=True,
        check=False,
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[],
        umask=0o022,
        stdout=subprocess.PIPE if capture else None,
    )


def _hand_over(name: str, text: str) -> None:
    """Write a file that only the server's user can read, in one step."""
    draft = HANDOVER / f".{name}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
    os.chown(draft, SERVER_USER, SERVER_USER)
    draft.rename(HANDOVER / name)


if __name__ == "__main__":
    sys.exit(main())
