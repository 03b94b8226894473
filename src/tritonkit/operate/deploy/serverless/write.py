"""A function's folder: written, or compared with what would be written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import RenderError
from tritonkit.operate.deploy.serverless.bundle import FUNCTION, Bundle
from tritonkit.operate.deploy.tree import Changes
from tritonkit.repository.export import sha256_file

__all__ = ["compare_bundle", "write_bundle"]

_WRITTEN = ".written.json"
"""File with path -> SHA-256 of everything written; a file that differs from it was edited by hand."""


def compare_bundle(out: Path, bundle: Bundle) -> Changes:
    """Differences between a folder and a function, in words for each file.

    Raises:
        RenderError: the folder holds files that are not a function's.
    """
    before = _before(out)
    differing: dict[str, str] = {}
    edited = []
    for path, digest in bundle.digests.items():
        on_disk = _found(out / path)
        if on_disk == digest:
            continue
        differing[path] = f"{path}: {'it differs' if on_disk else 'it is missing'}"
        if on_disk and on_disk != before.get(path):
            edited.append(path)
    left = [path for path in before if path not in bundle.digests and (out / path).exists()]
    left += [path for path in _below(out / FUNCTION, out) if path not in {*bundle.digests, *left}]
    return Changes(differing, tuple(edited), tuple(left))


def write_bundle(out: Path, bundle: Bundle, *, force: bool = False) -> list[Path]:
    """Write files that differ, remove those that the function no longer has, and return the files written.

    Raises:
        RenderError: files were edited by hand, and `force` is false; the folder holds files that are not a
            function's, or cannot be written; or a source changed meanwhile.
    """
    changes = compare_bundle(out, bundle)
    if changes.edited and not force:
        raise RenderError(
            str(out),
            found=f"edited by hand: {', '.join(changes.edited)}",
            wanted="a folder as it was written, or another --out",
            todo="--force writes over them",
        )
    written = []
    try:
        for path in changes.differing:
            file, content = out / path, bundle.files[path]
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                write_whole(file, content)
            else:
                shutil.copyfile(content, file)
            if sha256_file(file) != bundle.digests[path]:
                raise RenderError(
                    str(content),
                    found="its content has changed since it was built",
                    wanted=f"sha256 {bundle.digests[path]}",
                    todo="tritonkit build --force",
                )
            written.append(file)
        for path in changes.left:
            (out / path).unlink()
        text = json.dumps(dict(bundle.digests), indent=1, sort_keys=True) + "\n"
        write_whole(out / _WRITTEN, text.encode())
    except OSError as error:
        raise unwritable(out, error, RenderError) from error
    return written


def _before(out: Path) -> Mapping[str, str]:
    """The files written before; RenderError if other files are there."""
    try:
        facts = json.loads((out / _WRITTEN).read_text("utf-8"))
        return {str(path): str(digest) for path, digest in facts.items()}
    except (OSError, ValueError, AttributeError):
        if not out.is_dir() or not any(out.iterdir()):
            return {}
    raise RenderError(
        str(out),
        found=f"it holds files but no {_WRITTEN} from `tritonkit deploy --target lambda`",
        wanted="an empty folder, or one that it wrote",
        todo="name another --out",
    )


def _below(folder: Path, out: Path) -> list[str]:
    """Files that would go into the image and that nothing names, compiled Python among them."""
    return [file.relative_to(out).as_posix() for file in sorted(folder.rglob("*")) if file.is_file()]


def _found(file: Path) -> str:
    try:
        return sha256_file(file) if file.is_file() else ""
    except OSError as error:
        raise RenderError(str(file), found=f"it cannot be read: {error.strerror}") from error
