"""INT8 for OpenVINO by NNCF: calibrated post-training quantization, compared with the network's own answers.

Several methods are tried until one is close enough. Attention models have a few activations far larger
than the rest. Smoothing moves that range into the weights, by a strength that suits one network and
harms another. If no method is close enough, NNCF's accuracy control reverts quantization layer by layer.
If that does not help either, activations stay FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.closeness import Yardstick
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.export.samples import Batch, count_items
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.openvino_core import first_reason, open_nncf
from tritonkit.repository.optimize.runtimes.openvino_cpu import OpenVINORunner
from tritonkit.repository.optimize.variants.openvino_layers import (
    has_attention,
    is_quantized,
    layers_in_float,
    split_constants,
)

__all__ = ["quantize", "without_padding"]

_STRENGTHS = (0.95, 0.8, 0.65)  # strengths of smoothing; the first is NNCF's own
_OUTLIERS = 1e-5  # share of an activation's values at each end that ranges may leave out
_NEAR = 0.2  # share of max_drop within which no other method is tried
_CLOSEST = 0.999  # closeness that is always enough
_CONTROL_ITEMS = 32  # items of the calibration data by which accuracy control judges each layer
_CONTROL_STEPS = 24  # most layers that it may revert


class _Attempt(NamedTuple):
    """A quantized model, its method, and its closeness to FP32 on the calibration data."""

    model: Any
    way: str
    closeness: float


def quantize(job: Job, model: Any) -> tuple[Any, tuple[str, ...]]:
    """The openvino.Model in INT8, with notes for people.

    BuildError for a network that no method quantizes, and for calibration data that do not fit.
    """
    split_constants(model)
    drop = job.spec.model.quality.max_drop
    target = min(1 - drop, _CLOSEST)
    in_fp32 = _outputs(job, model)
    yardstick = job.yardstick_for(in_fp32)
    tried: list[_Attempt] = []
    failed: list[BuildError] = []
    for way, make in _ways(job, model, in_fp32, yardstick):
        enough = target if way in _COSTLY else 1 - _NEAR * drop
        if tried and max(attempt.closeness for attempt in tried) >= enough:
            break
        job.say(f"quantizing with {way}")
        try:
            made = _made(f"{job.spec.file} network", way, make)
        except BuildError as error:  # another method may succeed where one fails, for example to keep any layer
            failed.append(error)
            continue
        tried.append(_Attempt(made, way, yardstick.mean(_outputs(job, made), in_fp32)))
    if not tried:
        raise failed[0]
    best = max(tried, key=lambda attempt: attempt.closeness)
    failures = tuple(f"given up: {error.found}" for error in failed)
    return best.model, (*_notes(best, tried, yardstick.name), *failures)


def _outputs(job: Job, model: Any) -> list[Batch]:
    """Outputs of a model for the calibration data, without padding."""
    runner = OpenVINORunner(model, job.threads, f"{job.spec.file} network", "f32")
    return [without_padding(runner.run(batch), batch) for batch in job.calibration]


_CONTROL, _WEIGHTS = "accuracy control", "INT8 weights alone"
_COSTLY = (_CONTROL, _WEIGHTS)


def _ways(job: Job, model: Any, in_fp32: list[Batch], yardstick: Yardstick) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and function of each method, in the order in which they are tried."""
    nncf = open_nncf()
    data, count = nncf.Dataset(job.calibration), len(job.calibration)
    plain = {"calibration_dataset": data, "subset_size": count}
    if has_attention(model):
        plain["model_type"] = nncf.ModelType.TRANSFORMER
        ways = {f"smoothing {strength}": _smoothing(strength) for strength in _STRENGTHS}
    else:
        presets = nncf.QuantizationPreset
        ways = {
            "symmetric ranges": {"preset": presets.PERFORMANCE},
            "asymmetric ranges": {"preset": presets.MIXED},
            "ranges without outliers": {"preset": presets.MIXED, **_clipping(_OUTLIERS)},
        }
    for way, settings in ways.items():
        yield way, partial(nncf.quantize, model.clone(), **plain, **settings)
    yield _CONTROL, partial(_controlled, job, in_fp32, yardstick, model.clone(), plain)
    yield (_WEIGHTS, partial(nncf.compress_weights, model.clone(), mode=nncf.CompressWeightsMode.INT8_ASYM))


