"""The bundle of `make gpu` for a machine without a network: sources, models, wheels. Standard library only."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.gpu.archive import ArchiveError, split
from bench.gpu.places import BUNDLED, GPU_REQUIREMENTS, ROOT, Place, client_requirements
from bench.gpu.steps import StepError

__all__ = ["bundle", "size_of"]

_UNITS = {"kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
_LEFT_OUT = re.compile(r"docs/(?!gpu\.md)|\.ci/")
"""Sources that the machine with the GPU does not need; its tests stand on those of other folders."""
_CUDA = re.compile(r"nvidia_(?!pytriton)")
_MINUTES = 30.0


def size_of(text: str) -> int:
    """Bytes of a size such as `60MiB`.

    Raises:
        ValueError: it is not a size.
    """
    match = re.fullmatch(r"(\d+) ?(\w+)", text)
    if match is None or match[2] not in _UNITS or not int(match[1]):
        raise ValueError(f"{text!r} is not a size: give a number and a unit, such as 60MiB ({', '.join(_UNITS)})")
    return int(match[1]) * _UNITS[match[2]]


def bundle(place: Place, out: Path, size: int, pythons: Sequence[str], cuda: bool) -> list[Path]:
    """Build the models, fetch the wheels, and write all of it with the sources into archives.

    Args:
        place: the folder of models and wheels, which are kept there for the next bundle.
        out: the folder of the archives, which must be empty.
        size: the largest archive in bytes.
        pythons: versions of Python to bring wheels for.
        cuda: whether to bring CUDA's libraries, 1.3 GB; False where the other machine's PyTorch has them.
    """
    if out.exists() and any(out.iterdir()):
        raise ArchiveError(f"{out} is not empty; name a new folder")
    build(place, _MINUTES * 60)
    build(place, _MINUTES * 60, "--variants")
    (place.folder / BUNDLED).write_text("The models of this folder were built for a bundle.\n")
    wheels = place.wheels or place.folder / "wheels"
    if place.wheels is None:
        _fetch(place, wheels, pythons)
    models = f".tritonkit/gpu/{place.repository.parent.name}"
    try:
        place.run(300.0, place.client, "-m", "bench.perf_analyzer")
    except StepError:
        print("The bundle has no perf_analyzer: the other machine's load comes from tritonkit's own callers.")
    files = [*_sources(), *_below(place.repository, f"{models}/repository")]
    files.append((place.folder / BUNDLED, f"{models}/{BUNDLED}"))
    files += _below(ROOT / "python_backends" / "native" / "prebuilt", "python_backends/native/prebuilt")
    analyzer = _below(ROOT / ".tritonkit" / "bench" / "perf_analyzer", ".tritonkit/bench/perf_analyzer")
    files += [(file, name) for file, name in analyzer if not file.is_symlink()]  # CUDA's is the environment's
    files += [(file, name) for file, name in _below(wheels, "wheels") if cuda or not _CUDA.match(file.name)]
    return split(files, out, size)


def build(place: Place, limit: float, *words: str) -> None:
    """Build the models with the client's environment, which needs tritonkit's extra `onnx`."""
    small = ["--small", "--target", "cpu"] if place.rehearse else []
    place.run(limit, place.client, "-m", "bench.gpu.models", place.repository.parent, *small, *words)


def _sources() -> Iterator[tuple[Path, str]]:
    """The tracked files, and those that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        raise StepError(f"{ROOT} is not a clone, so its sources cannot be listed: {listing.stderr.strip()}")
    for name in sorted(filter(None, listing.stdout.split("\0"))):
        if not _LEFT_OUT.match(name) and (ROOT / name).is_file():
            yield ROOT / name, name


def _below(folder: Path, name: str) -> list[tuple[Path, str]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path, f"{name}/{path.relative_to(folder)}") for path in files]


def _fetch(place: Place, wheels: Path, pythons: Sequence[str]) -> None:
    """Download the wheels of both environments."""
    for version in pythons:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", wheels]
        words += ["--python-version", version, "--disable-pip-version-check", "--no-input"]
        place.run(_MINUTES * 60, *words, "-r", GPU_REQUIREMENTS.with_suffix(".lock"))
        place.run(_MINUTES * 60, *words, *client_requirements(builds=False))
