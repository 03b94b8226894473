"""The largest int8 weights whose products this CPU computes exactly.

x86 CPUs without VNNI multiply uint8 by int8 with VPMADDUBSW, which adds two products at a time in 16 bits and
saturates there: 2 x 255 x 127 is too large. Weights within 7 bits (-64 to 64, as with `reduce_range` of
onnxruntime.quantization) never reach that. ONNX Runtime (1.32) also has exact kernels for uint8
weights. On AVX2 they took longer with digits and all-MiniLM-L6-v2, although 7 bits leave a few
more layers FP32.
https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from tritonkit.errors import BuildError
from tritonkit.extras import need

__all__ = ["BITS_VARIABLE", "cpu_kind", "largest_weight"]

BITS_VARIABLE = "TRITONKIT_INT8_WEIGHT_BITS"
"""Environment variable: 7 builds for CPUs without VNNI, and 8 for CPUs with it, whatever this machine's CPU is."""
_LARGEST = {"7": 64, "8": 127}
_VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}


def largest_weight() -> int:
    """The largest int8 weight in products of 8-bit numbers: 127, or 64 if products saturate on this CPU."""
    bits = _forced() or ("7" if _products_saturate() else "8")
    return _LARGEST[bits]


def cpu_kind() -> str:
    """The kind of CPU that 8-bit products are made for, read without loading a library.

    It is `x86_64 with VNNI`, `x86_64 without VNNI`, or another machine's name.
    """
    machine = platform.machine().lower()
    if bits := _forced():
        return f"{machine} by {BITS_VARIABLE}={bits}"
    if machine not in ("x86_64", "amd64"):
        return machine
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    return f"{machine} {'with' if flags & _VNNI else 'without'} VNNI"


def _forced() -> str:
    """The number of bits that the environment requests; BuildError if it is neither 7 nor 8."""
    bits = os.environ.get(BITS_VARIABLE, "")
    if bits and bits not in _LARGEST:
        raise BuildError(
            f"environment variable {BITS_VARIABLE}", found=repr(bits), wanted="7, for CPUs without VNNI, or 8"
        )
    return bits


@cache
def _products_saturate() -> bool:
    """Whether ONNX Runtime's sums of products of uint8 and int8 saturate on this CPU, tested with the
    largest numbers."""
    import numpy as np

    onnx, ort = need("onnx", "build"), need("onnxruntime", "build")
    length = 64
    helper, types = onnx.helper, onnx.TensorProto
    weights = onnx.numpy_helper.from_array(np.full((length, 16), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "largest",
        [helper.make_tensor_value_info("x", types.UINT8, [1, length])],
        [helper.make_tensor_value_info("y", types.INT32, [1, 16])],
        [weights],
    )
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    # The model has only integers, so there is no precision to choose.
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (sums,) = session.run(None, {"x": np.full((1, length), 255, np.uint8)})
    return bool((sums != length * 255 * 127).any())
