"""A causal language model as an OpenVINO graph, with the keys and values of earlier tokens as inputs and outputs."""

from __future__ import annotations

from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.optimize.openvino_core import convert_module, first_reason

__all__ = ["trace"]

_BATCH, _NEW, _BEFORE = 2, 3, 5
"""Sizes of the example, all different, so that none is taken for another."""


def trace(network: Any, where: str) -> Any:
    """The openvino.Model of a transformers causal language model.

    Inputs: input_ids int64 [batch, new], attention_mask int64 [batch, before + new], position_ids int64 [batch, new],
    and for each layer its keys and values float32 [batch, heads, before, size]; outputs: logits float32
    [batch, new, vocabulary], and each layer's keys and values with the new tokens.

    Raises:
        BuildError: OpenVINO lacks an operator of the network, or the network keeps its state in another way.
    """
    torch = need("torch", "build")
    try:
        with torch.no_grad(), quiet():
            past = _example_past(torch, network)
            example = {
                "input_ids": torch.zeros(_BATCH, _NEW, dtype=torch.int64),
                "attention_mask": torch.ones(_BATCH, _BEFORE + _NEW, dtype=torch.int64),
                "position_ids": torch.arange(_BEFORE, _BEFORE + _NEW).repeat(_BATCH, 1),
                "past": past,
            }
            return convert_module(_stepping(torch, network), example)
    except MemoryError:
        raise
    except Exception as error:  # whatever the network's own code, torch or OpenVINO raises
        raise BuildError(
            where,
            found=f"{type(network).__name__} cannot be converted: {first_reason(error)}",
            wanted="an architecture with keys and values for each layer, and operators that OpenVINO supports",
        ) from error


def _example_past(torch: Any, network: Any) -> tuple[Any, ...]:
    """Keys and values of a few tokens, in the shapes that the network itself makes."""
    ids = torch.zeros(_BATCH, _BEFORE, dtype=torch.int64)
    layers = network(input_ids=ids, use_cache=True).past_key_values.layers
    return tuple(tensor for layer in layers for tensor in (layer.keys, layer.values))


def _stepping(torch: Any, network: Any) -> Any:
    """A module that takes its cache as arguments, so that the traced graph has no Python state."""
    transformers = need("transformers", "models")

    class Past(transformers.DynamicCache):  # type: ignore[misc, name-defined]
        """Gives each layer its earlier keys and values, and keeps them with the new ones added."""

        def __init__(self, before: tuple[Any, ...]) -> None:
            super().__init__()
            self.before, self.after = before, [*before]

        def update(self, key: Any, value: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
            for place, new in ((2 * layer, key), (2 * layer + 1, value)):
                self.after[place] = torch.cat([self.before[place], new], dim=-2)
            return self.after[2 * layer], self.after[2 * layer + 1]

        def get_seq_length(self, layer: int = 0) -> Any:
            return self.before[2 * layer].shape[-2]

    class Stepping(torch.nn.Module):  # type: ignore[misc]
        """Runs the network on new tokens after those in the cache."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past: Any) -> Any:
            new, every = input_ids.shape[1], attention_mask.shape[1]
            keys, queries = torch.arange(every), torch.arange(new) + (every - new)
            seen = (keys[None, :] <= queries[:, None])[None, None]
            cache = Past(past)
            output = self.network(
                input_ids=input_ids,
                position_ids=position_ids,
                use_cache=True,
                past_key_values=cache,
                attention_mask=seen & attention_mask[:, None, None, :].bool(),
            )
            return (output.logits, *cache.after)

    return Stepping().eval()
