"""A local Hugging Face folder of a causal language model, read without running any code from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.chat import check_chat
from tritonkit.repository.export.plain_files import plain_file
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.export.safetensors_header import check_header
from tritonkit.resources import shipped_modules
from tritonkit.text import first_line

__all__ = ["CARRIED", "Checkpoint", "check_files", "check_weights", "read_checkpoint", "read_errors", "read_json"]

CARRIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files that a server needs in addition to the network; the second and the last may be absent."""
_NEEDED = ("config.json", "tokenizer.json")
_SIZES = ("max_position_embeddings", "vocab_size", "num_hidden_layers", "num_attention_heads", "hidden_size")
"""Sizes that every network with attention has; config.json may use other names."""
_MORE_SIZES = ("num_key_value_heads", "head_dim")
"""Further sizes of some networks, which decide the memory of keys and values."""
_WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
"""Kind of layer -> the key with its window size; without `layer_types` all layers are of the first kind."""
_WEIGHTS = ".safetensors"
_MOST_BYTES = 64 << 20
"""Largest file other than weights: a tokenizer of 250,000 tokens has about 20 MiB."""
_MOST_TEMPLATE_BYTES = 1 << 19
_MOST_LAYERS = 4096
_ADAPTER = "adapter_config.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's folder after its checks.

    Args:
        folder: the folder with its files.
        architecture: transformers' class, such as LlamaForCausalLM.
        sizes: the network's sizes, by the names that most configurations give them.
    """

    folder: Path
    architecture: str
    sizes: Mapping[str, int]

    @property
    def context(self) -> int:
        """Positions to serve, in tokens: as many as the network was made for, but no more than its window."""
        return self.sizes["max_position_embeddings"]

    @property
    def configuration(self) -> str:
        """Its config.json, with the sizes under their usual names too."""
        facts = read_json(self.folder / "config.json") | dict(self.sizes)
        return json.dumps(facts, indent=1, sort_keys=True) + "\n"

    @property
    def carried(self) -> list[Path]:
        """The files that a server needs in addition to the network."""
        return _carried(self.folder)

    @property
    def files(self) -> list[Path]:
        """Files of the folder that are used: weights, and those that a server needs in addition."""
        weights = [*self.folder.glob(f"*{_WEIGHTS}"), *self.folder.glob(f"*{_WEIGHTS}.index.json")]
        return [*self.carried, *sorted(weights)]

    def load(self) -> Any:
        """The network as a transformers module in evaluation mode, in FP32.

        Raises:
            BuildError: the weights cannot be read, or do not fit the configuration.
        """
        torch, transformers = need("torch", "build"), need("transformers", "models")
        with read_errors(self.folder, "weights that fit its config.json"), quiet():
            module, report = transformers.AutoModelForCausalLM.from_pretrained(
                str(self.folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                attn_implementation="sdpa",
                output_loading_info=True,
            )
        # transformers fills missing weights with random numbers, and only warns.
        if missing := sorted(report["missing_keys"]):
            raise BuildError(
                str(self.folder),
                found=f"no weights for {missing[0]} and {len(missing) - 1} more",
                wanted="all weights that its config.json requires",
            )
        return module.eval()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder, and refuse a checkpoint that cannot be served.

    Raises:
        BuildError: a file is missing, unreadable, or outside the folder; the weights are pickles, or files shorter or
            longer than their header says; the architecture is not one of transformers' causal language models, or
            comes with its own code; the chat template cannot be served.
    """
    check_files(folder)
    check_weights(folder)
    config = read_json(folder / "config.json")
    architecture = next(iter(config.get("architectures") or []), "none")
    if config.get("auto_map"):
        raise BuildError(
            f"{folder / 'config.json'} auto_map",
            found="an architecture whose code lies in the checkpoint",
            wanted="one of transformers' own; code in a checkpoint is never run",
        )
    transformers = need("transformers", "models")
    architectures = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if architecture not in architectures.values() or config.get("is_encoder_decoder"):
        raise BuildError(
            f"{folder / 'config.json'} architectures",
            found=architecture,
            wanted="a causal language model of transformers, such as LlamaForCausalLM",
            todo="for an encoder: tritonkit new NAME --hf FOLDER",
        )
    with read_errors(folder / "config.json", "a configuration of transformers"):
        read = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
    values = {name: getattr(read, name, None) for name in (*_SIZES, *_MORE_SIZES)}
    sizes = {name: size for name, size in values.items() if isinstance(size, int)}
    if unknown := [name for name in _SIZES if name not in sizes]:
        raise BuildError(
            str(folder / "config.json"),
            found=f"{architecture} without {unknown[0]}",
            wanted="a network whose layers have attention, with keys and values",
        )
    _check_sizes(folder, sizes)
    _check_tokenizer(folder)
    # The traced network attends to all earlier tokens, which is the same as long as the window holds all of them.
    sizes["max_position_embeddings"] = min([sizes["max_position_embeddings"], *_windows(read)])
    return Checkpoint(folder, architecture, sizes)


