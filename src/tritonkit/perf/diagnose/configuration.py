"""Models' configurations, and the role of each model in an ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from tritonkit.perf.diagnose.snapshot import LanguageFacts, ModelFacts
from tritonkit.repository.render.fields import IN_FLIGHT
from tritonkit.serve.calls import CALLS

__all__ = ["DEFAULTS", "Role", "facts_of", "roles_of"]

Role: TypeAlias = Literal["before", "network", "after"]

_BEFORE = ("decode", "tokenize", "preprocess", "pre_process")
_AFTER = ("top_k", "pool", "postprocess", "post_process")
_FEW = 3
DEFAULTS = {"max_sequences": 32, "max_batched_tokens": 256}
"""Defaults of the backend `llm`, equal to those of its `llm_config.py` (a test compares them)."""


def facts_of(config: Any) -> ModelFacts:
    """Read a `ModelConfig` message."""
    return ModelFacts(
        name=config.name,
        max_batch_size=config.max_batch_size,
        instances=sum(group.count for group in config.instance_group) or 1,
        python=config.backend == "python",
        gpu=_on_gpu(config),
        builds_plans=_builds_plans(config),
        batches=config.HasField("dynamic_batching"),
        sequences=config.HasField("sequence_batching"),
        delay_ms=config.dynamic_batching.max_queue_delay_microseconds / 1e3,
        open_axes=tuple(
            tensor.name
            for tensor in config.input
            if any(size < 0 for size in tensor.dims) and not tensor.allow_ragged_batch
        ),
        caches=config.response_cache.enable,
        bounded=_is_bounded(config.dynamic_batching),
        in_flight=_in_flight(config),
        steps=tuple(dict.fromkeys(s.model_name for s in config.ensemble_scheduling.step)),
        calls=_calls(config),
        language=_language(config) if config.backend == "llm" else None,
    )


def _parameter(config: Any, key: str) -> str:
    # Reading a key that is not there would add it.
    return str(config.parameters[key].string_value) if key in config.parameters else ""


def _calls(config: Any) -> tuple[str, ...]:
    return tuple(_parameter(config, CALLS).split())


def _in_flight(config: Any) -> int:
    """Read the bound as the guard does: a value that is not a number bounds nothing."""
    text = _parameter(config, IN_FLIGHT)
    return int(text) if text.isascii() and text.isdigit() else 0


def _on_gpu(config: Any) -> bool:
    return any(group.kind == group.KIND_GPU for group in config.instance_group)


def _builds_plans(config: Any) -> bool:
    """Whether ONNX Runtime's CUDA provider runs it without graphs; TensorRT has plans for all sizes."""
    accelerators = [one.name for one in config.optimization.execution_accelerators.gpu_execution_accelerator]
    runs_cuda = config.backend == "onnxruntime" and "tensorrt" not in accelerators
    return runs_cuda and _on_gpu(config) and not config.optimization.cuda.graphs


def _is_bounded(batching: Any) -> bool:
    """Whether Triton fetches no batch ahead for the queue (`PriorityQueue`, core's src/scheduler_utils.cc)."""
    policy = batching.default_queue_policy
    bounds = (policy.max_queue_size, policy.default_timeout_microseconds, batching.priority_levels)
    return any(bounds) or bool(policy.allow_timeout_override)


def _language(config: Any) -> LanguageFacts:
    """Read the configuration of a language model; a value that is not a number would not have loaded."""

    def number(key: str) -> int:
        return int(config.parameters[key].string_value or DEFAULTS[key])

    static = config.parameters["batching"].string_value == "static"
    return LanguageFacts(number("max_sequences"), number("max_batched_tokens"), static)


def roles_of(ensemble: ModelFacts, facts: Mapping[str, ModelFacts]) -> dict[str, Role]:
    """The role of each step: a step outside of Python is the network; the name or place of any other step decides.

    If all names say nothing and two steps run in Python, both count as the network.
    """
    steps = ensemble.steps
    networks = [name for name in steps if name in facts and not facts[name].python]
    if networks and len(networks) < len(steps):
        first, last = steps.index(networks[0]), steps.index(networks[-1])
    elif len(steps) >= _FEW:
        first, last = 1, len(steps) - 2
    else:
        first, last = 0, len(steps) - 1
    roles: dict[str, Role] = {}
    for place, name in enumerate(steps):
        roles[name] = "before" if place < first else "after" if place > last else "network"
        if name not in networks:
            roles[name] = _by_name(name) or roles[name]
    return roles


def _by_name(name: str) -> Role | None:
    if any(word in name for word in _BEFORE):
        return "before"
    return "after" if any(word in name for word in _AFTER) else None
