"""Fixtures for every room's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tritonkit.spec import Spec, load

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's folder."""
    return PROJECT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty project: models/, and the real python_backends/ behind a link."""
    (tmp_path / "models").mkdir()
    (tmp_path / "python_backends").symlink_to(PROJECT / "python_backends")
    return tmp_path


WriteModel = Callable[..., Spec]


@pytest.fixture
def write_model(root: Path) -> WriteModel:
    """Write models/NAME/model.yaml and other files, and load it."""

    def write(text: str, name: str = "net", **files: str | bytes) -> Spec:
        folder = root / "models" / name
        folder.mkdir(exist_ok=True)
        (folder / "model.yaml").write_text(text)
        for file, content in files.items():
            path = folder / file.replace("__", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load(folder, root)

    return write
