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
from core.tensorrt import PACKAGE, why_no_tensorrt

__all__ = ["ON_GPU", "Refusal", "left_out", "nothing_left", "refusals"]

ON_GPU = "KIND_GPU"
_ENGINE = re.compile(r'(backend:\s*"onnxruntime"|platform:\s*"onnxruntime_onnx")')
_ACCELERATOR = re.compile(r'gpu_execution_accelerator\s*\{\s*name:\s*"tensorrt"')
_PLANS = "on this machine: tritonkit build --target nvidia --in-container, with the image that serves"
_GPUS = (
    f"driver {DRIVER} or newer on the machine, the image server-gpu, and docker run --gpus all (pods: the overlay gpu);"
    " without a GPU: tritonkit build --target cpu"
)
_TENSORRT = f"install {PACKAGE} into the image's environment (docs/gpu.md), or remove the accelerator and build again"
_OTHER_GPU = "correct `gpus` and build it again; docker run --gpus says which GPUs the container has"


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
    without = _other_plans(repository, needs or {}, driver) | _without_gpu(repository, environment, needs or {}, driver)
    calls = needs_of(repository)
    while more := {
        name: parts & without.keys() for name, parts in calls.items() if name not in without and parts & without.keys()
    }:
        for name, parts in more.items():
            todo = without[min(parts)].todo
            without[name] = Refusal(f"it calls {', '.join(sorted(parts))}, which cannot be served", todo)
    return without


def _other_plans(repository: Path, needs: Mapping[str, Any], driver: Callable[[], Driver]) -> dict[str, Refusal]:
    """Models whose newest plan does not fit the TensorRT here, or one of the GPUs that are to run it."""
    versions = (file.parent for file in repository.glob(f"*/[0-9]*/{PLAN}") if file.parent.name.isdecimal())
    newest = {folder.parent.name: folder for folder in sorted(versions, key=lambda folder: int(folder.name))}
    plans = {name: plan for name, folder in sorted(newest.items()) if (plan := built_for(folder)) is not None}
    if not plans:
        return {}
    tensorrt, devices, refused = find_tensorrt(), driver().devices, {}
    for name, plan in plans.items():
        numbers = _numbers(needs.get("gpu_models", {}).get(name), len(devices)) or range(len(devices))
        own = [(f"GPU {n} ({devices[n].name})", devices[n].capability) for n in numbers if n < len(devices)]
        if reason := plan.misfit(tensorrt, own):
            refused[name] = Refusal(reason, _PLANS)
    return refused


def _without_gpu(
    repository: Path, environment: Path | None, needs: Mapping[str, Any], driver: Callable[[], Driver]
) -> dict[str, Refusal]:
    configs = {name: text for name, text in configs_of(repository).items() if ON_GPU in text}

    @cache
    def unusable() -> str:
        """The reason why our ONNX Runtime cannot use a GPU that is there."""
        return "" if environment is None else driver().too_old or why_no_provider(environment)

    @cache
    def no_tensorrt() -> str:
        return "" if environment is None else why_no_tensorrt(environment)

    refused = {}
    for name, text in configs.items():
        if wrong := driver().wrong or (unusable() if _ENGINE.search(text) else ""):
            refused[name] = Refusal(f"it asks for a GPU ({ON_GPU}): {wrong}", _GPUS)
        elif wrong := _absent(needs.get("gpu_models", {}).get(name), len(driver().devices)):
            refused[name] = Refusal(wrong, _OTHER_GPU)
        elif wrong := no_tensorrt() if _ENGINE.search(text) and _ACCELERATOR.search(text) else "":
            refused[name] = Refusal(f"its accelerator is tensorrt: {wrong}", _TENSORRT)
    return refused


def _absent(needs: Mapping[str, Any] | None, count: int) -> str:
    """The reason for a model that names a GPU that is not there."""
    absent = ", ".join(str(number) for number in _numbers(needs, count) if number >= count)
    return f"its instance_group names GPU {absent}, and CUDA sees {count} here" if absent else ""


def _numbers(needs: Mapping[str, Any] | None, count: int) -> list[int]:
    """The GPUs that are to run a model, by what the builder handed over; none without that."""
    return sorted(GpuNeeds.from_dict(needs).instances(count)) if needs else []


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
