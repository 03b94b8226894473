"""The options of PyTorch in a model's configuration, read as Triton's native `pytorch` backend reads it.

Source of every rule here: `src/pt/model_state.cc` (ParseParameters) and `src/pt/model_instance_state.cc`
(GetNamingConvention, ValidateInputs, ValidateOutputs) of triton-inference-server/pytorch_backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_config import ModelError, TensorSpec, configured_dims, text_parameter, triton_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# UINT16, UINT32, UINT64 and BF16 have no tensor there, and strings are lists of text.
DTYPES = frozenset({"BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"})
SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
TF32 = "tritonkit.tf32"
NO_TORCH = (
    "torch is not installed in the server's environment: run tritonkit server install --torch (--gpu --torch for a"
    " GPU); in a clone, .venv-server/bin/pip install -r python_backends/requirements-torch.txt; for the image, build it"
    " with TRITONKIT_REQUIREMENTS=requirements-torch.txt (for a GPU"
    " TRITONKIT_GPU_REQUIREMENTS=requirements-gpu-torch.txt)"
)


@dataclass(frozen=True)
class Options:
    """Execution settings of a model; None leaves PyTorch's own.

    `intra_op` and `inter_op` are thread counts, 0 if the configuration gives none. `tf32` is about FP32 products on a
    GPU.
    """

    intra_op: int = 0
    inter_op: int = 0
    inference_mode: bool = True
    optimized: bool = True
    executor: bool | None = None
    profiling: bool | None = None
    tensor_fuser: bool | None = None
    cudnn: bool = True
    cache_cleaning: bool = False
    tf32: bool | None = None


def read_options(config: Mapping[str, Any]) -> Options:
    """The model's parameters. ENABLE_WEIGHT_SHARING has no effect here, where every instance is a process."""
    disabled = _switch(config, "DISABLE_OPTIMIZED_EXECUTION")
    inference_mode = _switch(config, "INFERENCE_MODE")
    return Options(
        intra_op=max(0, _integer(config, "INTRA_OP_THREAD_COUNT")),
        inter_op=max(0, _integer(config, "INTER_OP_THREAD_COUNT")),
        inference_mode=True if inference_mode is None else inference_mode,
        optimized=not disabled,
        executor=_switch(config, "ENABLE_JIT_EXECUTOR"),
        profiling=_switch(config, "ENABLE_JIT_PROFILING"),
        tensor_fuser=_switch(config, "ENABLE_TENSOR_FUSER"),
        cudnn=not _switch(config, "DISABLE_CUDNN"),
        cache_cleaning=bool(_switch(config, "ENABLE_CACHE_CLEANING")),
        tf32=_switch(config, TF32),
    )


def model_file(folder: Path, version: str, config: Mapping[str, Any], default: str) -> Path:
    """The file of a version: `default_model_filename`, else `default`."""
    path = folder / version / (config.get("default_model_filename") or default)
    if not path.is_file():
        raise ModelError(f"no file {path}; wanted the PyTorch model of version {version}")
    return path


def tensor_specs(config: Mapping[str, Any], side: str, batched: bool) -> dict[str, TensorSpec]:
    """Specs of the configured `input` or `output` by name, in the configuration's order.

    A model's file does not give shapes, so requests can only be checked against the configuration.
    """
    specs = {}
    for entry in config[side]:
        name, dtype = entry["name"], triton_dtype(entry)
        if dtype not in DTYPES:
            raise ModelError(
                f"{side} '{name}' is {dtype}, which the pytorch backend has no tensor for; wanted one of"
                f" {', '.join(sorted(DTYPES))}"
            )
        dims = configured_dims(entry)
        specs[name] = TensorSpec(name, dtype, (-1, *dims) if batched else dims)
    return specs


def positions(names: Sequence[str], arguments: Sequence[str]) -> dict[str, int]:
    """Position of each configured name in the model's arguments or results.

    If all names are arguments of forward, they go by name. If all end in `__N`, N is the position. Otherwise the
    configuration's order counts. `arguments` is empty for results, which have no names.
    """
    if arguments and set(names) <= set(arguments):
        return {name: arguments.index(name) for name in names}
    parts = [name.partition("__") for name in names]
    if all(mark and not rest.strip("0123456789") for _, mark, rest in parts):
        places = {"__".join(part[::2]): int(part[2] or 0) for part in parts}
    else:
        places = {name: place for place, name in enumerate(names)}
    if arguments and sorted(places.values()) != list(range(len(arguments))):
        raise ModelError(
            f"config.pbtxt has the inputs {list(names)}, and the model takes {len(arguments)}: {list(arguments)}"
        )
    return places


def _switch(config: Mapping[str, Any], key: str) -> bool | None:
    text = text_parameter(config, key)
    if text and text.lower() not in SWITCH:
        raise ModelError(f"parameter {key}: found '{text}', wanted true or false")
    return SWITCH[text.lower()] if text else None


def _integer(config: Mapping[str, Any], key: str) -> int:
    text = text_parameter(config, key)
    try:
        return int(text or 0)
    except ValueError:
        raise ModelError(f"parameter {key}: found '{text}', wanted a whole number") from None