def _carried(folder: Path, names: Sequence[str] = CARRIED) -> list[Path]:
    return [file for name in names if os.path.lexists(file := folder / name)]


def _windows(config: Any) -> Iterator[int]:
    """Window sizes, in tokens, of layers with a bounded window."""
    layers = getattr(config, "layer_types", None)
    for kind, key in _WINDOWS.items():
        window = getattr(config, key, None)
        if isinstance(window, int) and window > 0 and (layers is None or kind in layers):
            yield window


def _check_adapter(folder: Path) -> None:
    """Refuse an adapter: with peft installed, transformers follows its file to a base model elsewhere."""
    if os.path.lexists(folder / _ADAPTER):
        raise BuildError(
            str(folder / _ADAPTER),
            found="an adapter (peft), which names a base model elsewhere",
            wanted="a complete checkpoint",
            todo="merge it into its base model (peft's merge_and_unload(), then save_pretrained); if the folder is"
            " complete already, remove the adapter's file",
        )


def check_files(folder: Path, needed: Sequence[str] = _NEEDED, carried: Sequence[str] = CARRIED) -> None:
    """Check that a checkpoint's folder has what is needed: plain files, weights without pickles, no adapter."""
    if not folder.is_dir():
        raise BuildError(
            str(folder),
            found="no such folder",
            wanted="a Hugging Face checkpoint on this machine",
            todo="download it from the Hub: hf download OWNER/NAME --local-dir FOLDER",
        )
    _check_adapter(folder)
    for name in needed:
        if not os.path.lexists(folder / name):
            raise BuildError(
                str(folder),
                found=f"no {name}",
                wanted="a Hugging Face checkpoint that has it",
                todo="save the model and its fast tokenizer with save_pretrained",
            )
    for file in _carried(folder, carried):
        plain_file(file, folder, _MOST_TEMPLATE_BYTES if file.suffix == ".jinja" else _MOST_BYTES)
    if any(folder.glob(f"*{_WEIGHTS}")):
        return
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    problem = f"weights as pickles alone: {pickles[0]}" if pickles else "no weights"
    raise BuildError(
        str(folder),
        found=problem,
        wanted="*.safetensors: a pickle can run code when it is read",
        todo="load it on a machine where you trust it, and save it with save_pretrained(..., safe_serialization=True)",
    )


def check_weights(folder: Path) -> None:
    """Check that each file fits its header, and that the index names no other file."""
    files = sorted(folder.glob(f"*{_WEIGHTS}"))
    for file in files:
        check_header(plain_file(file, folder))
    for index in folder.glob(f"*{_WEIGHTS}.index.json"):
        plain_file(index, folder, _MOST_BYTES)
        places = read_json(index).get("weight_map")
        named = set(places.values()) if isinstance(places, dict) else {places}
        if unknown := named - {file.name for file in files}:
            raise BuildError(
                f"{index} weight_map",
                found=f"weights in {str(next(iter(unknown)))[:120]!r}",
                wanted=f"the {_WEIGHTS} files of its folder",
                todo="copy the missing files too",
            )


def _check_sizes(folder: Path, sizes: Mapping[str, int]) -> None:
    """Check the sizes first, because the library creates every layer before it looks for weights."""
    where = folder / "config.json"
    if small := [name for name, size in sizes.items() if size < 1]:
        raise BuildError(f"{where} {small[0]}", found=str(sizes[small[0]]), wanted="a whole number above 0")
    if sizes["num_hidden_layers"] > _MOST_LAYERS:
        raise BuildError(
            f"{where} num_hidden_layers",
            found=f"{sizes['num_hidden_layers']:,}",
            wanted=f"at most {_MOST_LAYERS:,}: the largest networks have a few hundred",
        )


def _check_tokenizer(folder: Path) -> None:
    """Check that the tokenizer and the chat template can be served, whatever their input."""
    [tokenizer] = shipped_modules(["python_backends/backends/llm"], "llm_tokenizer")
    if why := tokenizer.refusal(read_json(folder / "tokenizer.json")):
        raise BuildError(
            str(folder / "tokenizer.json"),
            found=why,
            wanted="a tokenizer whose work is bounded by the length of the text",
            todo="copy the tokenizer again from the original checkpoint",
        )
    file = folder / "tokenizer_config.json"
    check_chat(folder, read_json(file) if file.exists() else {})


def read_json(file: Path) -> dict[str, Any]:
    """The object of a JSON file of a checkpoint."""
    with read_errors(file, "a JSON object"):
        value = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise TypeError(f"it is a {type(value).__name__}")
        return value


@contextmanager
def read_errors(where: Path, wanted: str) -> Iterator[None]:
    """Turn a failure of a library or a file into the error of a checkpoint."""
    try:
        yield
    except (BuildError, MemoryError):
        raise
    except Exception as error:
        raise BuildError(
            str(where), found=f"it cannot be read: {type(error).__name__}: {first_line(error)}", wanted=wanted
        ) from error
