"""`onnx-fp16`: operators and weights in FP16, except those that must stay FP32."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.op_library import libraries_in_use
from tritonkit.repository.optimize.variants.onnx_calibration import Calibrator
from tritonkit.repository.optimize.variants.onnx_graph import name_nodes, save
from tritonkit.repository.optimize.variants.onnx_half import LARGEST, Half
from tritonkit.repository.optimize.variants.onnx_search import LayerSearch

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["hold_to_loading", "make"]

_LOADING = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
for library in sys.argv[2:]:
    options.register_custom_ops_library(library)
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
_WANTED = 0.999
"""Required closeness to FP32: half precision must be as good as FP32, whatever max_drop allows."""


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with FP32 inputs and outputs.

    Operators whose inputs, outputs or weights exceed FP16's range on `optimize.calibration` stay FP32. So do the
    operators that cost most closeness, until closeness reaches 0.999.
    BuildError where no operator can be FP16, or the network is not close to FP32 even so.
    """
    import numpy as np

    where = f"{job.spec.file} optimize.calibration"
    calibration = job.calibration
    model = need("onnx", "build").load(job.onnx)
    name_nodes(model)
    half = Half(model)
    if not half.operators:
        raise _none(job, "no operator that could be FP16")
    tensors = list(dict.fromkeys(t for name in half.operators for t in half.tensors(name)))
    ranges = Calibrator(model, tensors, calibration, job.batched, where, job.say).by("minmax")
    largest = {name: max(-low, high) for name, (low, high) in ranges.items()}
    beyond = [
        name
        for name in half.operators
        if max((largest.get(tensor, 0.0) for tensor in half.tensors(name)), default=0.0) > LARGEST
        or any(np.abs(array).max(initial=0) > LARGEST for array in half.constants(name))
    ]
    search, imprecise = LayerSearch(job, _WANTED, layouts=False), []
    closeness = search.closeness(half.write(beyond, imitated=True))
    if closeness < _WANTED:
        rest = [name for name in half.operators if name not in beyond]
        excluded = search.layers_to_exclude(rest, lambda out: half.write([*beyond, *out], imitated=True))
        if excluded is None:
            raise _none(job, f"a {job.yardstick.name} of {closeness:.4f} to FP32, with half of the operators FP32 too")
        imprecise = list(excluded)
        closeness = search.closeness(half.write([*beyond, *imprecise], imitated=True))
    save(half.write([*beyond, *imprecise]), folder / "model.onnx")
    hold_to_loading(job, folder / "model.onnx", "onnx-fp16")
    count = len(half.operators) - len(beyond) - len(imprecise)
    notes = [
        search.reached(closeness),
        f"{count} of {len(half.operators)} operators FP16",
        "on a CPU, ONNX Runtime computes them in FP32: the file is smaller, not faster",
    ]
    if beyond:
        notes.insert(2, f"FP32, because values are beyond FP16's range: {', '.join(beyond)}")
    if imprecise:
        notes.insert(2, f"FP32, because they cost most closeness: {', '.join(imprecise)}")
    return tuple(notes)


def hold_to_loading(job: Job, file: Path, variant: str) -> None:
    """Open the file in a process of its own: ONNX Runtime 1.24 to 1.31 crashes on some FP16 networks on x86.

    A known case is a Transpose before a MatMul (https://github.com/microsoft/onnxruntime/issues/28392).
    """
    libraries = map(str, libraries_in_use())
    done = subprocess.run([sys.executable, "-c", _LOADING, str(file), *libraries], capture_output=True, check=False)
    if done.returncode < 0:
        version = need("onnxruntime", "build").__version__
        raise BuildError(
            f"{job.spec.file} variant {variant}",
            found=f"ONNX Runtime {version} dies ({signal.Signals(-done.returncode).name}) when it loads it on this CPU",
            wanted="a network that the runtime can load",
            todo="choose onnx-bf16, which is as small; or another version of onnxruntime",
        )


def _none(job: Job, found: str) -> BuildError:
    return BuildError(
        f"{job.spec.file} network",
        found=found,
        wanted="a network whose values fit into FP16",
        todo="choose another variant, such as onnx-bf16, which has FP32's range",
    )