def _made(where: str, way: str, make: Callable[[], Any]) -> Any:
    try:
        with quiet():
            model = make()
    except (MemoryError, OSError):
        raise
    except Exception as error:  # NNCF's own classes have no common root
        raise BuildError(
            where,
            found=f"NNCF cannot quantize it with {way}: {first_reason(error)}",
            wanted="a network that NNCF can quantize",
            todo="build openvino-bf16 or an onnx variant",
        ) from error
    if not is_quantized(model):
        raise BuildError(
            where,
            found=f"NNCF finds no operator to quantize with {way}",
            wanted="convolutions or matrix products that come close enough in 8 bits",
            todo="build openvino-bf16, or leave this variant out",
        )
    return model


def _controlled(job: Job, in_fp32: list[Batch], yardstick: Yardstick, model: Any, settings: dict[str, Any]) -> Any:
    """The model made by NNCF's accuracy control, which reverts the costliest layers until the rest is close enough."""
    nncf = open_nncf()
    references = {id(batch): outputs for batch, outputs in zip(job.calibration, in_fp32, strict=True)}

    def closeness(compiled: Any, data: Any) -> tuple[float, list[float]]:
        names = [node.get_any_name() for node in compiled.outputs]
        scores = []
        for batch in data:
            outputs = dict(zip(names, compiled(batch).values(), strict=True))
            items = yardstick.items([without_padding(outputs, batch)], [references[id(batch)]])
            scores.append(float(items.mean()))
        return sum(scores) / len(scores), scores

    return nncf.quantize_with_accuracy_control(
        model,
        **settings,
        validation_dataset=nncf.Dataset(_first_items(job.calibration, _CONTROL_ITEMS)),
        validation_fn=closeness,
        max_drop=job.spec.model.quality.max_drop,
        drop_type=nncf.DropType.ABSOLUTE,
        advanced_accuracy_restorer_parameters=_advanced().AdvancedAccuracyRestorerParameters(
            max_num_iterations=_CONTROL_STEPS, num_ranking_workers=1
        ),
    )


def _first_items(batches: list[Batch], most: int) -> list[Batch]:
    """The first batches that together hold `most` items, at least one batch."""
    kept: list[Batch] = []
    for batch in batches:
        if kept and sum(map(count_items, kept)) + count_items(batch) > most:
            break
        kept.append(batch)
    return kept


def _notes(best: _Attempt, tried: list[_Attempt], measure: str) -> tuple[str, ...]:
    others = [f"{a.way} {a.closeness:.4f}" for a in tried if a is not best]
    notes = [
        f"quantized with {best.way}: {measure} to FP32 {best.closeness:.4f} on the calibration data"
        + (f" ({', '.join(others)})" if others else "")
    ]
    left, all_layers = layers_in_float(best.model)
    if left:
        named = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
        notes.append(f"{len(left)} of {all_layers} layers stayed FP32: {named}")
    return tuple(notes)


def _smoothing(strength: float) -> dict[str, Any]:
    """Arguments of `quantize` for smoothing; `strength` is the share of activations' range that moves into the weights,
    0 to 1."""
    advanced = _advanced()
    alphas = advanced.AdvancedSmoothQuantParameters(matmul=strength)
    return {"advanced_parameters": advanced.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)}


def _clipping(share: float) -> dict[str, Any]:
    """Arguments of `quantize` for ranges that leave out a share of an activation's values at each end."""
    ranges = need("nncf.quantization.range_estimator", "optimize")
    end = ranges.StatisticsCollectorParameters(
        statistics_type=ranges.StatisticsType.QUANTILE,
        aggregator_type=ranges.AggregatorType.MEAN,
        quantile_outlier_prob=share,
    )
    both = ranges.RangeEstimatorParameters(min=end, max=end)
    return {"advanced_parameters": _advanced().AdvancedQuantizationParameters(activations_range_estimator_params=both)}


def _advanced() -> Any:
    return need("nncf.quantization.advanced_parameters", "optimize")


def without_padding(outputs: Batch, batch: Batch) -> Batch:
    """The outputs, zero where the input is padding.

    A mask is an input of zeros and ones, [batch, length], as tokenizers make it, with a one in every
    item. It applies to outputs of [batch, length, ...]. A network's outputs for padding are never served,
    and forms of one network need not agree on them.
    """
    masks = [array for array in batch.values() if _is_mask(array)]
    masked = dict(outputs)
    for name, array in outputs.items():
        for mask in masks:
            if array.shape[:2] == mask.shape and array.ndim > 2:
                masked[name] = array * mask.astype(array.dtype)[(..., *(None,) * (array.ndim - 2))]
    return masked


def _is_mask(array: Any) -> bool:
    if array.ndim != 2 or array.dtype.kind not in "biu":
        return False
    return bool(((array == 0) | (array == 1)).all() and array.any(axis=1).all())
