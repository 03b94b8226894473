"""Everything that Triton's configuration can say, by keys of the spec or by its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from tests.repository.render.cases import GOLDEN, make_case, read_case
from tritonkit.client.wire.protos import schema
from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.fields import BatchInput, InputFields, ModelMetric
from tritonkit.repository.modelspec.sequences import SequenceBatching
from tritonkit.repository.modelspec.serving import DynamicBatching
from tritonkit.repository.render import ModelPlan, render_config
from tritonkit.repository.render.layout import is_map, is_repeated, write
from tritonkit.repository.render.merge import FIRST_RELEASES
from tritonkit.repository.render.message import merged_message, parse_text
from tritonkit.repository.render.values import EnsembleStep, TensorPlan

NEWEST = (99, 12)
X, Y = TensorPlan("x", "FP32", (4,)), TensorPlan("y", "FP32", (4,))
BARE = ModelPlan("net", "python", 8, (X,), (Y,), section="model.yaml serving")


def kind_of(field: Any) -> Any:
    """The message of a field, of a map's values; None for a plain value."""
    if is_map(field):
        return field.message_type.fields_by_name["value"].message_type
    return field.message_type


def paths(message: Any) -> Iterator[tuple[Any, ...]]:
    """Every field of a message, with those that lead to it."""
    for field in message.fields:
        yield (field,)
        if (kind := kind_of(field)) is not None:
            yield from ((field, *more) for more in paths(kind))


def said(message: Any, path: str = "") -> Iterator[str]:
    """The fields that a message sets, as paths."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}".strip(".")
        yield here
        several = value.values() if is_map(field) else value if is_repeated(field) else [value]
        for one in several:
            if hasattr(one, "DESCRIPTOR"):
                yield from said(one, here)


def text_of(path: tuple[Any, ...], names: dict[str, str]) -> str:
    """A text that sets one field to something that is not its default."""
    field, *more = path
    if more:
        inner = text_of(tuple(more), names)
    elif kind_of(field) is not None:
        inner = ""
    if is_map(field):
        key = {"INT": "1"}.get("INT" if field.message_type.fields[0].cpp_type < 7 else "", '"key"')
        value = f"{{ {inner} }}" if kind_of(field) is not None else '"value"'
        return f"{field.name} {{ key: {key} value: {value} }}"
    if kind_of(field) is not None:
        tensor = names.get(field.name, "")
        return f"{field.name} {{ {'' if inner.startswith('name:') else tensor} {inner} }}"
    if field.enum_type is not None:
        return f"{field.name}: {field.enum_type.values[-1].name}"
    if field.cpp_type == field.CPPTYPE_STRING:
        return f'{field.name}: "value"'
    if field.cpp_type == field.CPPTYPE_BOOL:
        return f"{field.name}: true"
    return f"{field.name}: 1"


def test_every_field_of_the_schema_can_be_said() -> None:
    """Every field can be set, by the spec's keys as a golden configuration shows, or by `config`."""
    by_keys = set()
    for file in GOLDEN.glob("*.pbtxt"):
        by_keys |= set(said(parse_text(file.read_text(encoding="utf-8"), file.name)))
    by_text = set()
    for path in paths(schema().ModelConfig.DESCRIPTOR):
        name = ".".join(field.name for field in path)
        kind = path[-1].enum_type
        # An enum with a single value cannot be set, and Triton keeps a step's namespace for itself.
        if name in by_keys or (kind is not None and len(kind.values) == 1) or name == RESERVED:
            continue
        text = text_of(path, {"input": 'name: "x"', "output": 'name: "y"'})
        plan = replace(
            BARE,
            config=text,
            triton=NEWEST,
            dynamic_batching=DynamicBatching() if name.startswith("dynamic") else None,
            sequence_batching=SequenceBatching() if name.startswith("sequence") else None,
        )
        message = merged_message(plan)
        assert name in set(said(message)), text
        assert parse_text(write(message), name) == message
        by_text.add(name)
    assert "runtime" in by_text  # the rest has keys, and no golden configuration that sets it


