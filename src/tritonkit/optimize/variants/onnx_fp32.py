"""`onnx-fp32`: the network as it is, exported to ONNX or taken from an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import BuildError
from tritonkit.export.onnx_file import copy_model, open_session, run_session
from tritonkit.export.torch_module import run_module
from tritonkit.export.torch_onnx import export_onnx
from tritonkit.extras import need
from tritonkit.optimize.variants.onnx_graph import tidy

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["make"]

FILE = "model.onnx"


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx: exported by PyTorch, or copied."""
    if job.spec.model.network.torch is None and not job.transformed:
        _ = job.signature  # checks the file before anything of it is copied
        copy_model(job.source, folder, FILE, f"{job.spec.file} network.onnx")
        _hold_to_static_outputs(job, folder / FILE)
        return ()
    module = job.module()
    run_module(job.spec, module, job.samples[0])  # its own mistakes, before the exporter's words
    job.say("exporting to ONNX")
    export_onnx(job.spec, module, job.example, job.batched, folder / FILE)
    # Weights that the exporter had to write next to the file stay there.
    model = need("onnx", "build").load(folder / FILE, load_external_data=False)
    tidy(model)  # the exporter's notes name files of this machine
    (folder / FILE).write_bytes(model.SerializeToString())
    return ()


def _hold_to_static_outputs(job: Job, file: Path) -> None:
    """Inputs of one shape and other values must give outputs of one shape."""
    import numpy as np

    where, batch = f"{job.spec.file} network.onnx", job.samples[0]
    session = open_session(file, where, optimized=False)
    changed = {name: array[::-1] if array.ndim else array for name, array in batch.items()}
    zeros = {name: np.zeros_like(array) for name, array in batch.items() if array.dtype != object}
    first = run_session(session, batch, where)
    for other in (changed, {**batch, **zeros}):
        for name, array in run_session(session, other, where).items():
            if array.shape != first[name].shape:
                raise BuildError(
                    where,
                    found=f"the shape of output {name} depends on the data: {list(first[name].shape)}"
                    f" or {list(array.shape)} for one input shape",
                    wanted="output shapes that follow from input shapes: a batch must have one shape",
                    todo="end the network before that operator, or return a fixed-size result with a count",
                )
