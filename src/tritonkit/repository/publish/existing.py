"""The models already in a repository and their origin: tritonkit writes a header into each config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from pathlib import Path

from tritonkit.errors import PublishError
from tritonkit.repository.publish.configurations import HEADER
from tritonkit.repository.publish.integrity import CONFIG, open_file, read_manifest, versions

__all__ = ["left_over", "made_from", "published_configs", "recorded_cores", "refuse_foreign"]


def made_from(out: Path, spec: str) -> list[str]:
    """The models that were rendered from a spec, without those of other specs in its pipeline."""
    return [folder.name for folder, header in _headers(out) if _spec(header) == spec]


def published_configs(out: Path) -> Iterator[tuple[str, str, str]]:
    """The models that tritonkit rendered: name, spec, and the text of config.pbtxt."""
    for folder, header in _headers(out):
        yield folder.name, _spec(header), header.string


def recorded_cores(out: Path, spec: str) -> int | None:
    """The cores for which a spec's tracked configuration was rendered."""
    cores = (int(header["cores"]) for _, header in _headers(out) if _spec(header) == spec)
    return next(cores, None)


def refuse_foreign(folder: Path, spec: str, all_specs: bool) -> None:
    """PublishError for a folder in the way that this spec did not make."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    header = _header(folder)
    published = any(read_manifest(folder / str(number)) for number in versions(folder))
    if header is None and (not published or (folder / CONFIG).exists()):
        owner = "tritonkit did not write it"
    elif header and _spec(header) != spec and not all_specs:
        owner = f"it belongs to models/{_spec(header)}"
    else:
        return
    raise PublishError(
        str(folder),
        found=owner,
        wanted=f"room for the model {folder.name!r} of models/{spec}",
        todo="rename one of the two models, move the folder away, or name another --out",
    )


def left_over(
    out: Path, planned: Set[str], specs: Set[str], all_specs: bool, keep: Set[str] = frozenset()
) -> list[str]:
    """Folders that tritonkit rendered for these specs earlier and that no plan contains now.

    With `all_specs`, also folders of specs that no longer exist; those of the specs `keep` stay.
    """
    return [
        folder.name
        for folder, header in _headers(out)
        if folder.name not in planned
        and keep.isdisjoint((header["folder"], _spec(header)))
        and (all_specs or not specs.isdisjoint((header["folder"], _spec(header))))
    ]


def _spec(header: re.Match[str]) -> str:
    """The spec of a model: that of the folder, or one in its pipeline."""
    return header["entry"] or header["folder"]


def _headers(out: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    """The folders of models that tritonkit rendered, in the order of their names, and what their headers say."""
    for path in sorted(out.glob(f"*/{CONFIG}")):
        header = _header(path.parent)
        if header is not None:
            yield path.parent, header


def _header(folder: Path) -> re.Match[str] | None:
    """The origin in the header of a config.pbtxt; None without a header."""
    try:
        with open_file(folder / CONFIG) as file:
            return HEADER.match(file.read().decode("utf-8", "replace"))
    except OSError:
        return None
