"""The round trip: a text that says anything else than the plan is refused, whatever differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tests.repository.render.cases import FEATURES, read_case
from tritonkit.errors import RenderError
from tritonkit.repository.render import ModelPlan, check_text, render_config
from tritonkit.repository.render.compare import first_difference
from tritonkit.repository.render.config import quote

PLAN = ModelPlan(name="net", backend="python", max_batch_size=8, inputs=(), outputs=())


def parse(text: str) -> Any:
    """The message of a text."""
    return text_format.Parse(text, ModelConfig())


def is_repeated(field: Any) -> bool:
    """Whether a field holds a list or a map."""
    return bool(field.is_repeated)


def alter(message: Any) -> Iterator[str]:
    """Change one place of a message at a time, yielding its path, and restore it after each."""
    for field, value in list(message.ListFields()):
        backup = type(message)()
        backup.CopyFrom(message)
        message.ClearField(field.name)
        yield field.name
        message.CopyFrom(backup)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is None or is_map:
            continue
        for inner in getattr(message, field.name) if is_repeated(field) else [value]:
            for path in alter(inner if is_repeated(field) else getattr(message, field.name)):
                yield f"{field.name}.{path}"


@pytest.mark.parametrize("feature", FEATURES)
def test_every_field_left_out_is_noticed(feature: str, tmp_path: Path) -> None:
    """Each field of each golden text, at every depth, taken out of it, is a named difference."""
    for text in read_case(feature, tmp_path).texts().values():
        asked, said = parse(text), parse(text)
        for path in alter(said):
            difference = first_difference(said, asked)
            assert difference is not None
            assert difference.startswith(path.split(".")[0])
        assert first_difference(said, asked) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max_batch_size: 16", "max_batch_size: text says 16, the spec asks for 8"),
        ('platform: "ensemble"', "platform: text says 'ensemble', the spec asks for ''"),
        ("dynamic_batching { }", "dynamic_batching: text says {  }, the spec asks for nothing"),
        ('parameters { key: "a" value { } }', "parameters['a']: text says {  }, the spec asks"),
        ("instance_group { }", "instance_group: text says 1 of them, the spec asks for 0"),
        ("version_policy { latest { num_versions: 3 } }", "num_versions: text says 3"),
        ("optimization { priority: PRIORITY_MAX }", "optimization: text says { priority"),
        ('default_model_filename: "x"', "default_model_filename: text says 'x'"),
    ],
)
def test_says_what_the_text_says_and_what_was_asked(line: str, words: str) -> None:
    """A line too many in the text is refused with the field, what it says and what was asked."""
    text = render_config(PLAN, source="models/net/model.yaml", target="cpu", cores=2)
    kept = [old for old in text.splitlines() if old.split(":")[0] != line.split(":")[0]]
    if line.startswith("version_policy"):
        kept = [old for old in kept if old[:1] not in "v }"]
    with pytest.raises(RenderError) as error:
        check_text("\n".join([*kept, line]), PLAN)
    assert words in error.value.found


def test_names_the_first_differing_value() -> None:
    """Two values of one nested field are distinguished with its full path."""
    texts = [f"dynamic_batching {{ max_queue_delay_microseconds: {us} }}" for us in (500, 2000)]
    assert first_difference(*map(parse, texts)) == (
        "dynamic_batching.max_queue_delay_microseconds: text says 500, the spec asks for 2000"
    )


def test_enums_are_named() -> None:
    """A differing enum is shown by its name in Triton's schema."""
    texts = [f"input {{ data_type: TYPE_{name} }}" for name in ("FP32", "FP16")]
    assert first_difference(*map(parse, texts)) == (
        "input[0].data_type: text says TYPE_FP32, the spec asks for TYPE_FP16"
    )


def test_a_field_the_schema_does_not_know_is_refused() -> None:
    """A text with an unknown field cannot be read by Triton, and is refused with the line."""
    with pytest.raises(RenderError, match=r"3:1.*max_batch"):
        check_text('name: "net"\nbackend: "python"\nmax_batch: 8\n', PLAN)


def test_header_names_source_target_and_cores() -> None:
    """The first line says where the text comes from and for which machine it was made."""
    text = render_config(PLAN, source="models/net/model.yaml", target="gpu", cores=12)
    assert text.splitlines()[0] == (
        "# Rendered by tritonkit from models/net/model.yaml (target gpu, cores 12)."
        " Do not edit: change the spec and run tools/build_repo.py."
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_string_survives_the_round_trip(value: str) -> None:
    """Whatever a parameter holds, Triton's parser reads the same string back."""
    assert parse(f"name: {quote(value)}").name == value


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text()))
def test_any_parameters_render(parameters: dict[str, str]) -> None:
    """Parameters of any text pass the renderer's own check."""
    clean = {k: v.encode(errors="ignore").decode() for k, v in parameters.items()}
    render_config(replace(PLAN, parameters=clean), source="m", target="cpu", cores=1)
