"""The files of a local Hugging Face checkpoint: checked before any library reads them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.plain_files import plain_file
from tritonkit.repository.export.safetensors_header import check_header
from tritonkit.text import first_line

__all__ = ["carried_files", "check_files", "check_weights", "read_errors", "read_json", "weight_files"]

_WEIGHTS = ".safetensors"
_MOST_BYTES = 64 << 20
"""Largest file other than weights: a tokenizer of 250,000 tokens has about 20 MiB."""
_MOST_TEMPLATE_BYTES = 1 << 19
_ADAPTER = "adapter_config.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def carried_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of these names that a folder has."""
    return [file for name in names if os.path.lexists(file := folder / name)]


def weight_files(folder: Path) -> list[Path]:
    """The files with weights, and their index."""
    return sorted([*folder.glob(f"*{_WEIGHTS}"), *folder.glob(f"*{_WEIGHTS}.index.json")])


def check_files(folder: Path, needed: Sequence[str], carried: Sequence[str]) -> None:
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
    for file in carried_files(folder, carried):
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
    names = [file.name for file in files]
    for index in folder.glob(f"*{_WEIGHTS}.index.json"):
        plain_file(index, folder, _MOST_BYTES)
        places = read_json(index).get("weight_map")
        named = list(places.values()) if isinstance(places, dict) else [places]
        if unknown := [name for name in named if name not in names]:
            raise BuildError(
                f"{index} weight_map",
                found=f"weights in {str(unknown[0])[:120]!r}",
                wanted=f"the {_WEIGHTS} files of its folder",
                todo="copy the missing files too",
            )


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


def read_json(file: Path) -> dict[str, Any]:
    """The object of a JSON file of a checkpoint."""
    with read_errors(file, "a JSON object"):
        text = file.read_text(encoding="utf-8")
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError(f"it is a {type(value).__name__}")
        if _SURROGATE.search(text):  # half a character cannot be written into any file
            json.dumps(value, ensure_ascii=False).encode()
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