RESERVED = "ensemble_scheduling.step.model_namespace"


def test_the_first_release_of_each_field_is_known() -> None:
    """A field that a newer tritonclient brings is entered in FIRST_RELEASES, and this number stays the same."""
    messages: dict[str, Any] = {}

    def walk(message: Any) -> None:
        if message.full_name not in messages:
            messages[message.full_name] = message
            for field in message.fields:
                if (kind := kind_of(field)) is not None:
                    walk(kind)

    walk(schema().ModelConfig.DESCRIPTOR)
    fields = {
        f"{message.full_name.partition('.')[2]}.{field.name}"
        for message in messages.values()
        for field in message.fields
        if not message.GetOptions().map_entry
    }
    new = {name for name in fields if name in FIRST_RELEASES or name.startswith("ModelMetrics.")}
    assert set(FIRST_RELEASES) <= fields
    assert len(fields - new) == 149


@pytest.mark.parametrize(
    ("changed", "field", "release"),
    [
        ({"model_metrics": (ModelMetric(family="f", buckets=(1, 2)),)}, "model_metrics", "24.11"),
        (
            {"config": "ensemble_scheduling { max_inflight_requests: 3 }", "backend": None},
            "max_inflight_requests",
            "25.11",
        ),
        ({"config": "model_metrics { }"}, "model_metrics", "24.11"),
    ],
)
def test_a_field_that_the_server_lacks_is_refused(changed: dict[str, Any], field: str, release: str) -> None:
    """The refusal names the first release that has the field; for that release it is rendered."""
    steps = (EnsembleStep("part", {"x": "x"}, {"y": "y"}),) if "backend" in changed else ()
    case = replace(BARE, steps=steps, **changed)
    with pytest.raises(RenderError) as refused:
        render_config(case, source="m", target="cpu", cores=1)
    assert refused.value.found == f"{field}, which Triton has from {release} on"
    assert f'triton: "{release}"' in refused.value.todo
    year, _, month = release.partition(".")
    newer = replace(case, triton=(int(year), int(month)))
    assert field in render_config(newer, source="m", target="cpu", cores=1)


@pytest.mark.parametrize(
    ("feature", "field", "parameter"), [("ensemble_in_flight", 0, "4"), ("ensemble_fields", 4, None)]
)
def test_a_bound_on_an_ensemble_is_a_parameter_where_triton_has_no_field(
    tmp_path: Path, feature: str, field: int, parameter: str | None
) -> None:
    """The parameter stands in for the field before 25.11; a note names the servers that enforce it."""
    plan = read_case(feature, tmp_path).plans()[-1]
    assert plan.max_inflight_requests == field
    assert plan.parameters.get("tritonkit.max_inflight_requests") == parameter
    noted = any("max_inflight_requests: 4 is enforced by tritonkit's guard" in n for n in plan.notes)
    assert noted == (parameter is not None)


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("max_batch: 4", "line 1", 'no field named "max_batch"'),
        ('\nname: "net"\nbackend: python', "line 3", "Expected string"),
        ('name: "other"', "", "name: other"),
        ('backend: "onnxruntime"', "", "backend: onnxruntime"),
        ("max_batch_size: 4", "", "max_batch_size: 4"),
        ('platform: "ensemble"', "", "platform: ensemble"),
        ("version_policy { all { } }", "", "version_policy"),
        ("model_transaction_policy { decoupled: true }", "", "model_transaction_policy"),
        ("sequence_batching { }", "", "sequence_batching"),
        ('ensemble_scheduling { step { model_name: "a" } }', "", "ensemble_scheduling"),
        ("dynamic_batching { max_queue_delay_microseconds: 3 }", "", "max_queue_delay_microseconds: 3"),
        ('input { name: "x" dims: [ 9 ] }', "", "input 'x' dims: [9]"),
        ('input { name: "x" data_type: TYPE_INT8 }', "", "input 'x' data_type: TYPE_INT8"),
        ('input { name: "z" }', "", "input 'z'"),
        ('output { name: "y" label_filename: "no.txt" }', "", "label_filename: no.txt"),
        ('default_model_filename: "no.onnx"', "", "default_model_filename: no.onnx"),
        ('parameters { key: "p" value { string_value: "2" } }', "", "parameters['p']"),
        ('model_warmup { name: "w" inputs { key: "x" value { input_data_file: "no" } } }', "", "model_warmup 'w': no"),
    ],
)
def test_text_that_contradicts_is_refused(text: str, where: str, found: str) -> None:
    """The error has the line of an invalid text, or the field that contradicts the plan."""
    plan = replace(BARE, config=text, parameters={"p": "1"}, dynamic_batching=DynamicBatching(max_queue_delay="2us"))
    with pytest.raises(RenderError) as refused:
        render_config(plan, source="m", target="cpu", cores=1)
    assert refused.value.where.startswith("model.yaml serving.config")
    assert where in refused.value.where
    assert found in refused.value.found


