"""Models that a GPU runs: the reason why one cannot be served here, and the pools of memory that the others need.

Triton 2.51 itself refuses KIND_GPU without a GPU, in words that do not say why there is none.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tritonkit.errors import ServerStartError
from tritonkit.serve.core import pools
from tritonkit.serve.core.cuda import why_no_provider
from tritonkit.serve.core.devices import CUDA, DRIVER, Driver, find_driver
from tritonkit.serve.core.plans import built_for, find_tensorrt
from tritonkit.serve.install import how_to_change, how_to_remake
from tritonkit.serve.manifests import gpu_needs, network_bytes
from tritonkit.serve.shm import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.serve.core.devices import Device
    from tritonkit.serve.core.pools import Pools
    from tritonkit.serve.install import ServerInstallation
    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.selection import Selection

__all__ = ["devices_of", "doing_without", "find_devices", "plan_pools", "uses_gpu"]

SERVER_BYTES = 600 * MIB
"""Memory of a GPU that tritonserver takes before any model: 584 MiB on an H100 (2.51)."""

_CUDA = ".".join(map(str, CUDA))
_ENGINE = "onnxruntime"
_PLANS = "tensorrt"
_ASKS = "its instance_group asks for a GPU (KIND_GPU)"


def uses_gpu(model: ServedModel) -> bool:
    """Whether its configuration asks for a GPU."""
    return any(group.kind == group.KIND_GPU for group in model.config.instance_group)


def devices_of(model: ServedModel, count: int) -> dict[int, int]:
    """GPU -> instances of a model there; a group that names no GPU has its instances on each of them."""
    return gpu_needs(model).instances(count)


def doing_without(installation: ServerInstallation, selection: Selection) -> tuple[Selection, int]:
    """The selection without the models that ask for a GPU and cannot have it here; and the number of GPUs.

    The driver is asked only if a model asks for a GPU.
    """
    models = [model for model in selection.models.values() if uses_gpu(model)]
    if not models:
        return selection, 0
    machine = _Machine(installation)
    for model in models:
        error = machine.refusal(model)
        if error is not None and model.name in selection.models:
            selection = selection.without(model.name, error)
    return selection, len(machine.driver.devices)


def find_devices(where: str, installation: ServerInstallation | None) -> tuple[Device, ...]:
    """The GPUs of this machine, for what needs one.

    Args:
        where: what needs one, for errors.
        installation: the server that is to use them; None for one that runs already.

    Raises:
        ServerStartError: CUDA sees none, or the server cannot use it.
    """
    driver = find_driver()
    error = _no_gpu(driver, where, "it needs a GPU", "--target cpu")
    if error is None and installation is not None and not installation.native:
        error = _Machine(installation).unusable(where, "it needs a GPU")
    if error is not None:
        raise error
    return driver.devices


def _no_gpu(driver: Driver, where: str, asks: str, instead: str) -> ServerStartError | None:
    if driver.devices:
        return None
    return ServerStartError(
        where,
        found=f"{asks}: {driver.wrong}",
        wanted="a GPU that CUDA can use",
        todo=f"`tritonkit doctor` says what is missing; for a machine without a GPU: {instead}",
    )


class _Machine:
    """The GPUs for a server; `_taken` is the memory that models before have been promised."""

    def __init__(self, installation: ServerInstallation) -> None:
        self._installation = installation
        self._taken: dict[int, int] = {}

    @cached_property
    def driver(self) -> Driver:
        return find_driver()

    @cached_property
    def _no_provider(self) -> str:
        folder = self._installation.folder
        return why_no_provider(folder) if folder is not None else ""

    @cached_property
    def _tensorrt(self) -> str:
        return find_tensorrt()

    def refusal(self, model: ServedModel) -> ServerStartError | None:
        """The first reason why a model cannot be served; None if there is none."""
        where = f"model {model.name}"
        own_engine = model.backend == _ENGINE and not self._installation.native
        return (
            _no_gpu(self.driver, where, _ASKS, "tritonkit build --target cpu")
            or self._no_such_gpu(model)
            or (self.unusable(where, _ASKS) if own_engine else None)
            or (self._no_memory(model) if own_engine else None)
            or (self._other_plan(model) if model.backend == _PLANS and self._installation.native else None)
        )

    def unusable(self, where: str, asks: str) -> ServerStartError | None:
        """The reason why the environment's ONNX Runtime cannot use a GPU that is there; None if it can."""
        if not self._installation.for_gpu:
            return ServerStartError(
                where,
                found=f"{asks}, and the server environment is for CPUs",
                wanted="the environment for GPUs",
                todo=how_to_change(self._installation),
            )
        if self.driver.too_old:
            return ServerStartError(
                where,
                found=self.driver.too_old,
                wanted=f"CUDA {_CUDA}, which driver {DRIVER} brings",
                todo=f"install driver {DRIVER} or newer, or serve it in an image of NVIDIA's for this one"
                " (docs/docker.md)",
            )
        if not self._no_provider:
            return None
        return ServerStartError(
            where,
            found=f"ONNX Runtime's CUDA provider cannot be used: {self._no_provider}",
            wanted="a provider that finds its libraries, the driver and a GPU",
            todo=f"see `tritonkit doctor`, or make the environment again: {how_to_remake(self._installation)}",
        )

    def _no_such_gpu(self, model: ServedModel) -> ServerStartError | None:
        count = len(self.driver.devices)
        absent = sorted(number for number in devices_of(model, count) if not 0 <= number < count)
        if not absent:
            return None
        there = "GPU 0 alone" if count == 1 else f"GPUs 0 to {count - 1}"
        return ServerStartError(
            f"model {model.name}",
            found=f"its instance_group names GPU {', '.join(map(str, absent))}, and CUDA sees {count} here",
            wanted=there,
            todo="correct `gpus` and build it again; CUDA_VISIBLE_DEVICES says which GPUs CUDA sees",
        )

    def _other_plan(self, model: ServedModel) -> ServerStartError | None:
        """A version whose plan is for another TensorRT or another GPU; plans without a record are Triton's to judge."""
        numbers = devices_of(model, len(self.driver.devices))
        devices = [(f"GPU {n} ({self.driver.devices[n].name})", self.driver.devices[n].capability) for n in numbers]
        for version in model.versions:
            plan = built_for(model.folder / str(version))
            if plan is not None and (wrong := plan.misfit(self._tensorrt, devices)):
                return ServerStartError(
                    f"model {model.name}",
                    found=wrong,
                    wanted="a plan that this TensorRT built on this kind of GPU",
                    todo="on this machine: tritonkit build --target nvidia --in-container, with the image that serves",
                )
        return None

    def _no_memory(self, model: ServedModel) -> ServerStartError | None:
        """Weights alone are counted: what has no room for them cannot be served, whatever else it takes."""
        weights = network_bytes(model)
        for number in devices_of(model, len(self.driver.devices)):
            device = self.driver.devices[number]
            needed = self._taken.get(number, SERVER_BYTES) + weights
            if device.free_bytes is not None and device.free_bytes < needed:
                return _full(model, number, device, needed)
        for number in devices_of(model, len(self.driver.devices)):
            self._taken[number] = self._taken.get(number, SERVER_BYTES) + weights
        return None


def _full(model: ServedModel, number: int, device: Device, needed: int) -> ServerStartError:
    holders = ", ".join(f"{pid} ({size // MIB} MiB)" for pid, size in device.holders)
    held = f"; processes hold it: {holders}" if holders else ""
    free = (device.free_bytes or 0) // MIB
    return ServerStartError(
        f"model {model.name}",
        found=f"GPU {number} ({device.name}) has {free} MiB of {device.memory_bytes // MIB} MiB free{held}",
        wanted=f"{needed // MIB} MiB at least, for the server and the weights of the models until this one",
        todo="end what holds the memory, serve fewer models (--model), or name another GPU: CUDA_VISIBLE_DEVICES",
    )


def plan_pools(models: Iterable[ServedModel], gpus: int) -> Pools:
    """The pools for the models that GPUs run."""
    return pools.plan_pools(map(gpu_needs, models), gpus)
