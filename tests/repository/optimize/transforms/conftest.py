"""A job for a small network, with no cache behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.weights import WeightCache

MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(write_model: WriteModel, tmp_path: Path) -> MakeJob:
    """A job from model.yaml and the folder's files; what it says is in `said`."""

    def make(text: str, lines: list[str] | None = None, **files: str) -> Job:
        def no_artifact() -> Artifact:
            raise AssertionError("nothing is exported here")

        spec = write_model(text, **files)
        say = (lambda _: None) if lines is None else lines.append
        return Job(spec, WeightCache(tmp_path, spec), no_artifact, say=say)

    return make
