"""Models that this container serves without, each with the reason: no GPU for it, or a plan for another TensorRT.

It runs in the images: standard library only, and nothing of tritonkit but the copied modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from callers import configs_of, needs_of
from checks import printable
from core.cuda import why_no_provider
from core.devices import DRIVER, Driver, find_driver
from core.plans import PLAN, built_for, find_tensorrt
from core.pools import GpuNeeds

__all__ = ["ON_GPU", "Refusal", "left_out", "nothing_left", "refusals"]

ON_GPU = "KIND_GPU"
_ENGINE = re.compile(r'(backend:\s*"onnxruntime"|platform:\s*"onnxruntime_onnx")')
_PLANS = "on this machine: tritonkit build --target nvidia --in-container, with the image that serves"
_GPUS = (
    f"driver {DRIVER} or newer on the machine, the image server-gpu, and docker run --gpus all (pods: the overlay gpu);"
    " without a GPU: tritonkit build --target cpu"
)
_NUMBERS = "correct `gpus` and build it again; docker run --gpus says which GPUs the container has"


@dataclass(frozen=True)
class Refusal:
    """The reason why a model cannot be served here, and what to do."""

    found: str
    todo: str


def left_out(
    repository: Path,
    environment: Path | None = None,
    needs: Mapping[str, Any] | None = None,
    driver: Callable[[], Driver] = find_driver,
) -> dict[str, Refusal]:
    """Model -> the reason why it cannot be served here. The driver and TensorRT are asked only if a model needs them.

    Args:
        repository: the folder of the models.
        environment: tritonkit's own server environment; in NVIDIA's image its own engines decide about the driver.
        needs: what the builder handed over.
        driver: gives what the driver answers.
    """
    without = _other_plans(repository, driver) | _without_gpu(repository, environment, needs or {}, driver)
    calls = needs_of(repository)
    while more := {
        name: parts & without.keys() for name, parts in calls.items() if name not in without and parts & without.keys()
    }:
        for name, parts in more.items():
            todo = without[min(parts)].todo
            without[name] = Refusal(f"it calls {', '.join(sorted(parts))}, which cannot be served", todo)
    return without


def _other_plans(repository: Path, driver: Callable[[], Driver]) -> dict[str, Refusal]:
    folders = sorted({file.parent for file in repository.glob(f"*/[0-9]*/{PLAN}")})
    plans = [(folder, plan) for folder in folders if (plan := built_for(folder)) is not None]
    if not plans:
        return {}
    tensorrt = find_tensorrt()
    devices = [(f"GPU {number} ({one.name})", one.capability) for number, one in enumerate(driver().devices)]
    reasons = {folder.parent.name: plan.misfit(tensorrt, devices) for folder, plan in plans}
    return {name: Refusal(reason, _PLANS) for name, reason in reasons.items() if reason}


def _without_gpu(
    repository: Path, environment: Path | None, needs: Mapping[str, Any], driver: Callable[[], Driver]
) -> dict[str, Refusal]:
    configs = {name: text for name, text in configs_of(repository).items() if ON_GPU in text}

    @cache
    def unusable() -> str:
        """The reason why our ONNX Runtime cannot use a GPU that is there."""
        return "" if environment is None else driver().too_old or why_no_provider(environment)

    refused = {}
    for name, text in configs.items():
        if wrong := driver().wrong or (unusable() if _ENGINE.search(text) else ""):
            refused[name] = Refusal(f"it asks for a GPU ({ON_GPU}): {wrong}", _GPUS)
        elif wrong := _absent(needs.get("gpu_models", {}).get(name), len(driver().devices)):
            refused[name] = Refusal(wrong, _NUMBERS)
    return refused


def _absent(needs: Mapping[str, Any] | None, count: int) -> str:
    """The reason for a model that names a GPU that is not there."""
    numbers = sorted(GpuNeeds.from_dict(needs).instances(count)) if needs else []
    absent = ", ".join(str(number) for number in numbers if number >= count)
    return f"its instance_group names GPU {absent}, and CUDA sees {count} here" if absent else ""


def refusals(without: Mapping[str, Refusal]) -> list[str]:
    """A line for each model that is left out."""
    return [
        f"model {printable(name)}: not served: {printable(refusal.found)}; do: {refusal.todo}"
        for name, refusal in without.items()
    ]


def nothing_left(without: Mapping[str, Refusal]) -> tuple[str, str]:
    """The finding and the remedy where no model can be served."""
    found = "; ".join(f"model {printable(name)}: {refusal.found}" for name, refusal in without.items())
    return found, "; ".join(dict.fromkeys(refusal.todo for refusal in without.values()))
