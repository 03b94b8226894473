"""The loaded language model: its inputs, its window, and the worth of a text in tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tritonkit.client.language_models import text_tensors
from tritonkit.errors import InferenceError, InvalidInput, UsageError
from tritonkit.perf.load.generation.prompts import Corpus, Fit, fit

if TYPE_CHECKING:
    from tritonkit.client import Client, Model

T = TypeVar("T")

__all__ = ["Target", "is_language_model", "look_at", "words_of_tokens"]

_REFUSED = ("INVALID_ARGUMENT", "[INVALID_ARGUMENT]")
"""Beginnings of a stream's errors, which have no status."""
_FULL = ("UNAVAILABLE", "[UNAVAILABLE]")
_PATIENCE_S, _AGAIN_S = 30.0, 0.1
_LARGEST = 1 << 20
"""The largest window in tokens that is tried."""
_SHORT, _LONG = 4, 120
"""Words of the texts whose tokens the server counts."""
_TEXTS = 24
_TEXT_SEED = 1_000_003


@dataclass(frozen=True)
class Target:
    """A language model as its servers have it.

    Args:
        name: the model's name.
        inputs: the names of its inputs.
        window: the most tokens of prompt and answer together.
        repeatable: whether greedy answers must be the same whatever else is in the batch.
    """

    name: str
    inputs: frozenset[str]
    window: int
    repeatable: bool


def is_language_model(client: Client, name: str) -> bool:
    """Whether a served model completes texts in a stream, by its tensors and its decoupled policy.

    Raises:
        ClientError: the server does not answer, or does not serve the model.
    """
    signature = client.model(name).signature
    tensors = text_tensors(signature)
    if tensors is None or not tensors.completes(signature):
        return False
    return bool(client.config(name).model_transaction_policy.decoupled)


def look_at(client: Client, name: str) -> Target:
    """Facts about a model that a load needs.

    Raises:
        UsageError: the model is not a language model, or takes no `max_tokens`.
        ClientError: the server does not answer, does not serve the model, or refuses everything.
    """
    model = client.model(name)
    inputs = frozenset(model.signature.inputs)
    if not is_language_model(client, name) or "max_tokens" not in inputs:
        raise UsageError(
            f"model {name} at {client.address}",
            found="it is not a language model",
            wanted="a decoupled model with the tensors of docs/llm.md: text, max_tokens, tokens and so on",
        )
    config = client.config(name)
    exact = _parameter(config, "cache_precision") in ("", "f16")
    exact = exact and _parameter(config, "inference_precision") in ("", "f32")
    context = _parameter(config, "context")
    return Target(
        name,
        inputs,
        _window(model, int(context) if context.isdecimal() else 0),
        # With other precisions an answer depends on its neighbors in the batch; other backends promise nothing.
        config.backend == "llm" and exact,
    )


def words_of_tokens(client: Client, target: Target, corpus: Corpus) -> Fit:
    """Ask the server for the number of tokens in some texts, of up to half its window.

    Raises:
        ClientError: the server does not answer, or refuses them.
    """
    model = client.model(target.name)
    rng = np.random.default_rng(_TEXT_SEED)
    # The costliest tokenizer has a token for each byte.
    first = _count(model, corpus.take(int(rng.integers(len(corpus.words))), _SHORT))
    longest = int(target.window / 2 / (first / _SHORT) / 1.5)
    sizes = np.geomspace(_SHORT, min(max(longest, _SHORT), _LONG), _TEXTS).astype(int)
    excerpts = [(int(rng.integers(len(corpus.words))), int(size)) for size in sizes]
    counted = np.array([_count(model, corpus.take(*excerpt)) for excerpt in excerpts])
    return fit(corpus, excerpts, counted)


def _patiently(ask: Callable[[], T]) -> T:
    """Ask again for some seconds if the server has no free place; an abandoned place is free a moment later."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except InferenceError as error:
            if not error.found.startswith(_FULL) or time.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)


def _count(model: Model, text: str) -> int:
    replies = _patiently(lambda: list(model.stream(text=text, max_tokens=1)))
    if not replies or "prompt_tokens" not in replies[-1].outputs:
        raise InferenceError(f"model {model.name}", found="a stream whose last reply has no prompt_tokens")
    return int(replies[-1]["prompt_tokens"].item())


def _window(model: Model, context: int) -> int:
    """Tokens of the longest sequence that is not refused: the configuration's, or less if the cache is smaller."""
    prompt = _count(model, "a")

    def takes(tokens: int) -> bool:
        return _patiently(lambda: _takes(model, tokens))

    if context > prompt + 1 and takes(context - prompt):
        return context
    high = 2
    while high < _LARGEST and takes(high):
        high *= 2
    return prompt + (high if high >= _LARGEST else _last(takes, high // 2, high))


def _last(takes: Callable[[int], bool], low: int, high: int) -> int:
    """The largest accepted number, if `low` is accepted and `high` is not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low


def _takes(model: Model, tokens: int) -> bool:
    """Whether the server begins a request for this number of tokens; the stream is closed at its first reply."""
    try:
        with model.stream(text="a", max_tokens=tokens) as replies:
            next(replies, None)
    except InvalidInput:
        return False
    except InferenceError as error:
        if not error.found.startswith(_REFUSED):
            raise
        return False
    return True


def _parameter(config: Any, name: str) -> str:
    return str(config.parameters[name].string_value) if name in config.parameters else ""
