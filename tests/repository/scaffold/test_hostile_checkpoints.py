"""Checkpoints of strangers: `tritonkit new --hf` bounds their sizes, quotes their texts and runs none of their code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.families.checkpoints import (
    image_checkpoint,
    sentence_files,
    sound_checkpoint,
    speech_checkpoint,
    text_checkpoint,
    tower_checkpoint,
    whisper_checkpoint,
)
from tests.repository.export.graphs import FLOAT, STRING, node, onnx_bytes
from tritonkit.errors import UsageError
from tritonkit.repository.modelspec import load
from tritonkit.repository.scaffold import new_from_hf, new_from_onnx

HOSTILE = (
    "a\nnetwork: {python: evil}",
    "a\r\nname: evil",
    "a\x85name: evil\u2028name: evil",
    "- a",
    "--- a",
    "# a",
    "'a' \"b\" `c`",
    '"""\nimport os',
    "{a: b}",
    "!!python/object:os.system a",
    "*a &b |",
    "yes",
    "1e3",
    "a\\nb",
)
"""Texts that would be something else in YAML or Python if they were not quoted."""
BILLION = 10**9


def edit(file: Path, **facts: Any) -> None:
    """Change keys of a JSON file."""
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | facts))


def refused(root: Path, folder: Path) -> str:
    """The message; nothing is written."""
    with pytest.raises(UsageError) as caught:
        new_from_hf(root, "m", folder)
    assert not list((root / "models").iterdir())
    return str(caught.value)


def plain(value: str) -> str:
    """A label in one line."""
    return " ".join(value.split())


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small classifier of texts."""
    folder = text_checkpoint(tmp_path_factory.mktemp("text") / "c", "bert", "ForSequenceClassification")
    return str(folder)


def copy(source: str, target: Path) -> Path:
    """A folder with copies of the files of another."""
    target.mkdir()
    for file in Path(source).iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"num_hidden_layers": BILLION}, "num_hidden_layers: 1,000,000,000\n  wanted: at most 4,096"),
        # This family's configuration has a list with an entry for each layer.
        ({"model_type": "modernbert", "num_hidden_layers": BILLION}, "num_hidden_layers: 1,000,000,000"),
        ({"num_labels": BILLION}, "num_labels: 1,000,000,000"),
        ({"vocab_size": BILLION}, "vocab_size: 1,000,000,000"),
        ({"hidden_size": BILLION}, "hidden_size: 1,000,000,000"),
        ({"hidden_size": 0}, "hidden_size: 0\n  wanted: a whole number above 0"),
        ({"depths": [4000, 4000]}, "depths: 8,000"),
        ({"depths": [-4000, 3000, 3000]}, "depths: 6,000"),
        ({"depths": [10**4299] * 11}, "depths: 1,000,000,000"),
        ({"text_config": {"deeper": [{"n_layers": BILLION}]}}, "n_layers: 1,000,000,000"),
        ({"attn_implementation": "stranger/kernel"}, "attn_implementation: 'stranger/kernel'"),
        ({"_attn_implementation": "flash_attention_2"}, "_attn_implementation: 'flash_attention_2'"),
        ({"vision_config": {"attn_implementation": {"": "a/b:c"}}}, "attn_implementation: {'': 'a/b:c'}"),
        ({"experts_implementation": "a/b"}, "experts_implementation: 'a/b'"),
        ({"text_config": {"auto_map": {"AutoModel": "a.B"}}}, "code in a checkpoint is never run"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "weights quantized by gptq"),
        ({"quantization_config": {"quant_method": "awq"}}, "weights quantized by awq"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "weights quantized by bitsandbytes"),
        ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "weights quantized by fp8"),
        ({"compression_config": 5}, "weights quantized by 5"),
        ({"configuration_files": ["config.4.0.0.json"]}, "configuration_files"),
        ({"transformers_weights": "pytorch_model.bin"}, "transformers_weights"),
        ({"architectures": 5}, "architectures: 5\n  wanted: a list of names"),
        ({"architectures": "BertModel"}, "architectures: 'BertModel'"),
        ({"architectures": [5]}, "architectures: [5]"),
        ({"id2label": {"0": "a\ud800", "1": "b"}}, "surrogates not allowed"),
    ],
)
def test_a_configuration_is_checked_before_transformers_reads_it(
    root: Path, tmp_path: Path, text: str, facts: dict[str, Any], message: str
) -> None:
    """Neither memory nor code follows from what it says."""
    folder = copy(text, tmp_path / "c")
    edit(folder / "config.json", **facts)
    assert message in refused(root, folder)


@pytest.mark.parametrize(("kind", "name"), [("int8", "I8"), ("float8_e4m3fn", "F8_E4M3")])
def test_quantized_weights_are_refused_where_the_configuration_says_nothing(
    root: Path, tmp_path: Path, text: str, kind: str, name: str
) -> None:
    """Without their scales they would be other numbers; transformers loads them without a word."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = copy(text, tmp_path / "c")
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights["classifier.weight"] = weights["classifier.weight"].to(getattr(torch, kind))
    save_file(weights, file, metadata={"format": "pt"})
    assert f"model.safetensors: classifier.weight in {name}\n  wanted: weights in FP32, FP16 or BF16" in refused(
        root, folder
    )


