"""A local Hugging Face checkpoint of an encoder: its checked files, its configuration and its task."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.checkpoint_config import FROM_FOLDER, load_network, read_config, read_facts
from tritonkit.repository.export.checkpoint_files import (
    check_files,
    check_weights,
    read_errors,
    read_json,
    weight_files,
)
from tritonkit.repository.export.plain_files import plain_file
from tritonkit.repository.export.quiet import quiet

__all__ = ["AUTO_CLASSES", "CHECKPOINT", "PROCESSOR", "TOWERS", "Encoder", "read_encoder"]

CHECKPOINT = "checkpoint"
"""The folder of a model that has the copy."""
PROCESSOR = "preprocessor_config.json"
"""The file that says how images and sound are prepared."""
AUTO_CLASSES = {
    "SEQUENCE_CLASSIFICATION": "AutoModelForSequenceClassification",
    "TOKEN_CLASSIFICATION": "AutoModelForTokenClassification",
    "QUESTION_ANSWERING": "AutoModelForQuestionAnswering",
    "IMAGE_CLASSIFICATION": "AutoModelForImageClassification",
    "AUDIO_CLASSIFICATION": "AutoModelForAudioClassification",
    "CTC": "AutoModelForCTC",
}
"""A task in the names of transformers' tables -> its class that loads a checkpoint."""
_FEW_BITS = ("I8", "F8", "F6", "F4")
"""Types of quantized weights; U8 is also that of masks, which are buffers."""


@dataclass(frozen=True)
class Towers:
    """transformers' classes of two towers, and the names of their vectors.

    Args:
        fixed: whether each text is padded to the longest, which the network does not mask.
    """

    text: str
    text_vector: str
    image: str
    image_vector: str
    fixed: bool = False

    def width(self, config: Any, part: str) -> int:
        """Numbers in a vector of a tower."""
        projected = self.image_vector == "image_embeds"
        return int(config.projection_dim if projected else getattr(config, part).hidden_size)


TOWERS = {
    "clip": Towers("CLIPTextModelWithProjection", "text_embeds", "CLIPVisionModelWithProjection", "image_embeds"),
    "siglip": Towers("SiglipTextModel", "pooler_output", "SiglipVisionModel", "pooler_output", fixed=True),
}
"""Type of model -> its towers."""
_BODIES = ("", "FOR_MASKED_LM", "FOR_PRETRAINING", "FOR_SPEECH_SEQ_2_SEQ")
"""Tables of architectures whose body, without a head or a decoder, gives vectors."""
_SUPPORTED = (
    "one for sequence, token, image or audio classification, question answering or CTC, a body such as BertModel,"
    " ViTModel or WhisperModel, or two towers such as CLIPModel"
)
_MOST_BYTES = 1 << 20
_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "special_tokens_map.json",
    "added_tokens.json",
    PROCESSOR,
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
"""Files other than weights that are read; only the first is always there."""


@dataclass(frozen=True)
class Encoder:
    """A checkpoint after its checks.

    Args:
        folder: the folder with its files.
        architecture: transformers' class, such as BertForSequenceClassification.
        task: a key of AUTO_CLASSES, "towers" for a text and an image tower, or "body" for a network without a head.
        config: transformers' configuration.
    """

    folder: Path
    architecture: str
    task: str
    config: Any

    def read(self, name: str) -> dict[str, Any]:
        """The object in one of its files; empty where the file is absent."""
        file = self.folder / name
        return read_json(plain_file(file, self.folder, _MOST_BYTES)) if os.path.lexists(file) else {}

    @cached_property
    def modules(self) -> list[tuple[str, str]]:
        """Kind and folder of each module of sentence-transformers, such as ("Pooling", "1_Pooling")."""
        file = self.folder / "modules.json"
        if not file.is_file():
            return []
        with read_errors(file, "a list of modules with type and path"):
            modules = json.loads(file.read_text(encoding="utf-8"))
            return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in modules]

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer as transformers makes it."""
        transformers = need("transformers", "models")
        with read_errors(self.folder, "a tokenizer of transformers"), quiet():
            return transformers.AutoTokenizer.from_pretrained(str(self.folder), **FROM_FOLDER)

    @property
    def takes(self) -> str:
        """Name of the network's main input: input_ids, pixel_values, input_values or input_features."""
        return str(getattr(need("transformers", "models"), self.architecture).main_input_name)

    @property
    def labels(self) -> list[str]:
        """The classes in the order of the logits."""
        return [str(self.config.id2label[number]) for number in sorted(self.config.id2label)]

    @cached_property
    def weights(self) -> list[Path]:
        """The files with weights, and their index."""
        return weight_files(self.folder)

    def load(self, loader: str) -> tuple[Any, list[str]]:
        """The network that one of transformers' classes loads, and the names of weights that the checkpoint lacks."""
        return load_network(self.folder, loader)

    def processor_number(self, key: str, value: Any, allowed: range, unit: str = "") -> int:
        """A whole number of the processor. Whatever a file says is checked before it goes into model.yaml."""
        if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
            wanted = f"a whole number from {allowed.start:,} to {allowed.stop - 1:,}{unit}"
            raise self.refusal(f"{PROCESSOR} {key}", repr(value)[:120], wanted)
        return value

    def refusal(self, file: str, found: str, wanted: str, todo: str = "") -> BuildError:
        """An error about one of its files."""
        return BuildError(str(self.folder / file), found=found, wanted=wanted, todo=todo)


