"""The parts of a model folder that `--hf` writes, by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonkit.repository.scaffold.hf_checkpoint import CHECKPOINT

__all__ = ["Labels", "Parts", "label_parts", "network_code"]

_MOST_LABELS = 5
"""Labels that an answer has at most, best first."""


@dataclass(frozen=True)
class Parts:
    """A model folder before it is written.

    Args:
        loader: transformers' class that loads the network.
        inputs: inputs of the network, as a spec writes them.
        outputs: its outputs, by the names that transformers gives them, or those of `expressions`.
        free_axes: sizes of axes named in shapes.
        pipeline: steps around the network.
        example: an example of the text or the file.
        quality: lines that show how to measure quality, without their #.
        attention: transformers' implementation of attention, where the default one cannot be traced.
        part: attribute of the loaded module that is served; "" for the whole.
        forward: expression of the only output in terms of `output`, what the network returns; "" to take it by name.
        normalized: whether the vectors of `forward` get length 1.
        files: files of the model's folder other than the checkpoint.
        carried: files of the checkpoint that the steps need.
        notes: comments for the end of model.yaml.
        missing: weights that the checkpoint lacks, where the network was loaded already; else None.
    """

    loader: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    pipeline: Sequence[Any]
    example: Mapping[str, Any]
    quality: Sequence[str]
    free_axes: Mapping[str, Any] = field(default_factory=dict)
    attention: str = ""
    part: str = ""
    forward: str = ""
    normalized: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    carried: Sequence[Path] = ()
    notes: Sequence[str] = ()
    missing: Sequence[str] | None = None


@dataclass(frozen=True)
class Labels:
    """The step behind a classifier, and the file with its labels."""

    step: Mapping[str, Any]
    files: Mapping[str, bytes]


def label_parts(labels: Sequence[str], config: Any) -> Labels:
    """The best labels with their probabilities, or with each label's own where an item may have several."""
    lines = [" ".join(label.split()) or f"LABEL_{number}" for number, label in enumerate(labels)]
    parameters: dict[str, Any] = {"labels": "labels.txt", "k": min(_MOST_LABELS, len(lines))}
    if getattr(config, "problem_type", None) == "multi_label_classification" or len(lines) == 1:
        parameters["function"] = "sigmoid"
    text = "".join(f"{line}\n" for line in lines)
    return Labels({"step": "labels", "parameters": parameters}, {"labels.txt": text.encode()})


def network_code(architecture: str, parts: Parts) -> str:
    """network.py: a function that loads the checkpoint with transformers."""
    attention = f'\n        attn_implementation="{parts.attention}",' if parts.attention else ""
    served = f"module.{parts.part}" if parts.part else "module"
    made = f"Network({served})" if parts.forward else served
    return f'''"""The network of {CHECKPOINT}/, a {architecture}."""

from pathlib import Path

import torch
from transformers import {parts.loader}
from transformers.utils import logging

{_wrapper(parts) if parts.forward else ""}
def build() -> torch.nn.Module:
    """The module with its weights; model.yaml names its inputs and its outputs."""
    logging.disable_progress_bar()
    module = {parts.loader}.from_pretrained(
        Path(__file__).parent / "{CHECKPOINT}",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,{attention}
    )
    return {made}
'''


def _wrapper(parts: Parts) -> str:
    """A module around that of transformers, with one output."""
    names = list(parts.inputs)
    taken = ", ".join(f"{name}: torch.Tensor" for name in names)
    given = ", ".join(f"{name}={name}" for name in names)
    [made] = parts.outputs
    result = f"torch.nn.functional.normalize({made}, dim=-1)" if parts.normalized else made
    return f'''
class Network(torch.nn.Module):
    """The module of transformers, of whose results only one is served."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, {taken}) -> dict[str, torch.Tensor]:
        output = self.module({given})
        {made} = {parts.forward}
        return {{"{made}": {result}}}

'''
