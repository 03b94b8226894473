"""Puts a repository where a pod's server reads it: copied, each file held against its manifest (an init container).

    fetch.py [--source DIR] [--to DIR]

The source is /source where something is mounted there (an image volume, a claim), else the /repository of this image
(docs/kubernetes.md). What is in the target before goes. Exit code 4: refused, with the reason in one line.
Standard library only.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from integrity import verify

__all__ = ["main"]

_MIB = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Copy and check: 0, or 4 with the reason."""
    parser = argparse.ArgumentParser(prog="fetch.py", description=__doc__)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--to", type=Path, default=Path("/models"))
    options = parser.parse_args(arguments)
    mounted = Path("/source")
    source = options.source or (mounted if mounted.is_dir() else Path("/repository"))
    try:
        return _fetch(source, options.to)
    except (OSError, shutil.Error) as error:
        return _refuse(source, str(error), "is there room, and may this user read and write there?")


def _fetch(source: Path, target: Path) -> int:
    if not any(source.glob("*/config.pbtxt")):
        return _refuse(
            source,
            "no NAME/config.pbtxt in it",
            "make the image with a repository in it, or mount one (docs/kubernetes.md)",
        )
    began = time.monotonic()
    for old in target.iterdir():
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    for model in sorted(path for path in source.iterdir() if path.is_dir()):
        shutil.copytree(model, target / model.name, ignore=shutil.ignore_patterns("__pycache__"))
    copied = time.monotonic()
    findings = verify(target)
    if findings:
        return _refuse(source, f"not as it was published: {findings[0]}", "build the image again")
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    sys.stdout.write(
        f"{size / _MIB:.0f} MiB: fetched in {copied - began:.2f} s, verified in {time.monotonic() - copied:.2f} s\n"
    )
    return 0


def _refuse(where: Path, found: str, todo: str) -> int:
    sys.stderr.write(f"error: {where}: {found}\n  do: {todo}\n")
    return 4


if __name__ == "__main__":
    sys.exit(main())