def read_encoder(folder: Path) -> Encoder:
    """Read a folder, and refuse a checkpoint that cannot become a model folder.

    Raises:
        BuildError: a file is missing, unreadable or outside the folder; weights are pickles; the architecture is
            unknown here, or comes with its own code.
    """
    check_files(folder, needed=("config.json",), carried=_FILES)
    check_weights(folder)
    facts, architecture = read_facts(
        folder, todo="export the network to ONNX where you trust it, then: tritonkit new NAME --onnx FILE"
    )
    _refuse_quantized(folder, facts)
    task = _task(folder, architecture)
    config = read_config(folder)
    if task == "body" and config.model_type in TOWERS:
        task = "towers"
    encoder = Encoder(folder, architecture, task, config)
    if task == "towers" or encoder.takes == "input_ids":
        _require_tokenizer(encoder)
    if (task == "towers" or encoder.takes != "input_ids") and not os.path.lexists(folder / PROCESSOR):
        raise encoder.refusal(
            PROCESSOR,
            "no such file",
            "how to prepare the input",
            "copy it from the original checkpoint",
        )
    return encoder


def _refuse_quantized(folder: Path, facts: dict[str, Any]) -> None:
    """Refuse weights in few bits: their libraries run on GPUs, and a build quantizes by itself."""
    for key in ("quantization_config", "compression_config"):
        for part in (facts, *(value for value in facts.values() if isinstance(value, dict))):
            if given := part.get(key):
                method = given.get("quant_method", "unknown") if isinstance(given, dict) else given
                raise _quantized(f"{folder / 'config.json'} {key}", f"weights quantized by {str(method)[:60]}")
    for file in folder.glob("*.safetensors"):
        with read_errors(file, "weights as safetensors writes them"):
            types = _types(file)
        for name, kind in types.items():
            if kind.startswith(_FEW_BITS):
                raise _quantized(str(file), f"{name[:120]} in {kind}")


def _types(file: Path) -> dict[str, str]:
    """The type of each tensor in a file."""
    with need("safetensors", "build").safe_open(file, "pt") as weights:
        return {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118


def _quantized(where: str, found: str) -> BuildError:
    return BuildError(
        where,
        found=found,
        wanted="weights in FP32, FP16 or BF16",
        todo="use the original checkpoint; variants such as onnx-int8-dynamic quantize it in the build",
    )


def _task(folder: Path, architecture: str) -> str:
    """The task of an architecture by transformers' own tables."""
    tables = need("transformers", "models").models.auto.modeling_auto
    for task in ("AUDIO_CLASSIFICATION", *AUTO_CLASSES):
        if architecture in _names(tables, f"FOR_{task}"):
            return task
    causal = architecture in _names(tables, "FOR_CAUSAL_LM")
    # An embedding model may be a language model's body, which modules.json shows.
    if (causal and (folder / "modules.json").is_file()) or (
        not causal and any(architecture in _names(tables, table) for table in _BODIES)
    ):
        return "body"
    raise BuildError(
        f"{folder / 'config.json'} architectures",
        found=f"{architecture}, a causal language model" if causal else architecture,
        wanted=f"an encoder of transformers: {_SUPPORTED}",
        todo="tritonkit new NAME --llm FOLDER"
        if causal
        else "serve it from an ONNX file (--onnx) or from Python of your own (--torch)",
    )


def _names(tables: Any, table: str) -> set[str]:
    """The architectures in a table; some configurations have several."""
    mapping = getattr(tables, f"MODEL_{table}_MAPPING_NAMES" if table else "MODEL_MAPPING_NAMES")
    return {name for names in mapping.values() for name in ([names] if isinstance(names, str) else names)}


def _require_tokenizer(encoder: Encoder) -> None:
    if not os.path.lexists(encoder.folder / "tokenizer.json"):
        place = repr(str(encoder.folder))
        code = f"from transformers import AutoTokenizer as T; T.from_pretrained({place}).save_pretrained({place})"
        raise encoder.refusal(
            "tokenizer.json",
            "no such file",
            "the fast tokenizer in a file",
            f"make it: python -c {shlex.quote(code)}",
        )
