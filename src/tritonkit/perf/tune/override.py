"""Configurations of a tuned model that go with a load, and how they differ from those that are served. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tritonkit.perf.tune.space import Point, tuned
from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import Target
from tritonkit.repository.pipeline import render_models
from tritonkit.repository.render.message import parse_text

__all__ = ["Configs", "configurations", "in_order", "unlike"]

Configs: TypeAlias = Mapping[str, Any]
"""Triton model -> its `ModelConfig` message; the parts of an ensemble before it."""


def configurations(
    spec: Spec, artifact: Artifact, root: Path, cores: int, point: Point, target: Target = "cpu"
) -> dict[str, Any]:
    """The files that a build for a target would publish of a spec served in this way, on a machine with a number of
    cores.

    Raises:
        RenderError: it cannot be served in this way.
    """
    rendered = render_models(tuned(spec, point, root, target), artifact, root, target, cores)
    return {model.plan.name: parse_text(model.config, f"{model.plan.name}/config.pbtxt") for model in rendered}


def unlike(expected: Any, actual: Any) -> str | None:
    """The first relevant difference between two `ModelConfig` messages of a model, in words.

    What Triton fills in (names of instance groups, files, defaults) and the warm-up do not matter.
    """
    pairs = zip(_facts(expected).items(), _facts(actual).values(), strict=True)
    return next((f"{key} {b}, not {a}" for (key, a), b in pairs if a != b), _other_device(expected, actual))


def _other_device(expected: Any, actual: Any) -> str | None:
    """The first group of instances on another device; Triton decides where a group without a kind runs."""
    for rendered, served in zip(expected.instance_group, actual.instance_group, strict=False):
        if rendered.kind not in (served.kind, rendered.KIND_AUTO):
            names = [group.Kind.Name(group.kind).removeprefix("KIND_") for group in (served, rendered)]
            return f"instances on {names[0]}, not {names[1]}"
    return None


def in_order(configs: Configs, served: Configs) -> list[str]:
    """The models in the order in which their loads leave each ensemble with parts that take its batches.

    Triton stops serving an ensemble of larger batches than a part of it takes: one that shrinks goes before its
    parts, one that grows after them.
    """

    def place(name: str) -> int:
        config = configs[name]
        if not config.HasField("ensemble_scheduling"):
            return 0
        before = served[name].max_batch_size if name in served else 0
        return -1 if config.max_batch_size < before else 1

    return sorted(configs, key=place)


def _facts(config: Any) -> dict[str, Any]:
    batching = config.dynamic_batching
    return {
        "backend": config.backend or config.platform,
        "inputs": [_tensor(tensor) for tensor in config.input],
        "outputs": [_tensor(tensor) for tensor in config.output],
        "max_batch_size": config.max_batch_size,
        "dynamic_batching": {
            # Without one, Triton uses the largest.
            "preferred_batch_size": sorted(batching.preferred_batch_size) or [config.max_batch_size],
            "max_queue_delay_microseconds": batching.max_queue_delay_microseconds,
        }
        if config.HasField("dynamic_batching")
        else "off",
        "instance counts": [instances.count for instances in config.instance_group]
        if not config.HasField("ensemble_scheduling")
        else [],
        "parameters": {key: config.parameters[key].string_value for key in sorted(config.parameters)},
    }


def _tensor(tensor: Any) -> str:
    return f"{tensor.name} {list(tensor.dims)} of type {tensor.data_type}"
