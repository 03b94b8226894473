"""`onnx-int8-static` and `onnx-int8-dynamic`: INT8 weights, and INT8 layers where they are close enough."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.extras import need
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.optimize.variants.int8_cpu import largest_weight
from tritonkit.repository.optimize.variants.onnx_calibration import Calibrator, Range
from tritonkit.repository.optimize.variants.onnx_fuse import fuse
from tritonkit.repository.optimize.variants.onnx_graph import name_nodes, save, simplified
from tritonkit.repository.optimize.variants.onnx_quantize import Quantizer
from tritonkit.repository.optimize.variants.onnx_search import LayerSearch
from tritonkit.repository.optimize.variants.onnx_weights import weight_layers

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make_dynamic", "make_static"]


def make_static(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with layers in INT8 and their ranges from `optimize.calibration`.

    The methods of `optimize.calibration_methods` are tried in turn until the closeness to the FP32
    outputs is 1 - 0.8 x `quality.max_drop`. If none reaches it, the layers that cost most are left
    FP32: as many as needed, if necessary all of them, with FP32 weights.
    BuildError if the network has no layer that could be 8-bit.
    """
    calibration = job.calibration  # errors in it are reported before anything is made
    network, search = _Network(job), LayerSearch(job)
    where = f"{job.spec.file} optimize.calibration"
    ranges = Calibrator(network.model, network.layers.tensors, calibration, job.batched, where, job.say)
    tried: dict[str, float] = {}
    for method in job.spec.model.optimize.calibration_methods:
        limits = ranges.by(method)
        job.say(f"comparing {method} ranges")
        tried[method] = search.closeness(network.write(limits))
        if tried[method] >= search.target:
            break
    best = max(tried, key=lambda method: tried[method])
    notes = network.finish(ranges.by(best), tried[best], search, folder)
    others = ", ".join(f"{name} {value:.4f}" for name, value in tried.items() if name != best)
    return (f"ranges by {best}" + (f" ({others})" if others else ""), *notes)


def make_dynamic(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.onnx with 8-bit weights: MatMul and Gemm find the range of their input at each run.

    Convolutions compute in FP32 with weights unpacked on loading, because a dynamic range hardly speeds them up.
    It needs no data; with `optimize.calibration`, layers that cost too much are found and left FP32.
    BuildError if the network has no layer that could be 8-bit.
    """
    network = _Network(job)
    if job.spec.model.optimize.calibration is None:
        save(network.write(None), folder / "model.onnx")
        return network.notes(None, ())
    search = LayerSearch(job)
    return network.finish(None, search.closeness(network.write(None)), search, folder)


class _Network:
    """The float network and its layers."""

    def __init__(self, job: Job) -> None:
        job.say("preparing the graph")
        self.model = _prepared(job)
        self.layers = weight_layers(job, self.model, "8-bit")
        self._largest = largest_weight()

    def write(self, ranges: dict[str, Range] | None, floats: Collection[str] = (), whole: Collection[str] = ()) -> Any:
        """The model with the given ranges of activations (None: dynamic). The layers `floats` compute in FP32; the
        layers `whole` among them also have FP32 weights in the file."""
        return Quantizer(self.layers, self._largest, ranges, floats, whole).write()

    def finish(
        self, ranges: dict[str, Range] | None, closeness: float, search: LayerSearch, folder: Path
    ) -> tuple[str, ...]:
        """Leave as many layers FP32 as closeness requires, write the file, and return notes."""
        floats, whole = self._left_float(ranges, search) if closeness < search.target else ((), ())
        model = self.write(ranges, floats, whole)
        if floats:
            closeness = search.closeness(model)
        save(model, folder / "model.onnx")
        return (search.reached(closeness), *self.notes(ranges, floats, whole))

    def _left_float(self, ranges: dict[str, Range] | None, search: LayerSearch) -> tuple[Sequence[str], Sequence[str]]:
        """Layers whose products must be FP32, and the layers among them whose weights must be FP32 too."""
        names = self.layers.names
        floats = search.layers_to_exclude(names, lambda out: self.write(ranges, out))
        if floats is not None:
            return floats, ()
        whole = search.layers_to_exclude(names, lambda out: self.write(ranges, names, out))
        return names, names if whole is None else whole

    def notes(
        self, ranges: dict[str, Range] | None, floats: Collection[str], whole: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Notes on which layers compute in INT8, and which do not."""
        products = self.layers.products
        kinds = {node.name: node.op_type for node in self.layers.graph.nodes}
        unpacked = {n for n in products if n in floats or (ranges is None and kinds[n] == "Conv")}
        notes = [f"{len(products) - len(unpacked)} of {len(products)} layers compute in INT8"]
        if floats:
            notes.append(f"left FP32, because they cost most closeness: {', '.join(floats)}")
        if whole:
            notes.append(f"weights left FP32, too: {', '.join(whole)}")
        if unpacked - set(whole):
            notes.append(f"{len(unpacked - set(whole))} keep 8-bit weights in the file and compute in FP32")
        if len(unpacked) < len(products) and self._largest < 127:
            notes.append("weights of those layers within 7 bits, for CPUs without VNNI")
        return tuple(notes)


def _prepared(job: Job) -> Any:
    """The network with attention fused, constants folded, batch normalization merged into convolutions, and a
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
