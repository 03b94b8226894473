"""Triton's parser reads from a text exactly what the plan asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.repository.render.cases import FEATURES, read_case
from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.serving import DynamicBatching
from tritonkit.repository.render import ModelPlan, config, render_config
from tritonkit.repository.render.layout import write
from tritonkit.repository.render.message import merged_message, parse_text

PLAN = ModelPlan(name="net", backend="python", max_batch_size=8, inputs=(), outputs=())


def parse(text: str) -> Any:
    """The message of a text."""
    return parse_text(text, "config.pbtxt")


@pytest.mark.parametrize("feature", FEATURES)
def test_a_golden_text_says_what_the_plan_asks_for(feature: str, tmp_path: Path) -> None:
    """Each golden text is read as the message of its plan: no field is missing, and none is added."""
    case = read_case(feature, tmp_path)
    for plan, text in zip(case.plans(), case.texts().values(), strict=True):
        assert parse(text) == merged_message(plan)


def test_a_text_that_says_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that leaves a field out ends the build with the file and the text."""

    def without_backend(message: Any) -> str:
        return "".join(line for line in write(message).splitlines(keepends=True) if not line.startswith("backend"))

    monkeypatch.setattr(config, "write", without_backend)
    with pytest.raises(RenderError) as error:
        render_config(PLAN, source="m", target="cpu", cores=2)
    assert error.value.where == "net/config.pbtxt"
    assert 'name: "net"\nmax_batch_size: 8' in error.value.found


def test_a_decision_for_zero_is_written() -> None:
    """`max_batch_size: 0` and a delay of 0 stand in the text, although 0 is protobuf's default."""
    plan = replace(PLAN, max_batch_size=0, dynamic_batching=DynamicBatching())
    text = render_config(plan, source="m", target="cpu", cores=2)
    assert "\nmax_batch_size: 0\n" in text
    assert "\ndynamic_batching { max_queue_delay_microseconds: 0 }\n" in text


def test_a_part_has_one_line_where_it_fits() -> None:
    """Up to 100 characters, a part has one line; a longer one has a line for each field."""
    short, long = (parse(f'input {{ name: "{"x" * n}" dims: [ 1, 2 ] optional: true }}') for n in (54, 55))
    (line,) = [line for line in write(short).splitlines() if line.startswith("input")]
    assert len(line) == 100
    assert write(long).splitlines()[-5:] == [
        "input {",
        f'  name: "{"x" * 55}"',
        "  dims: [1, 2]",
        "  optional: true",
        "}",
    ]


def test_a_field_the_schema_does_not_know_is_refused() -> None:
    """A text with an unknown field cannot be read by Triton, and is refused with the line."""
    with pytest.raises(RenderError, match=r"3:1.*max_batch"):
        parse('name: "net"\nbackend: "python"\nmax_batch: 8\n')


def test_header_names_source_target_and_cores() -> None:
    """The first line says where the text comes from and for which machine it was made."""
    text = render_config(PLAN, source="models/net/model.yaml", target="gpu", cores=12)
    assert text.splitlines()[0] == (
        "# Rendered by tritonkit from models/net/model.yaml (target gpu, cores 12)."
        " Do not edit: change the spec and run tools/build_repo.py."
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_string_survives_the_round_trip(value: str) -> None:
    """Triton's parser reads every string back from the text."""
    message = merged_message(PLAN)
    message.name = value
    assert parse(write(message)) == message


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text()))
def test_any_parameters_render(parameters: dict[str, str]) -> None:
    """Parameters of any text pass the renderer's own check."""
    clean = {k: v.encode(errors="ignore").decode() for k, v in parameters.items()}
    render_config(replace(PLAN, parameters=clean), source="m", target="cpu", cores=1)
