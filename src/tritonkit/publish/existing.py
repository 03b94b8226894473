"""What lies in a repository already, and who made it: tritonkit writes a header into each config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

from tritonkit.errors import PublishError
from tritonkit.publish.integrity import CONFIG, read_manifest, versions

__all__ = ["left_over", "made_from", "recorded_cores", "refuse_foreign", "rendered_cores"]

_HEADER = re.compile(
    r"# Rendered by tritonkit from models/(?P<spec>[^/]+)/model\.yaml \(target (?P<target>\w+), cores (?P<cores>\d+)\)"
)


def made_from(out: Path, spec: str) -> list[str]:
    """The models that were rendered from a spec."""
    found = []
    for path in sorted(out.glob(f"*/{CONFIG}")):
        header = _header(path.parent)
        if header and header["spec"] == spec:
            found.append(path.parent.name)
    return found


def recorded_cores(out: Path, spec: str) -> int | None:
    """The cores for which a spec's tracked configuration was rendered."""
    for path in sorted(out.glob(f"{spec}*/{CONFIG}")):
        header = _header(path.parent)
        if header and header["spec"] == spec:
            return int(header["cores"])
    return None


def rendered_cores(out: Path) -> int | None:
    """The most cores that any model of a repository was rendered for; None where tritonkit wrote none."""
    headers = (_header(path.parent) for path in out.glob(f"*/{CONFIG}"))
    return max((int(header["cores"]) for header in headers if header), default=None)


def refuse_foreign(folder: Path, spec: str, all_specs: bool) -> None:
    """PublishError for a folder in the way that this spec did not make."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    header = _header(folder)
    published = any(read_manifest(folder / str(number)) for number in versions(folder))
    if header is None and (not published or (folder / CONFIG).exists()):
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
    """What the header of a config.pbtxt says about its origin; None without one."""
    try:
        return _HEADER.match((folder / CONFIG).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
