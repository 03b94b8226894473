"""`onnx-fp32`: the network as it is, exported to ONNX or taken from an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import copy_model, write_missing_shapes
from tritonkit.repository.export.torch_module import run_module
from tritonkit.repository.export.torch_onnx import export_onnx
from tritonkit.repository.optimize.row_counts import refuse_data_dependent
from tritonkit.repository.optimize.variants.onnx_graph import tidy

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make"]

FILE = "model.onnx"


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx, exported by PyTorch or copied."""
    if job.spec.model.network.torch is None and not job.transformed:
        _ = job.signature  # checks the file before anything of it is copied
        copy_model(job.source, folder, FILE, f"{job.spec.file} network.onnx")
        write_missing_shapes(folder / FILE, f"{job.spec.file} network.onnx")
        refuse_data_dependent(job, folder / FILE)
        numbers = job.number_format
        return (f"the file as it is: {numbers}, not FP32",) if numbers else ()
    module = job.module()
    with job.advised():  # the module's own mistakes, before the exporter's words
        run_module(job.spec, module, job.samples[0])
    job.say("exporting to ONNX")
    export_onnx(job.spec, module, job.example, job.batched, folder / FILE)
    # Weights that the exporter had to write next to the file stay there.
    model = need("onnx", "build").load(folder / FILE, load_external_data=False)
    tidy(model)  # the exporter's notes name files of this machine
    (folder / FILE).write_bytes(model.SerializeToString())
    return job.left_out