def test_text_is_merged_last() -> None:
    """Values are added, lists grow, tensors are found by name; repeating a value is not a contradiction."""
    plan = replace(
        BARE,
        dynamic_batching=DynamicBatching(preferred_batch_size=(4,)),
        parameters={"p": "1"},
        config="""# as the spec has it
            name: "net" max_batch_size: 8
            input { name: "x" reshape { shape: [ 2, 2 ] } }
            dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 5 }
            parameters { key: "p" value { string_value: "1" } }
            parameters { key: "q" value { string_value: "2" } }
            runtime: "libown.so"
        """,
    )
    text = render_config(plan, source="m", target="cpu", cores=1)
    assert text.startswith("# Rendered by tritonkit from m (target cpu, cores 1).")
    config = text_format.Parse(text, schema().ModelConfig())
    assert (config.name, config.runtime) == ("net", "libown.so")
    assert list(config.input[0].reshape.shape) == [2, 2]
    assert len(config.input) == len(BARE.inputs)
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 5
    assert {key: value.string_value for key, value in config.parameters.items()} == {"p": "1", "q": "2"}


def spec_case(tmp_path: Path, serving: dict[str, Any], **more: Any) -> Any:
    """A network of two inputs with this `serving`."""
    facts = {
        "model": {"name": "net", "network": {"onnx": "model.onnx"}, "serving": serving} | more,
        "signature": {"inputs": {"x": ["FP32", [4]], "ends": ["INT32", [1]]}, "outputs": {"y": ["FP32", [4]]}},
    }
    return make_case("net", facts, tmp_path)


@pytest.mark.parametrize(
    ("serving", "where", "wanted"),
    [
        ({"input": {"z": {}}}, "serving.input.z", "one of"),
        ({"output": {"x": {}}}, "serving.output.x", "one of y"),
        ({"input": {"x": {"format": "nchw"}}}, "serving.input.x.format", "three axes"),
        ({"input": {"x": {"is_shape_tensor": True}}}, "input.x.is_shape_tensor", "tensorrt"),
        ({"output": {"y": {"is_non_linear_format_io": True}}}, "output.y.is_non_linear", "three axes"),
        ({"input": {"x": {"allow_ragged_batch": True}}}, "serving.input.x", "only NVIDIA's"),
        (
            {"batch_input": [{"kind": "element_count", "target_name": ["ends"], "source_input": ["x"]}]},
            "serving.batch_input",
            "only NVIDIA's",
        ),
        ({"default_model_filename": "no.onnx"}, "default_model_filename", "one of model.onnx"),
        ({"cc_model_filenames": {"8.6": "no.plan"}}, "cc_model_filenames.8.6", "one of model.onnx"),
    ],
)
def test_what_a_server_would_refuse_is_refused_at_build(
    tmp_path: Path, serving: dict[str, Any], where: str, wanted: str
) -> None:
    """The refusal uses words of the spec."""
    with pytest.raises(RenderError) as refused:
        spec_case(tmp_path, serving).plans()
    assert where in refused.value.where
    assert wanted in refused.value.wanted


