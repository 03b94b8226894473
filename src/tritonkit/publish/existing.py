"""What lies in a repository already, and whose it is: tritonkit's own folders carry a header."""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

from tritonkit.errors import PublishError
from tritonkit.publish import manifest

__all__ = ["CONFIG", "left_over", "recorded_cores", "refuse_foreign", "versions"]

CONFIG = "config.pbtxt"
_HEADER = re.compile(
    r"# Rendered by tritonkit from models/(?P<spec>[^/]+)/model\.yaml \(target (?P<target>\w+), cores (?P<cores>\d+)\)"
)


def versions(folder: Path) -> list[int]:
    """Version numbers of a model's folder, as Triton reads them: numeric, without a leading 0."""
    names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit() and not name.startswith("0"))


def recorded_cores(out: Path, spec: str) -> int | None:
    """The cores for which a spec's tracked configuration was rendered."""
    for path in sorted(out.glob(f"{spec}*/{CONFIG}")):
        header = _header(path.parent)
        if header and header["spec"] == spec:
            return int(header["cores"])
    return None


def refuse_foreign(folder: Path, spec: str, all_specs: bool) -> None:
    """PublishError for a folder in the way that this spec did not make: it is not ours to replace."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    header = _header(folder)
    numbers = versions(folder)
    known = any(manifest.read(folder / str(number)) for number in numbers)
    if header is None and (not known or (folder / CONFIG).exists()):
        found = "tritonkit did not write it"
    elif header and header["spec"] != spec and not all_specs:
        found = f"it belongs to models/{header['spec']}"
    else:
        return
    raise PublishError(
        str(folder),
        found=found,
        wanted=f"room for the model {folder.name!r} of models/{spec}",
        todo="rename one of the two models, move the folder away, or name another --out",
    )


def left_over(
    out: Path, planned: Set[str], specs: Set[str], all_specs: bool, keep: Set[str] = frozenset()
) -> list[str]:
    """Folders that tritonkit rendered for these specs before and that no plan holds now.

    With `all_specs`, also those of specs that are gone; those of the specs `keep` stay.
    """
    stale = []
    for path in sorted(out.glob(f"*/{CONFIG}")):
        header = _header(path.parent)
        if header is None or path.parent.name in planned or header["spec"] in keep:
            continue
        if all_specs or header["spec"] in specs:
            stale.append(path.parent.name)
    return stale


def _header(folder: Path) -> re.Match[str] | None:
    """What a config.pbtxt of ours says about its origin; None for any other folder."""
    try:
        return _HEADER.match((folder / CONFIG).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
