"""Packages made for tests: wheels and source distributions in a folder that stands for an index."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["package_index", "write_sdist", "write_wheel"]


@pytest.fixture
def package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the only index that uv has, and an empty cache of uv's."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("UV_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return folder


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """A wheel; without files it has one module, whose VERSION is the wheel's."""
    info = f"{name}-{version}.dist-info"
    metadata = "".join(f"Requires-Dist: {needed}\n" for needed in requires)
    content = {
        **(files if files is not None else {f"{name}.py": f'VERSION = "{version}"\n'}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
    return file


def write_sdist(folder: Path, name: str, version: str) -> Path:
    """A source distribution, which an installer would have to run."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}.tar.gz"
    texts = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "setup.py": "raise SystemExit('it was run')\n",
    }
    with tarfile.open(file, "w:gz") as packed:
        for path, text in texts.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    return file
