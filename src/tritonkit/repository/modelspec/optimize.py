"""`optimize` of model.yaml: settings and data for the optimized forms of a network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tritonkit.repository.modelspec.base import Hook, Strict
from tritonkit.repository.modelspec.quality import Samples
from tritonkit.repository.modelspec.units import Bytes

__all__ = ["CalibrationMethod", "Optimize", "Teacher", "TensorRT"]

CalibrationMethod = Literal["minmax", "entropy", "percentile"]


class Teacher(Strict):
    """A larger network from which smaller ones are made."""

    torch: Hook
    """Function without arguments that returns a torch.nn.Module."""
    train: Hook | None = None
    """Function that takes the module and trains it in place."""


class TensorRT(Strict):
    """Settings of TensorRT plans."""

    memory_limit: Bytes | None = None
    """Most scratch memory that a layer may use; TensorRT's own limit by default."""
    hardware_compatibility: Literal["none", "ampere_plus", "same_compute_capability"] = "none"
    """The other GPUs that may run the plan; each costs some speed."""
    version_compatible: bool = False
    """Whether later TensorRT versions may run the plan."""


class Optimize(Strict):
    """The variants to build, and the data and settings they need."""

    variants: tuple[str, ...] = ()
    """Variants that `--variants spec` builds; `serving.variant: auto` takes the fastest of these and onnx-fp32."""
    calibration: Samples | None = None
    """Real input other than the held-out samples: files, or a function without arguments that returns a list of
    batches."""
    calibration_methods: Annotated[tuple[CalibrationMethod, ...], Field(min_length=1)] = (
        "minmax",
        "entropy",
        "percentile",
    )
    """Methods to find activation ranges, tried in turn until the result is close enough."""
    training: Hook | None = None
    """Function without arguments that returns a list of (batch, targets or None), for training variants."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    teacher: Teacher | None = None
    """The network from which `pruned` and `distilled` start and with which they are compared; the model's own by
    default."""
    student: Hook | None = None
    """Function without arguments that returns the small module that `distilled` trains."""
    channels: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of channels that `pruned` removes."""
    keep_channels: tuple[str, ...] = ()
    """Layers that keep all their channels in `pruned`: names in the module, with * and ? as in file names."""
    temperature: Annotated[float, Field(gt=0)] = 4.0
    """Softness of the teacher's outputs in `distilled`."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Weight of the teacher's outputs relative to the true targets in `distilled`."""
    tensorrt: TensorRT = TensorRT()