@pytest.mark.parametrize("facts", [{"hidden_size": 65536}, {"intermediate_size": 1 << 20}, {"vocab_size": 1 << 24}])
def test_a_network_far_larger_than_its_weights_is_refused(
    root: Path, tmp_path: Path, text: str, facts: dict[str, Any]
) -> None:
    """Its parameters are counted before they take memory."""
    folder = copy(text, tmp_path / "c")
    edit(folder / "config.json", **facts)
    assert "parameters, with" in refused(root, folder)


def test_a_label_may_have_the_name_of_a_size(root: Path, tmp_path: Path, text: str) -> None:
    """The keys of label2id are labels, whatever their numbers."""
    folder = copy(text, tmp_path / "c")
    edit(folder / "config.json", id2label={"0": "layers", "5000": "auto_map"}, label2id={"layers": 0, "auto_map": 5000})
    [written] = new_from_hf(root, "m", folder)
    assert (written / "labels.txt").read_text() == "layers\nauto_map\n"


@pytest.mark.parametrize("implementation", [None, "eager", "sdpa"])
def test_attention_of_transformers_itself_is_taken(
    root: Path, tmp_path: Path, text: str, implementation: str | None
) -> None:
    """Nothing is downloaded for it."""
    folder = copy(text, tmp_path / "c")
    edit(folder / "config.json", attn_implementation=implementation)
    assert new_from_hf(root, "m", folder)


