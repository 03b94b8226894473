"""`tritonkit new --hf`: a folder for a checkpoint of an encoder, with the steps around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError, UsageError
from tritonkit.repository.export.plain_files import require_room
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.scaffold.folder import refuse_taken, write_folder
from tritonkit.repository.scaffold.hf_checkpoint import CHECKPOINT, Encoder, read_encoder
from tritonkit.repository.scaffold.hf_images import image_parts, image_tower
from tritonkit.repository.scaffold.hf_parts import Parts, network_code
from tritonkit.repository.scaffold.hf_sounds import sound_parts
from tritonkit.repository.scaffold.hf_text import text_parts, text_tower
from tritonkit.repository.scaffold.hf_whisper import whisper_parts
from tritonkit.text import printable

__all__ = ["new_from_hf"]

_PARTS: dict[str, Callable[[Encoder], Parts]] = {
    "input_ids": text_parts,
    "pixel_values": image_parts,
    "input_values": sound_parts,
    "input_features": whisper_parts,
}
"""Main input of a network -> the parts around it."""
_VARIANTS = ("onnx-fp16", "onnx-int8-dynamic", "onnx-int8-static", "openvino-bf16")
"""Variants that a comment of model.yaml proposes."""


def new_from_hf(root: Path, name: str, folder: Path, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Folders below `models/` for a Hugging Face checkpoint of an encoder, with a copy of it: two for two towers.

    Raises:
        UsageError: the checkpoint cannot be served; the message says which file shows that.
    """
    refuse_taken(root, name)
    with _as_usage_error():
        encoder = read_encoder(folder)
        models = _models(name, encoder)
        for model, parts in models.items():
            refuse_taken(root, model)
            _check_weights(encoder, parts)
        size = sum(file.stat().st_size for file in encoder.weights) * len(models)
        require_room(root, size, str(folder))
        say(f"{encoder.architecture}: copying {format_bytes(size)} ...")
        return [_write(root, model, encoder, parts) for model, parts in models.items()]


def _models(name: str, encoder: Encoder) -> dict[str, Parts]:
    """The models that a checkpoint becomes, by name."""
    if encoder.task == "towers":
        return {f"{name}_text": text_tower(encoder), f"{name}_image": image_tower(encoder)}
    if encoder.takes not in _PARTS:
        raise encoder.refusal(
            "config.json architectures",
            f"{encoder.architecture}, whose input is {encoder.takes}",
            f"a network that takes {', '.join(_PARTS)}",
            "serve it with --torch, or from an ONNX file",
        )
    return {name: _PARTS[encoder.takes](encoder)}


def _write(root: Path, name: str, encoder: Encoder, parts: Parts) -> Path:
    network: dict[str, Any] = {"torch": "network:build", "inputs": parts.inputs, "outputs": parts.outputs}
    if parts.free_axes:
        network["free_axes"] = parts.free_axes
    settings = {
        "description": f"{encoder.architecture} of {printable(encoder.folder.resolve().name, lines=False)}",
        "network": network,
        "pipeline": parts.pipeline,
        "example": parts.example,
    }
    carried = [encoder.folder / "config.json", *parts.carried, *encoder.weights]
    files = {f"{CHECKPOINT}/{file.name}": file.resolve() for file in carried}
    code = {"network.py": network_code(encoder.architecture, parts).encode(), **parts.files}
    return write_folder(root, name, settings, files, code, ((), _quality(parts)))


def _quality(parts: Parts) -> list[str]:
    return [
        *parts.notes,
        "# Your own data, on which a build measures and compares variants; without it, input is made up.",
        "# quality:",
        *(f"#   {line}" for line in parts.quality),
        f"# optimize: {{calibration: {_calibration(parts)}, variants: [{', '.join(_VARIANTS)}]}}",
    ]


def _calibration(parts: Parts) -> str:
    """The samples' own form, without the columns that only a metric needs."""
    for form, file in (("csv", "calibration.csv"), ("jsonl", "calibration.jsonl"), ("folder", "calibration")):
        if any(f"{{{form}: " in line for line in parts.quality):
            return f"{{{form}: {file}}}"
    return "data:calibration_batches"


def _check_weights(encoder: Encoder, parts: Parts) -> None:
    """Load the network unless that is done: transformers fills missing weights with random numbers, and only warns."""
    missing = encoder.load(parts.loader)[1] if parts.missing is None else parts.missing
    # A pooler in addition to the last hidden states is not served.
    if missing := [weight for weight in missing if "pooler." not in weight or "pooler_output" in parts.forward]:
        raise encoder.refusal(
            "", f"no weights for {missing[0]} and {len(missing) - 1} more", "all weights that its config.json requires"
        )


@contextmanager
def _as_usage_error() -> Iterator[None]:
    """A checkpoint that cannot be served is a mistake on the command line: nothing is built yet."""
    try:
        yield
    except BuildError as error:
        where = f"--hf {error.where}" if error.where else "--hf"
        raise UsageError(
            where, found=error.found, wanted=error.wanted, todo=error.todo, details=error.details
        ) from error
