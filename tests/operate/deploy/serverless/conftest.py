"""Functions of AWS Lambda: their folders, and their processes under a Runtime API of this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.runtime_api import Function, function
from tests.conftest import PROJECT
from tritonkit.operate.deploy.serverless import bundle, write_bundle

# The messages' own modules, which need nothing of a function's folder.
sys.path.append(str(PROJECT / "deploy" / "lambda"))

Change = Callable[[Path], None]


@pytest.fixture(scope="session")
def digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The function of digits, packaged from the shipped model."""
    folder = tmp_path_factory.mktemp("lambda") / "digits"
    write_bundle(folder, bundle(PROJECT, "digits"))
    return folder


@pytest.fixture(scope="session")
def digits(digits_folder: Path) -> Iterator[Function]:
    """The same, started."""
    with function(digits_folder / "function") as running:
        yield running


@pytest.fixture
def example(digits_folder: Path) -> dict[str, Any]:
    """The example event in the folder."""
    event: dict[str, Any] = json.loads((digits_folder / "example.json").read_text())
    return event


@pytest.fixture
def copied(digits_folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder that becomes /var/task, to be spoilt."""
    return Path(shutil.copytree(digits_folder / "function", tmp_path / "task"))


def sealed(folder: Path) -> Path:
    """A function's folder after a change, with a manifest that agrees."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name != "manifest.json"]
    digests = {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    (folder / "manifest.json").write_text(json.dumps({"files": digests}))
    return folder