@pytest.mark.parametrize(
    "facts",
    [
        {"size": {"height": 100_000, "width": 32}},
        {"size": {"height": 4097, "width": 32}},
        {"size": {"height": "32\nname: evil", "width": 32}},
        {"size": {"height": 32.5, "width": 32}},
        {"size": {"height": True, "width": 32}},
        {"size": {"height": 0, "width": 32}},
        {"size": [[32]]},
        {"size": {"shortest_edge": BILLION}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}},
        {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": -1, "width": 32}},
        {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": "a\nb"}},
        {
            "size": {"height": "1 #\nname: evil\n#", "width": 40},
            "do_center_crop": True,
            "crop_size": {"height": 32, "width": 32},
        },
        {"resample": "2\nname: evil"},
        {"resample": 9},
        {"rescale_factor": "1"},
        {"rescale_factor": float("inf")},
        {"image_mean": [0.5, float("nan"), 0.5]},
        {"image_mean": ["a\nb"] * 3},
        {"image_mean": [0.5] * 1000},
        {"image_std": None, "image_mean": {}},
    ],
)
def test_numbers_of_an_image_processor_are_checked(root: Path, tmp_path: Path, facts: dict[str, Any]) -> None:
    """Each would otherwise be a text in model.yaml, or the size of an image that fills the memory."""
    folder = image_checkpoint(tmp_path / "c", "vit", "ForImageClassification")
    edit(folder / "preprocessor_config.json", **facts)
    assert "preprocessor_config.json" in refused(root, folder)


@pytest.mark.parametrize("share", [-0.5, 1e-300, 2, "0.9"])
def test_the_share_that_is_cut_out_is_checked(root: Path, tmp_path: Path, share: object) -> None:
    """An image is resized to the edge divided by it."""
    folder = image_checkpoint(tmp_path / "c", "convnext", "ForImageClassification")
    edit(folder / "preprocessor_config.json", crop_pct=share)
    assert "crop_pct" in refused(root, folder)


@pytest.mark.parametrize("rate", [BILLION, 192_001, 0, -16000, 16000.5, True, "16000", None])
def test_a_sampling_rate_is_bounded(root: Path, tmp_path: Path, rate: object) -> None:
    """The example that is written has as many samples as half a second."""
    folder = sound_checkpoint(tmp_path / "c", "wav2vec2", "ForSequenceClassification")
    edit(folder / "preprocessor_config.json", sampling_rate=rate)
    assert "sampling_rate" in refused(root, folder)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"feature_size": 128}, "128\n  wanted: 80, as config.json has it"),
        ({"chunk_length": 30}, "3,000\n  wanted: 200, as config.json has it"),
        ({"hop_length": 0}, "hop_length"),
        ({"chunk_length": 2.5}, "chunk_length"),
        ({"chunk_length": BILLION}, "chunk_length"),
        ({"n_fft": True}, "n_fft"),
        ({"n_fft": BILLION}, "n_fft"),
        ({"sampling_rate": 8000}, "sampling_rate"),
        ({"sampling_rate": "16000\nname: evil"}, "sampling_rate"),
        ({"padding_value": 1.0}, "padding_value"),
        ({"padding_side": "left"}, "padding_side"),
        ({"feature_size": BILLION}, "feature_size"),
        ({"feature_extractor_type": "Wav2Vec2FeatureExtractor"}, "features by Wav2Vec2"),
    ],
)
def test_numbers_of_whispers_features_are_checked(
    root: Path, tmp_path: Path, facts: dict[str, Any], message: str
) -> None:
    """They become parameters of steps, and fit the network."""
    folder = whisper_checkpoint(tmp_path / "c", "Model")
    edit(folder / "preprocessor_config.json", **facts)
    assert message in refused(root, folder)


def test_hostile_texts_stay_texts(root: Path, tmp_path: Path) -> None:
    """Labels are a line each, and nothing of them is in model.yaml or in Python."""
    labels = dict(enumerate(HOSTILE))
    folder = text_checkpoint(tmp_path / "a'\"\nname: evil", "bert", "ForSequenceClassification", id2label=labels)
    [written] = new_from_hf(root, "m", folder)
    assert (written / "labels.txt").read_bytes().decode().split("\n") == [*map(plain, HOSTILE), ""]
    assert set(yaml.safe_load((written / "model.yaml").read_text())) == {
        "name",
        "description",
        "network",
        "pipeline",
        "example",
    }
    assert load(written, root).model.name == "m"
    compile((written / "network.py").read_text(), "network.py", "exec")


