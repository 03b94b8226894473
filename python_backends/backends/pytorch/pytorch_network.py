"""Opens a PyTorch file as the network of a model version: configuration, threads, device and engine.

The stand-in of the `pytorch` backend and the models that the build writes differ in how they load their file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend_batch import Network
from backend_config import ModelError, check_served_here, cores, is_batched
from backend_padding import RUN_COST, RUN_COST_ON_GPU, read_padding
from pytorch_config import model_file, positions, read_options, tensor_specs
from pytorch_device import open_device
from pytorch_engine import Function, load_torch, reason, set_precision
from pytorch_gpu import engine_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytorch_config import Options
    from pytorch_device import Device

ON_GPU_THREADS = 1
"""Threads of an instance on a GPU: more would wait for one another while the GPU computes."""


@dataclass(frozen=True)
class Opening:
    """A file to load: the instance's device is None on the CPU."""

    torch: Any
    path: Path
    device: Device | None
    options: Options

    @property
    def place(self) -> Any:
        """The device by PyTorch's name."""
        return "cpu" if self.device is None else self.device.place

    def refused(self, error: Exception, wanted: str = "") -> ModelError:
        """The error for a file that PyTorch cannot load; `wanted` tells which file it could load."""
        remedy = "" if not wanted or isinstance(error, self.torch.OutOfMemoryError) else f"; wanted {wanted}"
        version = self.torch.__version__
        return ModelError(f"PyTorch {version} cannot load {self.path}: {reason(self.torch, error, 0)}{remedy}")


@dataclass(frozen=True)
class Loaded:
    """A loaded file: its function, and the names of its arguments where it has names."""

    call: Callable[..., Any]
    arguments: Sequence[str] = ()


def open_file(args: Mapping[str, str], backend: str, file: str, load: Callable[[Opening], Loaded]) -> Network:
    """The network of the model version in `args`, checked against its configuration.

    Args:
        backend: the configuration's backend.
        file: the file's name, by default.
        load: the function that loads it.
    """
    from backend_model import log_info  # which imports a module that only Triton's Python has

    config, kind = json.loads(args["model_config"]), args["model_instance_kind"]
    check_served_here(config, kind, backend, ("CPU", "GPU"))
    batched = is_batched(config)
    inputs, outputs = (tensor_specs(config, side, batched) for side in ("input", "output"))
    options = read_options(config)
    # Under the python backend default_model_filename names the model.py.
    named = {} if backend == "python" else config
    path = model_file(Path(args["model_repository"]), args["model_version"], named, file)
    torch = load_torch(options, _threads(config, kind, backend))
    torch.backends.cudnn.enabled = options.cudnn
    device = open_device(torch, args)
    if device is not None:
        set_precision(torch, bool(options.tf32) if backend == "python" else options.tf32)
    loaded = load(Opening(torch, path, device, options))
    places = positions(list(inputs), loaded.arguments), positions(list(outputs), ())
    function = Function(torch, loaded.call, *places, options.inference_mode)
    engine = engine_for(function, device, config, inputs, log_info, options.cache_cleaning)
    scalars = {} if batched else {name: spec.dims for name, spec in outputs.items() if spec.dims in ((), (1,))}
    padding = read_padding(config, inputs, outputs, RUN_COST if device is None else RUN_COST_ON_GPU)
    return Network(args["model_name"], engine, inputs, batched, scalars=scalars, padding=padding)


def _threads(config: Mapping[str, Any], kind: str, backend: str) -> int:
    """Threads of an instance whose configuration gives none: those of Triton's own backend for the `pytorch` backend,
    and a part of the cores for each instance of a model that the build writes."""
    if kind == "GPU":
        return ON_GPU_THREADS
    instances = sum(int(group.get("count", 1)) for group in config.get("instance_group", []))
    return cores() if backend == "pytorch" else max(1, cores() // max(1, instances))
