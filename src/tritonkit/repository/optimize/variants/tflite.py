"""`tflite`, `tflite-int8`: a file for LiteRT on phones and boards, checked by running it here.

It takes one item at a time. Triton does not serve it; it stays in the cache, to be copied to a device.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.quiet import silenced
from tritonkit.repository.export.samples import Batch, count_items
from tritonkit.repository.export.torch_module import outputs_of
from tritonkit.repository.optimize.runtimes.litert import open_interpreter
from tritonkit.text import first_line

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["FILE", "make_fp32", "make_int8"]

FILE = "model.tflite"
EXTRA = "tflite"
_SIGNATURE = "serving_default"  # litert-torch's name for the only function of a file
_WIDE = {"INT64", "FP64"}
# The calibrator keeps the range of every tensor of every item; more items change little.
_ITEMS = 128


def make_fp32(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.tflite: FP32, one item at a time."""
    _convert(job, folder / FILE)
    return (_for_whom(job),)


def make_int8(job: Job, folder: Path) -> tuple[str, ...]:
    """Write model.tflite with INT8 weights (per channel) and activations, and FP32 inputs and outputs."""
    given = _items(job)  # its own mistakes, before the conversion
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        plain = Path(place) / FILE
        _convert(job, plain)
        job.say(f"calibrating on {len(given)} items")
        _quantize(plain, folder / FILE, given)
    if not (folder / FILE).is_file() or not _has_int8(folder / FILE):
        raise BuildError(
            f"{job.spec.file} network",
            found="LiteRT's quantizer found no operator that it can make INT8",
            wanted="convolutions or matrix products with constant weights",
            todo="choose tflite, which keeps it FP32",
        )
    return (_for_whom(job), f"calibrated on {len(given)} items")


def _for_whom(job: Job) -> str:
    one = " one item at a time" if job.batched else ""
    return f"an edge file for LiteRT,{one}; Triton does not serve it"


def _convert(job: Job, file: Path) -> None:
    spec, inputs = job.spec, job.signature.inputs
    torch, network = need("torch", "build"), job.module()
    for tensor in inputs:
        if -1 in tensor.shape:
            raise BuildError(
                f"{spec.file} network.inputs.{tensor.name}",
                found=f"shape {list(spec.model.network.inputs[tensor.name].shape)}",
                wanted="a fixed size of every axis: an edge file has one shape",
                todo="give the sizes as numbers, in a separate model folder",
            )
    batch = job.items(1)
    example = {name: torch.from_numpy(array) for name, array in batch.items()}
    wide = bool(_WIDE & {tensor.dtype for tensor in (*inputs, *job.signature.outputs)})
    module = _named(torch, network, list(spec.model.network.outputs))
    job.say("converting to LiteRT")
    try:
        with silenced():
            converter = need("litert_torch", EXTRA)
            converter.convert(module, sample_kwargs=example, enable_x64=wide).export(str(file))
    except (BuildError, MemoryError, OSError):
        raise
    except Exception as error:  # exporters, MLIR passes and jax have no common root
        raise BuildError(
            f"{spec.file} network.torch",
            found=f"litert-torch cannot convert it: {type(error).__name__}: {first_line(error)}",
            wanted="a network of operators that LiteRT supports",
            todo="choose another variant",
        ) from error


def _named(torch: Any, module: Any, outputs: list[str]) -> Any:
    """The module with its inputs and outputs under the spec's names, which the file keeps."""

    class Named(torch.nn.Module):  # type: ignore[misc]  # torch comes in through `need`
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, **inputs: Any) -> dict[str, Any]:
            return dict(zip(outputs, outputs_of(self.network, inputs.values()), strict=True))

    return Named().eval()


def _items(job: Job) -> list[Batch]:
    """Single items of the calibration data, evenly chosen."""
    if not job.batched:
        return job.calibration[:_ITEMS]
    places = [(batch, item) for batch in job.calibration for item in range(count_items(batch))]
    chosen = places[:: max(1, len(places) // _ITEMS)][:_ITEMS]
    return [{n: array[i : i + 1] for n, array in batch.items()} for batch, i in chosen]


def _quantize(source: Path, file: Path, given: list[Batch]) -> None:
    with silenced():
        tools = need("ai_edge_quantizer.quantizer", EXTRA)
        recipe = need("ai_edge_quantizer.recipe", EXTRA)
        quantizer = tools.Quantizer(str(source))
        quantizer.load_quantization_recipe(recipe.static_wi8_ai8())
        for side in (recipe.TFLOperationName.INPUT, recipe.TFLOperationName.OUTPUT):
            quantizer.update_quantization_recipe(
                regex=".*", operation_name=side, algorithm_key=recipe.AlgorithmName.NO_QUANTIZE
            )
        ranges = quantizer.calibrate({_SIGNATURE: given})
        if ranges:  # none if it knows no operator of the network
            quantizer.quantize(ranges).export_model(str(file))


def _has_int8(file: Path) -> bool:
    import numpy as np

    details = open_interpreter(file, 1).get_tensor_details()
    return any(tensor["dtype"] == np.int8 for tensor in details)
