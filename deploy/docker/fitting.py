"""Models that this container serves without: TensorRT plans for another version or GPU, and ensembles that need one.

It runs in the images: standard library only, and nothing of tritonkit but the copied modules.
"""

from __future__ import annotations

from pathlib import Path

from callers import needs_of
from checks import printable
from core.devices import find_driver
from core.plans import PLAN, built_for, find_tensorrt

__all__ = ["left_out", "refusals"]

_TODO = "on this machine: tritonkit build --target nvidia --in-container, with the image that serves"


def left_out(repository: Path) -> dict[str, str]:
    """Model -> the reason why it cannot be served here. The driver and TensorRT are asked only if there are plans."""
    folders = sorted({file.parent for file in repository.glob(f"*/[0-9]*/{PLAN}")})
    plans = [(folder, plan) for folder in folders if (plan := built_for(folder)) is not None]
    if not plans:
        return {}
    tensorrt = find_tensorrt()
    devices = [(f"GPU {number} ({one.name})", one.capability) for number, one in enumerate(find_driver().devices)]
    without = {folder.parent.name: wrong for folder, plan in plans if (wrong := plan.misfit(tensorrt, devices))}
    needs = needs_of(repository)
    while more := {
        name: parts & without.keys() for name, parts in needs.items() if name not in without and parts & without.keys()
    }:
        without |= {
            name: f"it calls {', '.join(sorted(parts))}, which cannot be served" for name, parts in more.items()
        }
    return without


def refusals(without: dict[str, str]) -> list[str]:
    """A line for each model that is left out."""
    return [f"model {printable(name)}: not served: {printable(why)}; do: {_TODO}" for name, why in without.items()]
