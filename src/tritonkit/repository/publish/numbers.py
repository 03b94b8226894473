"""Version numbers that candidates had: no later one gets them again.

Answers are cached by model and version, by clients and by Triton. After a release that went back, other content under
the rejected candidate's number would be answered with what the candidate said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import UsageError
from tritonkit.repository.publish.existing import made_from
from tritonkit.repository.publish.integrity import versions

__all__ = ["FOLDER", "newest", "remember", "used", "used_by_all"]

FOLDER = Path(".tritonkit") / "releases"
"""What releases keep, below a project's folder: a folder for each spec."""
_FILE = "numbers.json"


def used(root: Path, model: str) -> dict[str, int]:
    """The highest number that a candidate had, for each Triton model of a spec.

    Empty where there was none, and where the file cannot be read or is damaged.
    """
    try:
        found = json.loads((root / FOLDER / model / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(found, dict) and all(type(n) is int and n > 0 for n in found.values())
    return found if whole else {}


def used_by_all(root: Path) -> dict[str, int]:
    """`used` of every spec of a project."""
    places = sorted((root / FOLDER).glob("*"))
    return {name: number for place in places for name, number in used(root, place.name).items()}


def remember(root: Path, model: str, numbers: Mapping[str, int]) -> None:
    """Add a candidate's numbers to those known; the higher one of each model stays.

    Args:
        model: the spec's name.
        numbers: Triton model -> version.

    Raises:
        UsageError: it cannot be written; what was known is as it was.
    """
    file, known = root / FOLDER / model / _FILE, used(root, model)
    highest = known | {name: max(n, known.get(name, 0)) for name, n in numbers.items()}
    if highest == known:
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, json.dumps(highest, indent=1).encode())
        file.chmod(0o600)
    except OSError as error:
        raise unwritable(file, error, UsageError) from error


def newest(repository: Path, model: str) -> dict[str, int]:
    """The newest version of each Triton model that was made from a spec."""
    found = {name: versions(repository / name) for name in made_from(repository, model)}
    return {name: numbers[-1] for name, numbers in found.items() if numbers}
