"""The table of ready-made files: a class for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.files.detect import kind_of, place_of
from tritonkit.repository.optimize.files.openvino_file import OpenVINOFile
from tritonkit.repository.optimize.files.ready import Place, ReadyFile
from tritonkit.repository.optimize.files.tensorrt_plan_file import PlanFile
from tritonkit.repository.optimize.files.torch_program import ProgramFile
from tritonkit.repository.optimize.files.torch_script import TorchScriptFile

__all__ = ["open_ready"]

_KINDS: Mapping[str, Callable[[Place], ReadyFile]] = {
    "openvino": OpenVINOFile,
    "tensorrt": PlanFile,
    "torch-export": ProgramFile,
    "torchscript": TorchScriptFile,
}


def open_ready(spec: Spec) -> ReadyFile:
    """The network of a spec's `network.file`."""
    return _KINDS[kind_of(spec)](place_of(spec))
