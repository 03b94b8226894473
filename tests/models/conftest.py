"""The Python files of the shipped models' folders as modules."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

MODELS = Path(__file__).resolve().parents[2] / "models"


@cache
def folder_module(model: str, name: str) -> ModuleType:
    """A module of a model's folder, whose files import each other by name; loaded once."""
    own = {file.stem for file in (MODELS / model).glob("*.py")}
    for stem in own:  # two models may both have a data.py
        sys.modules.pop(stem, None)
    sys.path.insert(0, str(MODELS / model))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(MODELS / model))
        for stem in own:
            sys.modules.pop(stem, None)


@pytest.fixture(scope="module")
def data(request: pytest.FixtureRequest) -> ModuleType:
    """data.py of the model that the test file is named after."""
    return folder_module(request.module.__name__.rpartition("test_")[2], "data")
