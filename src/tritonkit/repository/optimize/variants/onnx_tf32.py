"""`onnx-tf32`: the file of onnx-fp32, whose products a GPU computes in TF32.

TF32 has FP32's range and ten bits of mantissa (NVIDIA Ampere and later). ONNX Runtime's CUDA provider computes in it
where its option `use_tf32` is set, so the file is the same and only the option differs (`cuda_options.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.repository.export.onnx_file import copy_model
from tritonkit.repository.optimize.variants.onnx_fp32 import FILE

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make"]


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Copy the FP32 file."""
    copy_model(job.onnx, folder, FILE, f"{job.spec.file} variant onnx-tf32")
    return ("the file of onnx-fp32; a GPU computes its products in TF32",)
