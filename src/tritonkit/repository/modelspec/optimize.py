"""`optimize` of model.yaml: what the optimized forms of a network are made with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tritonkit.repository.modelspec.base import Hook, Strict
from tritonkit.repository.modelspec.units import Bytes

__all__ = ["CalibrationMethod", "Optimize", "Teacher", "TensorRT"]

CalibrationMethod = Literal["minmax", "entropy", "percentile"]


class Teacher(Strict):
    """A larger network that smaller ones are made from."""

    torch: Hook
    """Function without arguments that returns a torch.nn.Module."""
    train: Hook | None = None
    """Function that takes the module and trains it in place."""


class TensorRT(Strict):
    """How TensorRT plans are built."""

    memory_limit: Bytes | None = None
    """Most scratch memory a layer may use; without it, TensorRT's own limit."""
    hardware_compatibility: Literal["none", "ampere_plus", "same_compute_capability"] = "none"
    """Which other GPUs may run the plan; each costs some speed."""
    version_compatible: bool = False
    """Whether later TensorRT versions may run the plan."""


class Optimize(Strict):
    """What variants are built, and the data and settings they need."""

    variants: tuple[str, ...] = ()
    """What `--variants spec` builds; `serving.variant: auto` takes the fastest of these and onnx-fp32."""
    calibration: Hook | None = None
    """Function without arguments that returns real input other than the held-out samples: a list of batches."""
    calibration_methods: Annotated[tuple[CalibrationMethod, ...], Field(min_length=1)] = (
        "minmax",
        "entropy",
        "percentile",
    )
    """Ways to find activation ranges, tried in turn until the result is close enough."""
    training: Hook | None = None
    """Function without arguments that returns a list of (batch, targets or None), for training variants."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    teacher: Teacher | None = None
    """What `pruned` and `distilled` start from and are compared with; without it, the network."""
    student: Hook | None = None
    """Function without arguments that returns the small module that `distilled` trains."""
    channels: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of channels that `pruned` removes."""
    keep_channels: tuple[str, ...] = ()
    """Layers that keep all their channels in `pruned`: names in the module, with * and ? as in file names."""
    temperature: Annotated[float, Field(gt=0)] = 4.0
    """Softness of the teacher's outputs in `distilled`."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Weight of the teacher's outputs beside the true targets in `distilled`."""
    tensorrt: TensorRT = TensorRT()
