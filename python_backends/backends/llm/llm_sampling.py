"""A checked request as the engine's configuration of one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_config import Settings
    from llm_request import Task


def config_maker(settings: Settings) -> Callable[[Task], Any]:
    """A function that makes the engine's configuration of one request."""
    from openvino_genai import GenerationConfig, StructuredOutputConfig

    def make(task: Task) -> Any:
        config = GenerationConfig()
        if task.grammar:
            config.structured_output_config = StructuredOutputConfig(grammar=task.grammar)
        config.max_new_tokens = task.max_tokens
        config.ignore_eos = task.ignore_eos or not settings.stop_tokens
        # The engine refuses a configuration without any, even if they are ignored.
        stops = set(settings.stop_tokens) or {0}
        config.eos_token_id = min(stops)
        config.stop_token_ids = stops
        # It would forbid the tokens that are ignored.
        config.min_new_tokens = 0 if config.ignore_eos else task.min_tokens
        config.repetition_penalty = task.repetition_penalty
        config.presence_penalty = task.presence_penalty
        config.frequency_penalty = task.frequency_penalty
        config.logprobs = int(task.logprobs)
        config.do_sample = task.temperature > 0
        if config.do_sample:
            config.temperature = task.temperature
            config.top_p = task.top_p
            if task.top_k:
                config.top_k = task.top_k
            config.rng_seed = task.seed if task.seed is not None else _chance()
        return config

    return make


def _chance() -> int:
    """A seed for a request without one, because the engine's own would be the same for all."""
    import secrets

    return secrets.randbits(63)
