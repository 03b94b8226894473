"""INT8 for OpenVINO by NNCF: calibrated post-training quantization, held to the network's own answers.

Several ways are tried until one is close enough. Attention models have a few activations far larger
than the rest; smoothing moves that range into the weights, by a strength that suits one network and
spoils another. What no way brings close enough goes through NNCF's accuracy control, which takes
quantization back layer by layer; where that does not help either, activations stay FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from tritonkit.errors import BuildError
from tritonkit.export.closeness import item_cosines, mean_cosine
from tritonkit.export.job import Job
from tritonkit.export.quiet import quiet
from tritonkit.export.samples import Batch, count_items
from tritonkit.extras import need
from tritonkit.optimize.openvino_core import first_reason
from tritonkit.optimize.runtimes.openvino_cpu import OpenVINORunner
from tritonkit.optimize.variants.nncf_library import clipping, need_nncf, smoothing
from tritonkit.optimize.variants.openvino_layers import has_attention, is_quantized, layers_in_float
from tritonkit.optimize.variants.padding import without_padding

__all__ = ["quantize"]

_STRENGTHS = (0.95, 0.8, 0.65)  # of smoothing; the first is NNCF's own
_OUTLIERS = 1e-5  # share of an activation's values at each end that ranges may leave out
_NEAR = 0.2  # share of max_drop within which no other way is tried
_CLOSEST = 0.999  # mean cosine that is always enough
_CONTROL_ITEMS = 32  # of the calibration data, by which accuracy control judges each layer
_CONTROL_STEPS = 24  # layers it may take back


class _Attempt(NamedTuple):
    """A quantized model, how it was made, and its mean cosine to FP32 on the calibration data."""

    model: Any
    way: str
    closeness: float


class _Reference:
    """The network in FP32, and what it gives for the calibration data."""

    def __init__(self, job: Job, model: Any) -> None:
        self._job = job
        self.where = f"{job.spec.file} network"
        self._outputs = {id(b): o for b, o in zip(job.calibration, self._run(model), strict=True)}

    def _run(self, model: Any) -> list[Batch]:
        runner = OpenVINORunner(model, self._job.threads, self.where, "f32")
        return [without_padding(runner.run(batch), batch) for batch in self._job.calibration]

    def closeness(self, model: Any) -> float:
        """Mean cosine of a model's outputs to those in FP32, item by item; -1 where any is not finite."""
        return mean_cosine(self._run(model), list(self._outputs.values()))

    def batch_closeness(self, batch: Batch, outputs: Batch) -> float:
        """The same for one batch that was run elsewhere."""
        found = without_padding(outputs, batch)
        return float(item_cosines([found], [self._outputs[id(batch)]]).mean())


def quantize(job: Job, model: Any) -> tuple[Any, tuple[str, ...]]:
    """The openvino.Model in INT8, with notes for people.

    BuildError for a network without anything to quantize, and for calibration data that do not fit.
    """
    drop = job.spec.model.quality.max_drop
    wanted = min(1 - drop, _CLOSEST)
    reference = _Reference(job, model)
    tried: list[_Attempt] = []
    for way, make in _ways(job, model, reference):
        enough = wanted if way in _COSTLY else 1 - _NEAR * drop
        if tried and max(attempt.closeness for attempt in tried) >= enough:
            break
        job.say(f"quantizing with {way}")
        tried.append(_attempt(reference, way, make))
    best = max(tried, key=lambda attempt: attempt.closeness)
    return best.model, _notes(best, tried)


_CONTROL, _WEIGHTS = "accuracy control", "INT8 weights alone"
_COSTLY = (_CONTROL, _WEIGHTS)


def _ways(job: Job, model: Any, reference: _Reference) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and function of each way, in the order they are tried."""
    nncf = need_nncf()
    data, count = nncf.Dataset(job.calibration), len(job.calibration)
    plain = {"calibration_dataset": data, "subset_size": count}
    if has_attention(model):
        plain["model_type"] = nncf.ModelType.TRANSFORMER
        ways = {f"smoothing {strength}": smoothing(strength) for strength in _STRENGTHS}
    else:
        presets = nncf.QuantizationPreset
        ways = {
            "symmetric ranges": {"preset": presets.PERFORMANCE},
            "asymmetric ranges": {"preset": presets.MIXED},
            "ranges without outliers": {"preset": presets.MIXED, **clipping(_OUTLIERS)},
        }
    for way, settings in ways.items():
        yield way, partial(nncf.quantize, model.clone(), **plain, **settings)
    yield _CONTROL, partial(_controlled, job, reference, model.clone(), plain)
    yield (
        _WEIGHTS,
        partial(nncf.compress_weights, model.clone(), mode=nncf.CompressWeightsMode.INT8_ASYM),
    )


def _attempt(reference: _Reference, way: str, make: Callable[[], Any]) -> _Attempt:
    try:
        with quiet():
            model = make()
    except (MemoryError, OSError):
        raise
    except Exception as error:  # NNCF's own classes have no common root
        raise BuildError(
            reference.where,
            found=f"NNCF cannot quantize it with {way}: {first_reason(error)}",
            wanted="a network that NNCF can quantize",
            todo="build openvino-bf16 or an onnx variant",
        ) from error
    if not is_quantized(model):
        raise BuildError(
            reference.where,
            found="NNCF finds no operator to quantize in it",
            wanted="convolutions or matrix products",
            todo="build openvino-bf16, or leave this variant out",
        )
    return _Attempt(model, way, reference.closeness(model))


def _controlled(job: Job, reference: _Reference, model: Any, settings: dict[str, Any]) -> Any:
    """By NNCF's accuracy control: layers that cost most are taken back until the rest is close enough."""
    nncf = need_nncf()
    advanced = need("nncf.quantization.advanced_parameters", "optimize")

    def closeness(compiled: Any, data: Any) -> tuple[float, list[float]]:
        names = [node.get_any_name() for node in compiled.outputs]
        scores = []
        for batch in data:
            outputs = dict(zip(names, compiled(batch).values(), strict=True))
            scores.append(reference.batch_closeness(batch, outputs))
        return sum(scores) / len(scores), scores

    return nncf.quantize_with_accuracy_control(
        model,
        **settings,
        validation_dataset=nncf.Dataset(_first_items(job.calibration, _CONTROL_ITEMS)),
        validation_fn=closeness,
        max_drop=job.spec.model.quality.max_drop,
        drop_type=nncf.DropType.ABSOLUTE,
        advanced_accuracy_restorer_parameters=advanced.AdvancedAccuracyRestorerParameters(
            max_num_iterations=_CONTROL_STEPS, num_ranking_workers=1
        ),
    )


def _first_items(batches: list[Batch], most: int) -> list[Batch]:
    """As many batches as hold `most` items, at least one."""
    kept: list[Batch] = []
    for batch in batches:
        if kept and sum(map(count_items, kept)) + count_items(batch) > most:
            break
        kept.append(batch)
    return kept


def _notes(best: _Attempt, tried: list[_Attempt]) -> tuple[str, ...]:
    others = [f"{a.way} {a.closeness:.4f}" for a in tried if a is not best]
    notes = [
        f"quantized with {best.way}: mean cosine to FP32 {best.closeness:.4f} on the calibration data"
        + (f" ({', '.join(others)})" if others else "")
    ]
    left, all_layers = layers_in_float(best.model)
    if left:
        named = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
        notes.append(f"{len(left)} of {all_layers} layers stayed FP32: {named}")
    return tuple(notes)
