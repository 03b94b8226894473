"""The page about two models with conflicting requirements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.families.kitchen import Kitchen, Page
from bench.families.ready_made import NAMES
from tests.server.cookbook.conftest import Answer
from tritonkit.repository.environments.uv import find_uv, run_uv

PAIRS = [(one, other) for one in NAMES for other in NAMES]
SCORE = "import json, sys; from rapidfuzz import fuzz; print([fuzz.WRatio(*pair) for pair in json.load(sys.stdin)])"


def scores(folder: Path, requirement: str) -> list[float]:
    """The library's own scores, in a process of the tests' Python that has this version."""
    folder.mkdir()
    command = [find_uv("the test"), "pip", "install", "--target", ".", "--python", sys.executable, requirement]
    code, text = run_uv(command, folder, print)
    assert code == 0, text
    made = subprocess.run(
        [sys.executable, "-c", SCORE], cwd=folder, input=json.dumps(PAIRS), capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(made.stdout)
    return found


@pytest.mark.needs("uv", "index")
def test_two_versions_of_a_library(place: Kitchen, answers: Answer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each model scores as its version of the library does, for 16 callers at the same time; the versions differ."""
    place.cook(Page.read("two-versions"))
    items = [{"pair": [list(pair)]} for pair in PAIRS]
    folder = tmp_path_factory.mktemp("rapidfuzz")
    expected = {
        name: scores(folder / name, f"rapidfuzz{versions}") for name, versions in (("old", "<3"), ("new", ">=3"))
    }
    assert expected["old"] != expected["new"]
    for name, own in expected.items():
        served = [reply["score"].item() for reply in answers(place, name, items)]
        assert served == pytest.approx(own, abs=1e-4)
