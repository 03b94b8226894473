"""Golden texts for tritonkit's server on a GPU and for NVIDIA's image, compared byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository.render.cases import GPU, GPU_FEATURES, GPU_TARGETS, gpu_texts, read_gpu_cases
from tritonkit.repository.render.message import merged_message, parse_text


@pytest.mark.parametrize("feature", GPU_FEATURES)
def test_renders_the_golden_text_of_both_targets(feature: str, tmp_path: Path) -> None:
    """A spec of gpu/specs/ renders to its files in gpu/golden/, byte for byte."""
    for path, text in gpu_texts(feature, tmp_path).items():
        assert text == path.read_text(encoding="utf-8"), f"{path.name}: see tests/repository/render/cases.py"


@pytest.mark.parametrize("feature", GPU_FEATURES)
def test_tritons_parser_reads_the_plan_from_a_golden_text(feature: str, tmp_path: Path) -> None:
    """The message of each golden text is that of its plan."""
    for target, case in read_gpu_cases(feature, tmp_path).items():
        for plan, path in zip(case.plans(), case.texts(), strict=True):
            text = (GPU / "golden" / target / path.name).read_text(encoding="utf-8")
            assert parse_text(text, path.name) == merged_message(plan)


def test_no_golden_file_is_left_over(tmp_path: Path) -> None:
    """Each file of gpu/golden/ belongs to a case of gpu/specs/."""
    made = {path for name in GPU_FEATURES for path in gpu_texts(name, tmp_path / name)}
    assert {path for target in GPU_TARGETS for path in (GPU / "golden" / target).iterdir()} == made
