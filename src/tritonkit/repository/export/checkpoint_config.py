"""The configuration and the network of a local Hugging Face checkpoint, as transformers reads them.

Nothing that a checkpoint says makes transformers run code from elsewhere: neither code of the checkpoint, nor a kernel
that it would download.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.checkpoint_files import read_errors, read_json, weight_files
from tritonkit.repository.export.quiet import quiet

__all__ = ["FROM_FOLDER", "SIZES", "check_sizes", "load_network", "read_config", "read_facts"]

FROM_FOLDER: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of each `from_pretrained`: nothing is downloaded, and no code of the checkpoint runs."""
SIZES = ("max_position_embeddings", "vocab_size", "num_hidden_layers", "num_attention_heads", "hidden_size")
"""Sizes that every network with attention has; config.json may use other names."""
_BOUNDS = (
    (re.compile(r"(.*_)?(layers?|depths?|blocks?|groups?|stages?|experts?|heads?)"), 1 << 12),
    (re.compile(r"((hidden|embedding|embed|image|patch)_(size|dim)s?|d_model|dim|n_embd)"), 1 << 16),
    (re.compile(r"intermediate_size|((en|de)coder_)?ffn_dim|classifier_proj_size|num_labels"), 1 << 20),
    (re.compile(r"vocab_size|max_(position_embeddings|(source|target)_positions)|n_positions"), 1 << 24),
)
"""Names of sizes in config.json -> the largest value, far above that of the largest networks."""
_MOST_PARAMETERS_A_BYTE = 4
"""Parameters for each byte of weights, above those of any format: 4 bits have 2."""
_FEW_PARAMETERS = 1 << 22
"""Parameters that may lack weights whatever the files' size, as those of a pooler or a small network do."""
_OTHER_FILES = ("configuration_files", "transformers_weights")
"""Keys with which transformers reads other files than those that are checked."""
_LABELS = ("id2label", "label2id")
"""Objects whose keys are a stranger's words."""
_IMPLEMENTATION = re.compile(r"_?(attn|experts)_implementation")
_OWN_IMPLEMENTATIONS = (None, "eager", "sdpa")
"""Implementations that transformers has itself; for others it may download a kernel."""


def read_facts(folder: Path, todo: str = "") -> tuple[dict[str, Any], str]:
    """The object in config.json after its checks, and the first of its architectures.

    Args:
        todo: advice for a checkpoint with code of its own.

    Raises:
        BuildError: the file cannot be read, has sizes out of bounds, names code or a kernel, or has no list of
            architectures.
    """
    file = folder / "config.json"
    facts = read_json(file)
    _check_keys(file, facts, todo)
    check_sizes(file, facts)
    architectures = facts.get("architectures")
    if architectures is None:
        return facts, "none"
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise BuildError(
            f"{file} architectures",
            found=repr(architectures)[:120],
            wanted='a list of names, such as ["BertModel"]',
            todo="copy config.json again from the original checkpoint",
        )
    return facts, next(iter(architectures), "none")


def read_config(folder: Path) -> Any:
    """The configuration as transformers makes it from a config.json that `read_facts` has checked."""
    transformers = need("transformers", "models")
    with read_errors(folder / "config.json", "a configuration of transformers"), quiet():
        return transformers.AutoConfig.from_pretrained(str(folder), **FROM_FOLDER)


def load_network(folder: Path, loader: str, **options: Any) -> tuple[Any, list[str]]:
    """The network in evaluation mode in FP32, and the names of weights that the checkpoint lacks.

    transformers fills missing weights with random numbers, and only warns.

    Args:
        loader: transformers' class that loads it.
        options: further arguments of its `from_pretrained`.

    Raises:
        BuildError: the weights cannot be read, or do not fit the configuration.
    """
    torch, transformers = need("torch", "build"), need("transformers", "models")
    with read_errors(folder, "weights that fit its config.json"), quiet():
        network = getattr(transformers, loader)
        _check_memory(folder, network)
        module, report = network.from_pretrained(
            str(folder), **FROM_FOLDER, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **options
        )
    return module.eval(), sorted(report["missing_keys"])


def _check_memory(folder: Path, network: Any) -> None:
    """Refuse a network far larger than its files: transformers would fill the memory before it misses weights."""
    torch = need("torch", "build")
    automatic = hasattr(network, "from_config")
    config = read_config(folder) if automatic else network.config_class.from_pretrained(str(folder), **FROM_FOLDER)
    with torch.device("meta"):  # layers without memory
        made = network.from_config(config) if automatic else network(config)
    needed = sum(parameter.numel() for parameter in made.parameters())
    stored = sum(file.stat().st_size for file in weight_files(folder))
    if needed > _MOST_PARAMETERS_A_BYTE * stored + _FEW_PARAMETERS:
        raise BuildError(
            str(folder / "config.json"),
            found=f"a network of {needed:,} parameters, with {stored:,} bytes of weights",
            wanted="weights for all parameters that its config.json requires",
            todo="copy config.json and the weights again from the original checkpoint",
        )


def check_sizes(where: Path, facts: Mapping[str, Any]) -> None:
    """Check the sizes first, because the library creates every layer before it looks for weights."""
    for key, value in _entries(facts):
        numbers = [number for number in (value if isinstance(value, list) else [value]) if type(number) is int]
        if key in SIZES and any(number < 1 for number in numbers):
            raise BuildError(f"{where} {key}", found=str(value)[:120], wanted="a whole number above 0")
        most = next((most for names, most in _BOUNDS if names.fullmatch(key)), None)
        together = sum(number for number in numbers if number > 0)
        # A number of the file has no more digits than Python prints; the sum of several may have more.
        if most is not None and (large := next((n for n in (*numbers, together) if n > most), 0)):
            raise BuildError(
                f"{where} {key}",
                found=f"{large:,}"[:120],
                wanted=f"at most {most:,}, which is far more than the largest networks have",
            )


def _check_keys(file: Path, facts: Mapping[str, Any], todo: str) -> None:
    """Refuse keys that make transformers run code from elsewhere, or read files that are not checked."""
    for key, value in _entries(facts):
        if key == "auto_map" and value:
            raise BuildError(
                f"{file} auto_map",
                found="an architecture whose code lies in the checkpoint",
                wanted="one of transformers' own; code in a checkpoint is never run",
                todo=todo,
            )
        if key in _OTHER_FILES:
            raise BuildError(
                f"{file} {key}",
                found=repr(value)[:120],
                wanted="config.json and the weights under their usual names",
                todo="remove the key",
            )
        if _IMPLEMENTATION.fullmatch(key) and value not in _OWN_IMPLEMENTATIONS:
            raise BuildError(
                f"{file} {key}",
                found=repr(value)[:120],
                wanted="eager, sdpa or none: transformers may download code for another one",
                todo="remove the key: a server chooses its own implementation",
            )


def _entries(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each key with its value, those of nested objects too, except labels."""
    left: list[Any] = [facts]
    while left:
        part = left.pop()
        entries = {key: value for key, value in part.items() if key not in _LABELS} if isinstance(part, dict) else {}
        yield from entries.items()
        items = entries.values() if isinstance(part, dict) else part
        left += [item for item in items if isinstance(item, dict | list)]