def test_a_step_has_fields_of_its_own(tmp_path: Path) -> None:
    """A step has the fields of its own `serving`, text and labels among them, and the ensemble has its own."""
    serving = {
        "metric_tags": {"part": "decoder"},
        "output": {"pixels": {"label_filename": "labels.txt"}},
        "config": 'parameters { key: "more" value { string_value: "yes" } }',
    }
    step = {"step": "decode", "parameters": {"size": 4}, "serving": serving}
    facts = {
        "model": {
            "name": "net",
            "network": {"onnx": "model.onnx"},
            "pipeline": [step, "network"],
            "ensemble": {"metric_tags": {"part": "all"}},
        },
        "signature": {"inputs": {"pixels": ["FP32", [4]]}, "outputs": {"y": ["FP32", [4]]}},
        "files": {"labels.txt": "a\n"},
    }
    case = make_case("net", facts, tmp_path)
    decode, network, ensemble = (parse_text(text, "text") for text in case.texts().values())
    assert dict(decode.metric_tags) == {"part": "decoder"}
    assert decode.output[0].label_filename == "labels.txt"
    assert decode.parameters["more"].string_value == "yes"
    assert "labels.txt" in case.plans()[0].model_files
    assert not network.metric_tags
    assert dict(ensemble.metric_tags) == {"part": "all"}


@pytest.mark.parametrize("file", ["config.pbtxt", "1/labels.txt", "warmup/x"])
def test_labels_replace_nothing_else(tmp_path: Path, file: str) -> None:
    """Each published file has one source."""
    facts = {"output": {"y": {"label_filename": file}}}
    with pytest.raises(RenderError, match="label_filename"):
        spec_case(tmp_path, facts).plans()


def test_a_model_for_a_newer_triton_is_noted(tmp_path: Path) -> None:
    """The note is about the model that clients call: the Triton of `tritonkit serve` is older."""
    (plan,) = spec_case(tmp_path, {}, triton="25.11").plans()
    assert any("built for Triton 25.11" in note for note in plan.notes)
    (plan,) = spec_case(tmp_path, {}).plans()
    assert not any("built for Triton" in note for note in plan.notes)


def test_an_input_that_the_backend_makes_is_not_sent(tmp_path: Path) -> None:
    """Targets of `batch_input` are not inputs of callers; on GPUs the backend is NVIDIA's."""
    serving = {"batch_input": [{"kind": "element_count", "target_name": ["ends"], "source_input": ["x"]}]}
    case = replace(spec_case(tmp_path, serving), target="nvidia")
    (plan,) = case.plans()
    assert [tensor.name for tensor in plan.inputs] == ["x"]
    assert plan.batch_input == (BatchInput(kind="element_count", target_name=("ends",), source_input=("x",)),)


def test_a_source_that_is_no_input_is_refused(tmp_path: Path) -> None:
    """The refusal matches Triton's own check of batch inputs."""
    serving = {"batch_input": [{"kind": "element_count", "target_name": ["ends"], "source_input": ["z"]}]}
    with pytest.raises(RenderError, match="z"):
        replace(spec_case(tmp_path, serving), target="nvidia").plans()


def test_input_fields_leave_the_tensor_alone(tmp_path: Path) -> None:
    """An empty section changes nothing of the text."""
    plain, named = (spec_case(tmp_path, s) for s in ({}, {"input": {"x": {}}, "output": {"y": {}}}))
    assert plain.texts() == named.texts()
    assert named.plans()[0].inputs[0].fields == InputFields()
