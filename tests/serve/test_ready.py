"""The wait for a server that becomes ready."""

from __future__ import annotations

from tritonkit.serve.ready import all_zero

USED = """# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} %s
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} %s
nv_inference_count{model="x",version="1"} 0.000000
"""


def test_figures_of_gpus_are_trusted_once_one_is_not_zero() -> None:
    """Triton's first figures of every GPU are 0; a server without figures of GPUs is not waited for."""
    assert all_zero(USED % ("0.000000", "0.000000"))
    assert not all_zero(USED % ("0.000000", "612368384.000000"))
    assert not all_zero("nv_inference_count 0")
