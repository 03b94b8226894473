"""The parts of a model's configuration that all stand-ins for Triton's native backends read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRITON_TO_NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}


_NATIVE = {"onnxruntime": "tritonkit server install --gpu, whose native backend runs on GPUs, or "}


class ModelError(Exception):
    """The model cannot be served as configured; the message says what to change."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: its Triton datatype without `TYPE_`, and dims with -1 for a free axis."""

    name: str
    dtype: str
    dims: tuple[int, ...]


def check_served_here(config: Mapping[str, Any], kind: str, backend: str, kinds: Sequence[str] = ("CPU",)) -> None:
    """Refuse fields that a stand-in cannot honor, because it would otherwise ignore them silently.

    Args:
        kinds: instance kinds that this stand-in runs as.
    """
    if kind not in kinds:
        raise ModelError(
            f"instance kind {kind} found; this stand-in of the {backend} backend runs on the {' or a '.join(kinds)}"
            f" only: use instance_group kind {' or '.join(f'KIND_{name}' for name in kinds)}, or"
            f" {_NATIVE.get(backend, '')}NVIDIA's image"
        )
    for field in ("batch_input", "batch_output"):
        if config.get(field):
            raise ModelError(f"{field} found; only the native onnxruntime backend supports it")
    if config.get("sequence_batching", {}).get("state"):
        raise ModelError("sequence_batching.state found; only the native backend supports it")
    for entry in config.get("input", []):
        if entry.get("allow_ragged_batch") and not text_parameter(config, "tritonkit.pad"):
            raise ModelError(
                f"input '{entry['name']}': allow_ragged_batch found without parameter tritonkit.pad; only"
                " NVIDIA's onnxruntime backend supports it"
            )


def triton_dtype(entry: Mapping[str, Any]) -> str:
    """The datatype of an input or output of the configuration, without `TYPE_`."""
    name: str = entry["data_type"]
    return name.removeprefix("TYPE_").replace("STRING", "BYTES")


def configured_dims(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """The dims that a network sees: those of `reshape`, if there is one."""
    dims = entry["reshape"].get("shape", []) if "reshape" in entry else entry["dims"]
    return tuple(int(dim) for dim in dims)


def cores_of_quota() -> int:
    """Cores of a container's quota, which the affinity does not show, as reported by the process that started the
    server; 0 without a report."""
    reported = os.environ.get("TRITONKIT_CORES", "")
    return int(reported) if reported.isdecimal() else 0


def cores() -> int:
    """Cores that this process may use."""
    there = len(os.sched_getaffinity(0))
    return min(there, cores_of_quota() or there)


def is_batched(config: Mapping[str, Any]) -> bool:
    """Whether axis 0 of every tensor is the batch, which the configuration leaves out."""
    return int(config.get("max_batch_size", 0)) > 0


def text_parameter(config: Mapping[str, Any], key: str) -> str:
    """A parameter's `string_value`; empty without one."""
    value: str = config.get("parameters", {}).get(key, {}).get("string_value", "")
    return value