def test_hostile_tokens_of_speech_stay_tokens(root: Path, tmp_path: Path) -> None:
    """Tokens are in a file of JSON, and the blank is quoted in model.yaml."""
    blank = '"\nname: evil #'
    folder = speech_checkpoint(tmp_path / "c", pad_token=blank)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    for old, new in (("<pad>", blank), ("A", "a\u2028b"), ("B", "\"'\\")):
        vocabulary[new] = vocabulary.pop(old)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    [written] = new_from_hf(root, "m", folder)
    assert yaml.safe_load((written / "model.yaml").read_text())["pipeline"][-1]["parameters"]["blank"] == blank
    assert json.loads((written / "vocab.json").read_text()) == vocabulary
    assert load(written, root).steps[-1].parameters["blank"] == blank


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vocabulary: vocabulary.pop("Q"), "no token of its own for each of 32 classes"),
        (lambda vocabulary: vocabulary.update(Q=vocabulary["R"]), "no token of its own for each of 32 classes"),
        (lambda vocabulary: vocabulary.clear(), "no such file, or no tokens"),
        (lambda vocabulary: vocabulary.update({"Q\ud800": vocabulary.pop("Q")}), "surrogates not allowed"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    root: Path, tmp_path: Path, change: Callable[[dict[str, int]], object], message: str
) -> None:
    """Each class of the network needs a token."""
    folder = speech_checkpoint(tmp_path / "c")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    change(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    assert message in refused(root, folder)


def test_speech_recognition_without_a_vocabulary_is_refused(root: Path, tmp_path: Path) -> None:
    """Its logits would have no letters."""
    folder = speech_checkpoint(tmp_path / "c")
    (folder / "vocab.json").unlink()
    assert "vocab.json" in refused(root, folder)


@pytest.mark.parametrize("prompt", HOSTILE)
def test_hostile_prompts_stay_prompts(root: Path, tmp_path: Path, prompt: str) -> None:
    """The default one is quoted; a comment with the others keeps its line."""
    folder = text_checkpoint(tmp_path / "c", "bert", "Model")
    prompts = {"one": prompt, prompt: prompt}
    edit(folder / "config_sentence_transformers.json", prompts=prompts, default_prompt_name="one")
    [written] = new_from_hf(root, "m", folder)
    text = (written / "model.yaml").read_text()
    assert yaml.safe_load(text)["pipeline"][0]["parameters"]["prefix"] == prompt
    assert f"# {json.dumps({prompt: prompt})}" in text.splitlines()
    assert load(written, root).steps[0].parameters["prefix"] == prompt


@pytest.mark.parametrize(
    "facts",
    [
        {"prompts": ["a"]},
        {"prompts": {"a": 5}, "default_prompt_name": "a"},
        {"prompts": {"a": "b"}, "default_prompt_name": ["a"]},
    ],
)
def test_prompts_of_other_types_are_refused(root: Path, tmp_path: Path, facts: dict[str, Any]) -> None:
    """The message names their file."""
    folder = text_checkpoint(tmp_path / "c", "bert", "Model")
    edit(folder / "config_sentence_transformers.json", **facts)
    assert "config_sentence_transformers.json" in refused(root, folder)


@pytest.mark.parametrize("mode", [5, [["mean"]], {"a": "b"}, "os.system"])
def test_a_pooling_of_another_type_is_refused(root: Path, tmp_path: Path, mode: object) -> None:
    """Only names of the table become Python."""
    folder = text_checkpoint(tmp_path / "c", "bert", "Model")
    sentence_files(folder, "mean", 32)
    edit(folder / "1_Pooling" / "config.json", pooling_mode=mode)
    assert "pooling" in refused(root, folder)


def test_names_of_an_onnx_file_keep_their_comment(root: Path, tmp_path: Path) -> None:
    """Names of inputs and axes are in comments of model.yaml, and cannot end them."""
    inputs = [
        ('a"\nserving: {evil: 1}', FLOAT, ["batch", "b\nname: evil", 4]),
        ("c\u2028name: evil", STRING, ["batch", 1]),
    ]
    nodes = [node("Relu", [inputs[0][0]], ["y"]), node("Identity", [inputs[1][0]], ["z"])]
    outputs = [("y", FLOAT, inputs[0][2]), ("z", STRING, inputs[1][2])]
    (tmp_path / "net.onnx").write_bytes(onnx_bytes(nodes, inputs, outputs))
    text = (new_from_onnx(root, "net", tmp_path / "net.onnx") / "model.yaml").read_text()
    assert yaml.safe_load(text) == {"name": "net", "network": {"onnx": "net.onnx"}}
    assert [line for line in text.splitlines() if not line.lstrip().startswith("#")] == [
        "name: net",
        "network:",
        "  onnx: net.onnx",
    ]


def test_an_infinite_length_of_the_tokenizer_is_not_a_bound(root: Path, tmp_path: Path) -> None:
    """JSON's 1e400 is infinite in Python; the positions of the network count then."""
    folder = text_checkpoint(tmp_path / "c", "bert", "Model")
    file = folder / "tokenizer_config.json"
    file.write_text(file.read_text().replace('"model_max_length": 64', '"model_max_length": 1e400'))
    assert "1e400" in file.read_text()
    [written] = new_from_hf(root, "m", folder)
    assert load(written, root).model.network.free_axes["length"].max == 66


@pytest.mark.parametrize(
    ("family", "facts", "longest"),
    [
        ("roberta", {}, 64),
        ("roberta", {"model_type": "camembert", "architectures": ["CamembertModel"]}, 64),
        ("mpnet", {"pad_token_id": 0}, 64),  # whatever the number: MPNet's positions begin at 2
        ("bert", {"pad_token_id": None}, 66),
    ],
)
def test_positions_begin_behind_padding_where_the_network_counts_so(
    root: Path, tmp_path: Path, family: str, facts: dict[str, Any], longest: int
) -> None:
    """The longest text has the last position; one more would have none."""
    folder = text_checkpoint(tmp_path / "c", family, "Model")
    padding = json.loads((folder / "config.json").read_text())["pad_token_id"]
    assert family != "roberta" or padding == 1
    edit(folder / "config.json", **facts)
    edit(folder / "tokenizer_config.json", model_max_length=512)
    [written] = new_from_hf(root, "m", folder)
    assert load(written, root).model.network.free_axes["length"].max == longest


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"pad_token_id": None}, "pad_token_id: None"),
        ({"pad_token_id": 65}, "room for 0 tokens"),
        ({"max_position_embeddings": 3}, "room for 1 tokens"),
    ],
)
def test_roberta_without_its_padding_or_positions_is_refused(
    root: Path, tmp_path: Path, facts: dict[str, Any], message: str
) -> None:
    """Its positions cannot be counted."""
    folder = text_checkpoint(tmp_path / "c", "roberta", "Model")
    edit(folder / "config.json", **facts)
    assert message in refused(root, folder)


