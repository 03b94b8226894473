"""The first request of each model, made from its configuration."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server.models import ModelText, write_repository
from tritonkit.serve.repository import read_models
from tritonkit.serve.warm import NoSample, warm_request

TEXT = 'input { name: "text" data_type: TYPE_STRING dims: [1] }'
PIXELS = 'input { name: "pixels" data_type: TYPE_FP16 dims: [-1, 3] }'


class WarmTensor(NamedTuple):
    """An input of a request; `shape` has the batch axis."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: bytes


def warmup(name: str, value: str) -> str:
    """A model_warmup of one input."""
    return f'model_warmup {{ name: "w" inputs {{ key: "{name}" value {{ {value} }} }} }}'


def tensors(folder: Path, name: str, **models: ModelText) -> tuple[WarmTensor, ...]:
    """The inputs of a model's first request."""
    write_repository(folder, models)
    read = {model.name: model for model in read_models(folder)}
    request = warm_request(read[name], read, 1).request
    return tuple(
        WarmTensor(entry.name, entry.datatype, tuple(entry.shape), raw)
        for entry, raw in zip(request.inputs, request.raw_input_contents, strict=True)
    )


def test_without_a_sample_zeros_do(tmp_path: Path) -> None:
    """Open axes are 1, and the batch axis is there where the model batches."""
    batching = ModelText("max_batch_size: 4 " + PIXELS, None)
    single = ModelText(PIXELS, None)
    assert tensors(tmp_path / "a", "net", net=batching) == (WarmTensor("pixels", "FP16", (1, 1, 3), bytes(6)),)
    assert tensors(tmp_path / "b", "net", net=single) == (WarmTensor("pixels", "FP16", (1, 3), bytes(6)),)


@pytest.mark.parametrize("how", ["zero_data: true", "random_data: true"])
def test_the_sample_gives_the_shape(tmp_path: Path, how: str) -> None:
    """Random values are sent as zeros of the same size."""
    text = PIXELS + warmup("pixels", f"data_type: TYPE_FP16 dims: [5, 3] {how}")
    (tensor,) = tensors(tmp_path, "net", net=ModelText(text, None))
    assert (tensor.shape, tensor.raw) == ((5, 3), bytes(30))


def test_a_file_is_sent_as_it_is(tmp_path: Path) -> None:
    """BYTES in the sample already have their lengths."""
    value = struct.pack("<I", 2) + b"hi"
    text = "max_batch_size: 4 " + TEXT
    text += warmup("text", 'data_type: TYPE_STRING dims: [1] input_data_file: "sample"')
    model = ModelText(text, None, {"warmup/sample": value})
    assert tensors(tmp_path, "net", net=model) == (WarmTensor("text", "BYTES", (1, 1), value),)


def test_zeros_of_text_are_empty_texts(tmp_path: Path) -> None:
    """Each has a length of nought."""
    text = TEXT + warmup("text", "data_type: TYPE_STRING dims: [2] zero_data: true")
    assert tensors(tmp_path, "net", net=ModelText(text, None)) == (WarmTensor("text", "BYTES", (2,), bytes(8)),)


def test_text_cannot_be_guessed(tmp_path: Path) -> None:
    """A BYTES input without a sample: the model is not asked."""
    with pytest.raises(NoSample, match="'text'"):
        tensors(tmp_path, "net", net=ModelText(TEXT, None))


def test_an_optional_input_is_left_out(tmp_path: Path) -> None:
    """An optional input without a sample is left out."""
    text = PIXELS + TEXT.replace("name", "optional: true name")
    assert [t.name for t in tensors(tmp_path, "net", net=ModelText(text, None))] == ["pixels"]


def test_an_ensemble_sends_what_its_first_step_takes(tmp_path: Path) -> None:
    """The sample is found through the step's own name for the tensor, also two ensembles deep."""
    value = struct.pack("<I", 2) + b"hi"

    def calls(model: str, theirs: str, ours: str) -> ModelText:
        config = TEXT.replace("text", ours) + (
            f' platform: "ensemble" max_batch_size: 4 ensemble_scheduling {{ step {{ model_name:'
            f' "{model}" input_map {{ key: "{theirs}" value: "{ours}" }} }} }}'
        )
        return ModelText(config, None)

    sample = warmup("text", 'data_type: TYPE_STRING dims: [1] input_data_file: "sample"')
    sent = tensors(
        tmp_path,
        "outer",
        part=ModelText("max_batch_size: 4 " + TEXT + sample, None, {"warmup/sample": value}),
        inner=calls("part", "text", "words"),
        outer=calls("inner", "words", "question"),
    )
    assert sent == (WarmTensor("question", "BYTES", (1, 1), value),)


def test_a_sequence_begins_and_ends_with_its_request(tmp_path: Path) -> None:
    """Otherwise its slot would stay taken until it times out."""
    write_repository(tmp_path, {"net": ModelText(PIXELS + "sequence_batching { }", None)})
    models = {model.name: model for model in read_models(tmp_path)}
    request = warm_request(models["net"], models, 7).request
    assert request.parameters["sequence_id"].int64_param == 7
    assert request.parameters["sequence_start"].bool_param
    assert request.parameters["sequence_end"].bool_param
    assert request.raw_input_contents[0] == bytes(6)


def test_python_is_sent_nothing_made_up(tmp_path: Path) -> None:
    """A Python model without a model_warmup, and an ensemble that would pass such data on to it; one of onnxruntime is,
    and may refuse it."""
    own = ModelText('backend: "python" ' + PIXELS)
    over = ModelText(
        'platform: "ensemble" ' + PIXELS + 'ensemble_scheduling { step { model_name: "own"'
        ' input_map { key: "pixels" value: "pixels" } } }',
        None,
    )
    for name in ("own", "over"):
        with pytest.raises(NoSample, match="own is a Python model without model_warmup"):
            tensors(tmp_path / name, name, own=own, over=over)
    write_repository(tmp_path, {"net": ModelText('backend: "onnxruntime" ' + PIXELS, None)})
    models = {model.name: model for model in read_models(tmp_path, ["net"])}
    assert warm_request(models["net"], models, 1).made_up


def test_off_is_off_for_the_first_request(tmp_path: Path) -> None:
    """The parameter that `model_warmup: off` becomes, of a model and of a part."""
    off = ModelText(PIXELS + 'parameters { key: "tritonkit.warmup" value { string_value: "off" } }')
    over = ModelText(
        'platform: "ensemble" ' + PIXELS + 'ensemble_scheduling { step { model_name: "net"'
        ' input_map { key: "pixels" value: "pixels" } } }',
        None,
    )
    for name in ("net", "over"):
        with pytest.raises(NoSample, match="model_warmup is off"):
            tensors(tmp_path / name, name, net=off, over=over)
