"""Models that a GPU runs: the reason why one cannot be served here, and the pools of memory that the others need.

Triton 2.51 itself refuses KIND_GPU without a GPU, in words that do not say why there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tritonkit.errors import ServerStartError
from tritonkit.serve.core import pools
from tritonkit.serve.core.cuda import why_no_provider
from tritonkit.serve.core.devices import CUDA, DRIVER, Driver, find_driver
from tritonkit.serve.core.plans import built_for, find_tensorrt
from tritonkit.serve.core.tensorrt import PACKAGE, why_no_tensorrt
from tritonkit.serve.engines import uses_tensorrt
from tritonkit.serve.gpu_memory import DeviceMemory, mib, needs_of
from tritonkit.serve.install import how_to_change, how_to_remake
from tritonkit.serve.manifests import gpu_needs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.serve.core.devices import Device
    from tritonkit.serve.core.pools import Pools
    from tritonkit.serve.install import ServerInstallation
    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.selection import Selection

__all__ = ["OnGpus", "devices_of", "doing_without", "find_devices", "plan_pools", "uses_gpu"]

_CUDA = ".".join(map(str, CUDA))
_ENGINE, _PLANS = "onnxruntime", "tensorrt"
_ASKS = "its instance_group asks for a GPU (KIND_GPU)"


@dataclass(frozen=True)
class OnGpus:
    """The models that a server can serve, the number of GPUs if one asks for one, and notes about their memory."""

    selection: Selection
    gpus: int = 0
    notes: tuple[str, ...] = ()


def uses_gpu(model: ServedModel) -> bool:
    """Whether its configuration asks for a GPU."""
    return any(group.kind == group.KIND_GPU for group in model.config.instance_group)


def devices_of(model: ServedModel, count: int) -> dict[int, int]:
    """GPU -> instances of a model there; a group that names no GPU has its instances on each of them."""
    return gpu_needs(model).instances(count)


def doing_without(installation: ServerInstallation, selection: Selection, *, by_memory: bool = True) -> OnGpus:
    """The selection without the models that ask for a GPU and cannot have it here.

    The driver is asked only if a model asks for a GPU.

    Args:
        by_memory: whether models are refused, and noted, by what a GPU has free.
    """
    models = [model for model in selection.models.values() if uses_gpu(model)]
    if not models:
        return OnGpus(selection)
    machine = _Machine(installation, by_memory=by_memory)
    for model in models:
        error = machine.refusal(model)
        if error is not None and model.name in selection.models:
            selection = selection.without(model.name, error)
    notes = tuple(note for memory in machine.memory for note in [memory.note] if note) if by_memory else ()
    return OnGpus(selection, len(machine.driver.devices), notes)


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
    """The GPUs for a server."""

    def __init__(self, installation: ServerInstallation, *, by_memory: bool = True) -> None:
        self._installation, self._by_memory = installation, by_memory

    @cached_property
    def driver(self) -> Driver:
        return find_driver()

    @cached_property
    def memory(self) -> tuple[DeviceMemory, ...]:
        """The memory of each GPU, with the models that were not refused."""
        return tuple(DeviceMemory(number, device) for number, device in enumerate(self.driver.devices))

    @cached_property
    def _no_provider(self) -> str:
        folder = self._installation.folder
        return why_no_provider(folder) if folder is not None else ""

    @cached_property
    def _no_engines(self) -> str:
        folder = self._installation.folder
        return why_no_tensorrt(folder) if folder is not None else ""

    @cached_property
    def _tensorrt(self) -> str:
        return find_tensorrt(self._installation.backends)

    def refusal(self, model: ServedModel) -> ServerStartError | None:
        """The first reason why a model cannot be served; None if there is none."""
        where = f"model {model.name}"
        ours = not self._installation.native
        own_engine = ours and model.backend == _ENGINE
        counted = self._by_memory and (own_engine or (ours and model.runs_pytorch))
        return (
            _no_gpu(self.driver, where, _ASKS, "tritonkit build --target cpu")
            or self._no_such_gpu(model)
            or (self.unusable(where, _ASKS) if own_engine else None)
            or (self._without_tensorrt(model) if own_engine and uses_tensorrt(model) else None)
            or (self._no_memory(model) if counted else None)
            or (self._other_plan(model) if model.backend == _PLANS and not ours else None)
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

    def _without_tensorrt(self, model: ServedModel) -> ServerStartError | None:
        """The reason why ONNX Runtime's TensorRT provider cannot run a model; None if it can."""
        if not self._no_engines:
            return None
        return ServerStartError(
            f"model {model.name}",
            found="its accelerator is tensorrt, and ONNX Runtime's TensorRT provider cannot be used:"
            f" {self._no_engines}",
            wanted="TensorRT 10 for CUDA 13 in the server environment",
            todo=f"install it: {self._installation.folder}/bin/python -m pip install '{PACKAGE}'; or remove the"
            " accelerator from the spec, and build it again",
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
        """Refuse a model for what is certain: it cannot be loaded, whatever else it takes."""
        instances = devices_of(model, len(self.driver.devices))
        needs = {number: needs_of(model, count) for number, count in instances.items()}
        for number, own in needs.items():
            memory = self.memory[number]
            if not memory.has_room(own):
                return ServerStartError(
                    f"model {model.name}",
                    found=memory.words(),
                    wanted=f"{mib(memory.certain + own.certain)} at least: {memory.shares()}, {model.name}"
                    f" {mib(own.certain)} ({own.words(mib, estimated=False)})",
                    todo="end what holds the memory, serve fewer models (--model), build a smaller variant"
                    f"{' or fewer instances' if own.contexts else ''}, or name another GPU: CUDA_VISIBLE_DEVICES",
                )
        for number, own in needs.items():
            self.memory[number].needs[model.name] = own
        return None


def plan_pools(models: Iterable[ServedModel], gpus: int) -> Pools:
    """The pools for the models that GPUs run."""
    return pools.plan_pools(map(gpu_needs, models), gpus)