@pytest.mark.parametrize("places", [[["a"]], {"a": ["b"]}, {"a": "../secret"}, 5])
def test_an_index_of_weights_names_only_files(root: Path, tmp_path: Path, text: str, places: object) -> None:
    """Values of any other type are refused too."""
    folder = copy(text, tmp_path / "c")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert "weight_map" in refused(root, folder)


@pytest.mark.parametrize("kind", ["image", "classes", "text", "towers"])
def test_each_network_is_loaded_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A network of some GB takes minutes to load."""
    import transformers

    folder = {
        "image": lambda: image_checkpoint(tmp_path / "c", "vit", "Model"),
        "classes": lambda: image_checkpoint(tmp_path / "c", "vit", "ForImageClassification"),
        "text": lambda: text_checkpoint(tmp_path / "c", "bert", "Model"),
        "towers": lambda: tower_checkpoint(tmp_path / "c"),
    }[kind]()
    loads: list[str] = []
    load_really = transformers.PreTrainedModel.from_pretrained.__func__

    def counted(own: type, *arguments: Any, **options: Any) -> Any:
        loads.append(own.__name__)
        return load_really(own, *arguments, **options)

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", classmethod(counted))
    new_from_hf(root, "m", folder)
    expected = {
        "image": ["ViTModel"],
        "classes": ["ViTForImageClassification"],
        "text": ["BertModel"],
        "towers": ["CLIPTextModelWithProjection", "CLIPVisionModelWithProjection"],
    }
    assert loads == expected[kind]
