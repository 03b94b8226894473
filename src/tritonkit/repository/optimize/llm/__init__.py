"""Causal language models: from a Hugging Face checkpoint to the files that OpenVINO GenAI runs with paged attention."""

from tritonkit.repository.optimize.llm.convert import WEIGHTS, Weights, convert_checkpoint

__all__ = ["WEIGHTS", "Weights", "convert_checkpoint"]
