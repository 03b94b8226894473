"""OpenVINO's own files: a graph (.xml) and its weights (.bin) next to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonkit.datatypes import DataType
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.optimize.files.ready import NO_RANGES, Place, first_axis_missing, told
from tritonkit.repository.optimize.openvino_core import first_reason, open_core
from tritonkit.repository.optimize.runtimes.openvino_cpu import OpenVINORunner
from tritonkit.watched import step

__all__ = ["OpenVINOFile"]

_DTYPES: dict[str, DataType] = {
    "boolean": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
}
"""OpenVINO's types that Triton's openvino backend carries, by name."""


@dataclass(frozen=True)
class OpenVINOFile:
    """A graph with weights, whose names, types and shapes the file tells."""

    place: Place
    ranges = NO_RANGES
    most_items = 0
    tells = True

    def signature(self, batched: bool) -> Signature:
        """Inputs and outputs as the file has them."""
        return told(self.place, *self._tensors, batched)

    def batch_axis_missing(self) -> str:
        """A sentence about a tensor without a free first axis."""
        return first_axis_missing(*self._tensors)

    def open(self, threads: int) -> OpenVINORunner:
        """The network on the CPU."""
        return OpenVINORunner(self._model, threads, self.place.where)

    def write(self, folder: Path) -> tuple[str, ...]:
        """model.xml and model.bin."""
        copy_file(self.place.path, folder / "model.xml")
        copy_file(self._weights, folder / "model.bin")
        return ()

    @property
    def _weights(self) -> Path:
        weights = self.place.path.with_suffix(".bin")
        if not weights.is_file():
            raise self.place.refusal(
                found=f"there is no {weights.name} next to {self.place.name}",
                wanted="both files of the network: the graph and its weights",
                todo="add it to the model's folder",
            )
        return weights

    @cached_property
    def _model(self) -> Any:
        _ = self._weights  # OpenVINO's own error is longer
        try:
            with step(f"OpenVINO opens {self.place.name}"):
                return open_core().read_model(self.place.path)
        except RuntimeError as error:
            raise self.place.refusal(
                found=f"OpenVINO cannot read {self.place.name}: {first_reason(error)}",
                wanted="a network of IR version 10 or 11 with operators that this OpenVINO has",
                todo="install the OpenVINO that wrote it, or convert the network again with this one",
            ) from error

    @cached_property
    def _tensors(self) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
        model = self._model
        return tuple(map(self._tensor, model.inputs)), tuple(map(self._tensor, model.outputs))

    def _tensor(self, node: Any) -> TensorInfo:
        name = self._name(node)
        kind, shape = node.get_element_type().get_type_name(), node.get_partial_shape()
        if kind not in _DTYPES:
            raise self.place.refusal(
                found=f"{name} is {kind}, which Triton's openvino backend does not carry",
                wanted=f"one of {', '.join(_DTYPES)}",
                todo="convert the network again with another type there",
            )
        if shape.rank.is_dynamic:
            raise self.place.refusal(
                found=f"{name} has no fixed number of axes",
                wanted="shapes with a fixed number of axes",
                todo="convert the network again with its input shapes",
            )
        return TensorInfo(name, _DTYPES[kind], tuple(dim.get_length() if dim.is_static else -1 for dim in shape))

    def _name(self, node: Any) -> str:
        names = sorted(node.get_names())
        if not names:
            raise self.place.refusal(
                found=f"a tensor of {node.get_node().get_friendly_name()} has no name",
                wanted="a name for each input and output, by which requests carry them",
                todo="name them before saving: model.inputs[0].get_tensor().set_names({'x'})",
            )
        declared = self.place.spec.model.network
        known = {*declared.inputs, *declared.outputs}
        return next((name for name in names if name in known), str(node.get_any_name()))
