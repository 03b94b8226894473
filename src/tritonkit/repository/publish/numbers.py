"""Version numbers that candidates had and that no later version may reuse.

Clients and Triton cache answers by model and version. If a rejected candidate's number were reused, callers would get
the candidate's cached answers.
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
"""The folder of releases below a project's folder, with one folder for each spec."""
_FILE = "numbers.json"


def used(root: Path, model: str) -> dict[str, int]:
    """The highest number that a candidate had, for each Triton model of a spec.

    Empty without candidates, and if the file cannot be read or is damaged.
    """
    try:
        numbers = json.loads((root / FOLDER / model / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(numbers, dict) and all(type(n) is int and n > 0 for n in numbers.values())
    return numbers if whole else {}


def used_by_all(root: Path) -> dict[str, int]:
    """The numbers of `used` for every spec of a project."""
    places = sorted((root / FOLDER).glob("*"))
    return {name: number for place in places for name, number in used(root, place.name).items()}


def remember(root: Path, model: str, numbers: Mapping[str, int]) -> None:
    """Record a candidate's numbers; the higher number of each model stays.

    Args:
        model: the spec's name.
        numbers: Triton model -> version.

    Raises:
        UsageError: the file cannot be written; the recorded numbers are as they were.
    """
    file, recorded = root / FOLDER / model / _FILE, used(root, model)
    highest = recorded | {name: max(n, recorded.get(name, 0)) for name, n in numbers.items()}
    if highest == recorded:
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, json.dumps(highest, indent=1).encode())
        file.chmod(0o600)
    except OSError as error:
        raise unwritable(file, error, UsageError) from error


def newest(repository: Path, model: str) -> dict[str, int]:
    """The newest version of each Triton model that was made from a spec."""
    by_model = {name: versions(repository / name) for name in made_from(repository, model)}
    return {name: numbers[-1] for name, numbers in by_model.items() if numbers}
