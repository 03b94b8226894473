"""Models that keep state between the requests of a sequence take neither a gradual release nor tuning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tritonkit.errors import UsageError
from tritonkit.operate.release.candidate import build_candidate
from tritonkit.perf.tune.candidates import refuse

MODEL = """
name: net
network: {onnx: model.onnx}
"""
BY_STEP = "pipeline: [{step: frames, outputs: {frames: input}}, network]"
BY_NETWORK = "serving: {sequence_batching: {}}"


@pytest.mark.parametrize(
    ("kept", "where"), [(BY_STEP, "pipeline"), (BY_NETWORK, "serving.sequence_batching")], ids=["step", "network"]
)
def test_a_model_that_keeps_sequences_is_refused(kept: str, where: str, write_model: WriteModel, root: Path) -> None:
    """Calls of a sequence need the server that has its state; nothing is built before that is said."""
    spec = write_model(MODEL + kept, model__onnx=b"")
    with pytest.raises(UsageError, match="sequences keep their instance"):
        refuse(spec)
    repository = root / "model_repository"
    with pytest.raises(UsageError) as caught:
        build_candidate(root, "net", repository, repository, root / "candidate")
    assert caught.value.where == f"{spec.file} {where}"
    assert caught.value.found == "a model that keeps state between requests"
