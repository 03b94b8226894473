"""`onnx-int8-static` and `onnx-int8-dynamic`: 8-bit weights, and products of bytes where they are close enough."""

from __future__ import annotations

import platform
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.optimize.variants.form import Form
from tritonkit.optimize.variants.onnx_bytes import Bytes, Weights
from tritonkit.optimize.variants.onnx_fuse import fuse
from tritonkit.optimize.variants.onnx_graph import name_nodes, quiet, save, simplified
from tritonkit.optimize.variants.onnx_layers import Layers
from tritonkit.optimize.variants.onnx_ranges import Range, Ranges
from tritonkit.optimize.variants.onnx_search import Search

if TYPE_CHECKING:
    from tritonkit.export.job import Job

__all__ = ["FORMS"]

_VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}


def make_static(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx, whose products are of bytes with ranges found on `optimize.calibration`.

    The methods of `optimize.calibration_methods` are tried in turn until the mean cosine to the FP32
    outputs is 1 - 0.8 x `quality.max_drop`. Where none reaches it, the layers that cost most are left FP32.
    BuildError where the network has no layer that could be 8-bit.
    """
    calibration = job.calibration  # what is wrong with it is said before anything is made
    network, search = _Network(job), Search(job)
    where = f"{job.spec.file} optimize.calibration"
    ranges = Ranges(network.model, network.layers.tensors, calibration, job.batched, where, job.say)
    tried: dict[str, float] = {}
    for method in job.spec.model.optimize.calibration_methods:
        found = ranges.by(method)
        job.say(f"comparing {method} ranges")
        tried[method] = search.closeness(network.write(found))
        if tried[method] >= search.wanted:
            break
    best = max(tried, key=lambda method: tried[method])
    notes = network.finish(ranges.by(best), tried[best], search, folder)
    others = ", ".join(f"{name} {value:.4f}" for name, value in tried.items() if name != best)
    return (f"ranges by {best}" + (f" ({others})" if others else ""), *notes)


def make_dynamic(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with 8-bit weights: MatMul and Gemm find the range of their input at each run.

    Convolutions compute in FP32 with weights unpacked on loading: a dynamic range hardly speeds them.
    Needs no data; with `optimize.calibration`, layers that cost too much are found and left FP32.
    BuildError where the network has no layer that could be 8-bit.
    """
    network = _Network(job)
    if job.spec.model.optimize.calibration is None:
        save(network.write(None), folder / "model.onnx")
        return network.notes(None, ())
    search = Search(job)
    return network.finish(None, search.closeness(network.write(None)), search, folder)


FORMS = {
    "onnx-int8-dynamic": Form(make_dynamic, "onnxruntime"),
    "onnx-int8-static": Form(make_static, "onnxruntime"),
}


class _Network:
    """The float network, its layers, and their weights as bytes."""

    def __init__(self, job: Job) -> None:
        job.say("preparing the graph")
        self.model = _prepared(job)
        self.layers = Layers(self.model)
        if not self.layers.names:
            raise BuildError(
                f"{job.spec.file} network",
                found="no operator with weights that could be 8-bit: no Conv, Gemm or MatMul with constant"
                " weights, no large embedding",
                wanted="at least one, for this variant",
                todo="choose another variant",
            )
        self._narrow = products_saturate()
        self._weights = Weights(self.layers, 63 if self._narrow else 127)

    def write(self, ranges: dict[str, Range] | None, floats: Collection[str] = ()) -> Any:
        """The model with those ranges of activations (None: dynamic), and those layers FP32."""
        return Bytes(self.layers, self._weights, ranges, floats).write()

    def finish(
        self, ranges: dict[str, Range] | None, closeness: float, search: Search, folder: Path
    ) -> tuple[str, ...]:
        """Leave layers FP32 if need be, write the file, and say what was done."""
        floats: tuple[str, ...] = ()
        if closeness < search.wanted:
            floats = search.leave_out(self.layers.names, lambda out: self.write(ranges, out)) or ()
        model = self.write(ranges, floats)
        if floats:
            closeness = search.closeness(model)
        save(model, folder / "model.onnx")
        return (search.said(closeness), *self.notes(ranges, floats))

    def notes(self, ranges: dict[str, Range] | None, floats: Collection[str]) -> tuple[str, ...]:
        """What computes in bytes, and what does not."""
        products = self.layers.products
        kinds = {node.name: node.op_type for node in self.layers.graph.nodes}
        unpacked = {n for n in products if n in floats or (ranges is None and kinds[n] == "Conv")}
        notes = [f"{len(products) - len(unpacked)} of {len(products)} products of bytes"]
        if floats:
            notes.append(f"left FP32, because they cost most closeness: {', '.join(floats)}")
        if unpacked:
            notes.append(f"{len(unpacked)} keep 8-bit weights in the file and compute in FP32")
        if self._narrow:
            notes.append("weights within 7 bits, because this CPU has no VNNI")
        return tuple(notes)


def products_saturate() -> bool:
    """Whether sums of two 8-bit products saturate at 16 bits: on x86 without VNNI."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return True
    return not flags & _VNNI


def _prepared(job: Job) -> Any:
    """The network with attention fused, constants folded, batch normalization in its convolutions, and a
    name for each operator."""
    onnx = need("onnx", "build")
    model = onnx.load(job.onnx)
    version = next((entry.version for entry in model.opset_import if not entry.domain), 0)
    with quiet():
        if version < 13:  # the first with a scale per channel
            model = onnx.version_converter.convert_version(model, 13)
        model, _ = fuse(model)
    model = simplified(model, str(job.spec.file))
    name_nodes(model)
    return model
