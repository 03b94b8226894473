"""Golden texts, one or more per feature, compared byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tests.repository.render.cases import FEATURES, GOLDEN, read_case


@pytest.mark.parametrize("feature", FEATURES)
def test_renders_the_golden_text(feature: str, tmp_path: Path) -> None:
    """A spec of specs/ renders to its files in golden/, byte for byte."""
    for path, text in read_case(feature, tmp_path).all_texts().items():
        assert text == path.read_text(encoding="utf-8"), f"{path.name}: see tests/repository/render/cases.py"


def test_no_golden_file_is_left_over(tmp_path: Path) -> None:
    """Each file of golden/ belongs to a case of specs/."""
    made = {path for name in FEATURES for path in read_case(name, tmp_path / name).all_texts()}
    assert set(GOLDEN.iterdir()) == made


def test_goldens_cover_every_field_the_template_writes() -> None:
    """Together the golden texts set every top-level field that a spec can ask for."""
    fields = set()
    for path in GOLDEN.glob("*.pbtxt"):
        config = text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
        fields |= {field.name for field, _ in config.ListFields()}
    assert fields == {
        "name",
        "backend",
        "platform",
        "max_batch_size",
        "input",
        "output",
        "version_policy",
        "instance_group",
        "dynamic_batching",
        "sequence_batching",
        "ensemble_scheduling",
        "optimization",
        "model_warmup",
        "response_cache",
        "model_transaction_policy",
        "parameters",
        "batch_input",
        "batch_output",
        "default_model_filename",
        "cc_model_filenames",
        "metric_tags",
        "model_metrics",
        "model_operations",
        "model_repository_agents",
    }
