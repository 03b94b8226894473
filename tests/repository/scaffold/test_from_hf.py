"""`tritonkit new --hf`: the folders it writes, and the checkpoints that it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.families.checkpoints import (
    image_checkpoint,
    save_tokenizer,
    sentence_files,
    text_checkpoint,
    whisper_checkpoint,
)
from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.modelspec import Spec, load
from tritonkit.repository.scaffold import new_from_hf


def new(root: Path, checkpoint: Path) -> Spec:
    """The only folder that is written, read."""
    [folder] = new_from_hf(root, "m", checkpoint)
    assert len((folder / "model.yaml").read_text().splitlines()) <= 30
    return load(folder, root)


def edit(folder: Path, file: str, **facts: object) -> None:
    """Change keys of a JSON file; None removes one."""
    path = folder / file
    read = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in (read | facts).items() if value is not None}))


def test_a_classifier_has_its_labels_and_lengths(root: Path, tmp_path: Path) -> None:
    """Labels of id2label in their order, the padding token, and no more tokens than there are positions."""
    labels = {0: "no", 1: "several\nlines", 2: "yes"}
    folder = text_checkpoint(tmp_path / "c", "roberta", "ForSequenceClassification", id2label=labels)
    edit(folder, "tokenizer_config.json", model_max_length=10**30)
    spec = new(root, folder)
    assert (spec.folder / "labels.txt").read_text() == "no\nseveral lines\nyes\n"
    length = spec.model.network.free_axes["length"]
    padding = json.loads((folder / "config.json").read_text())["pad_token_id"]
    assert length.pad == {"input_ids": padding, "attention_mask": 0}
    assert length.max == 64 - padding + 1  # RoBERTa's positions begin behind that of padding
    assert spec.steps[0].parameters["max_length"] == str(length.max)
    assert spec.model.example["text"].text


def test_the_copy_has_only_files_that_are_read(root: Path, tmp_path: Path) -> None:
    """Other files of a checkpoint, such as a training state, stay where they are."""
    folder = text_checkpoint(tmp_path / "c", "bert", "ForSequenceClassification")
    (folder / "optimizer.pt").write_bytes(b"a pickle")
    copied = {file.name for file in (new(root, folder).folder / "checkpoint").iterdir()}
    assert copied == {"config.json", "model.safetensors", "tokenizer.json"}


def test_one_label_takes_pairs(root: Path, tmp_path: Path) -> None:
    """A cross-encoder gives a score of two texts; its activation is that of its configuration."""
    folder = text_checkpoint(tmp_path / "c", "bert", "ForSequenceClassification", num_labels=1)
    assert "torch.sigmoid(output.logits)" in (new(root, folder).folder / "network.py").read_text()
    edit(folder, "config.json", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    [written] = new_from_hf(root, "plain", folder)
    spec = load(written, root)
    assert set(spec.model.network.inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert set(spec.model.example) == {"text", "text_pair"}
    assert "score = output.logits\n" in (written / "network.py").read_text()


def test_a_sentence_encoder_has_pooling_and_length_of_its_files(root: Path, tmp_path: Path) -> None:
    """modules.json names the pooling, and sentence_bert_config.json the longest text."""
    folder = text_checkpoint(tmp_path / "c", "mpnet", "ForMaskedLM")
    sentence_files(folder, "mean", 32, normalize=False)
    spec = new(root, folder)
    assert spec.model.network.free_axes["length"].max == 48
    code = (spec.folder / "network.py").read_text()
    assert "AutoModel.from_pretrained" in code
    assert "attention_mask.sum(1, keepdim=True)" in code
    assert "normalize" not in code


def test_prompts_are_prefixes(root: Path, tmp_path: Path) -> None:
    """The default prompt stands before each text; the others are in a comment."""
    folder = text_checkpoint(tmp_path / "c", "bert", "Model")
    prompts = {"query": "query: ", "document": "passage: "}
    edit(folder, "config_sentence_transformers.json", prompts=prompts, default_prompt_name="query")
    spec = new(root, folder)
    assert spec.steps[0].parameters["prefix"] == "query: "
    assert '# {"document": "passage: "}' in (spec.folder / "model.yaml").read_text()


def test_an_image_network_has_the_processing_of_its_processor(root: Path, tmp_path: Path) -> None:
    """ConvNeXt cuts out the center of a larger image."""
    spec = new(root, image_checkpoint(tmp_path / "c", "convnext", "ForImageClassification"))
    parameters = spec.steps[0].parameters
    assert (parameters["resize"], parameters["resize_to"], parameters["height"]) == ("crop", "40", "32")
    assert parameters["resample"] == "bicubic"


@pytest.mark.parametrize("head", ["Model", "ForConditionalGeneration"])
def test_whisper_is_its_encoder(root: Path, tmp_path: Path, head: str) -> None:
    """The steps have the sizes of the feature extractor; the decoder is not a part of the network."""
    spec = new(root, whisper_checkpoint(tmp_path / "c", head, mels=128))
    decode, log_mel = (step.parameters for step in spec.steps[:2] if step)
    assert (decode["length"], decode["max_seconds"], log_mel["mels"]) == ("32000", "2", "128")
    assert list(spec.model.network.outputs) == ["last_hidden_state"]
    assert "return module.encoder\n" in (spec.folder / "network.py").read_text()


def test_noise_of_the_feature_extractor_is_remarked(root: Path, tmp_path: Path) -> None:
    """Each answer would be another one."""
    folder = whisper_checkpoint(tmp_path / "c", "Model")
    edit(folder, "preprocessor_config.json", dither=0.01)
    assert "adds noise" in (new(root, folder).folder / "model.yaml").read_text()


def refused(root: Path, folder: Path) -> str:
    """The message, which ends the command with exit code 2 and leaves no folder."""
    with pytest.raises(UsageError) as caught:
        new_from_hf(root, "m", folder)
    assert caught.value.exit_code == 2
    assert not list((root / "models").iterdir())
    return str(caught.value)


def _remote_code(folder: Path) -> None:
    edit(folder, "config.json", auto_map={"AutoModel": "modeling.Model"})


def _pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _language_model(folder: Path) -> None:
    edit(folder, "config.json", architectures=["LlamaForCausalLM"])


def _unknown(folder: Path) -> None:
    edit(folder, "config.json", architectures=["NoSuchNetwork"])


def _no_architecture(folder: Path) -> None:
    edit(folder, "config.json", architectures=None)


def _broken(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def _other_weights(folder: Path) -> None:
    edit(folder, "config.json", num_hidden_layers=3)


def _other_activation(folder: Path) -> None:
    edit(folder, "config.json", id2label={"0": "a"}, sentence_transformers={"activation_fn": "os.system"})


def _dense(folder: Path) -> None:
    edit(folder, "config.json", architectures=["BertModel"])
    sentence_files(folder, "mean", 32)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(
        json.dumps([*modules, {"type": "sentence_transformers.models.Dense", "path": "3_Dense"}])
    )


def _outside(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_remote_code, "code in a checkpoint is never run"),
        (_pickle_only, "weights as pickles alone: pytorch_model.bin"),
        (_no_tokenizer, "save_pretrained("),
        (_language_model, "tritonkit new NAME --llm FOLDER"),
        (_unknown, "NoSuchNetwork"),
        (_no_architecture, "architectures: none"),
        (_broken, "it cannot be read"),
        (_other_weights, "no weights for bert.encoder.layer.2"),
        (_other_activation, "the activation os.system"),
        (_dense, "a module Dense"),
        (_outside, "a link to /etc/hostname"),
    ],
)
def test_a_checkpoint_that_cannot_be_served_is_one_message(
    root: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    """Each has an error about the command line, before anything is written."""
    folder = text_checkpoint(tmp_path / "c", "bert", "ForSequenceClassification")
    change(folder)
    text = refused(root, folder)
    assert message in text
    assert text.startswith("--hf ")


def test_a_folder_that_is_not_there_is_refused(root: Path, tmp_path: Path) -> None:
    """The message says how to get one."""
    assert "hf download" in refused(root, tmp_path / "nothing")


def test_an_image_network_without_its_processing_is_refused(root: Path, tmp_path: Path) -> None:
    """Its mean and its size stand in no other file."""
    folder = image_checkpoint(tmp_path / "c", "vit", "ForImageClassification")
    (folder / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json" in refused(root, folder)


def test_the_other_option_is_named_for_an_encoder(tmp_path: Path) -> None:
    """`--llm` of an encoder names `--hf`."""
    save_tokenizer(tmp_path)
    folder = text_checkpoint(tmp_path / "c", "bert", "Model")
    with pytest.raises(BuildError, match="--hf FOLDER"):
        read_checkpoint(folder)
