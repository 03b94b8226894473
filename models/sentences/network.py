"""The transformer of all-MiniLM-L6-v2: 6 layers, 384 wide, 22.7 million parameters."""

import json

import torch
from package import package_folder
from transformers import BertConfig, BertModel


class SentenceNetwork(BertModel):
    """BERT that gives only its last hidden state."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """int64 [batch, length], twice -> float32 [batch, length, 384]."""
        # The additive mask is made here, because the one transformers makes does not trace.
        hidden = (1.0 - attention_mask[:, None, None, :].to(self.dtype)) * torch.finfo(self.dtype).min
        return super().forward(input_ids=input_ids, attention_mask=hidden).last_hidden_state


def build() -> SentenceNetwork:
    """The network with the package's configuration, and weights still to be loaded."""
    settings = json.loads((package_folder() / "config.json").read_text())
    return SentenceNetwork(BertConfig(**settings))
