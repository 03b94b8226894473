"""NNCF, OpenVINO's own quantizer, without its progress bars and without its reports over the network."""

from __future__ import annotations

import os
from typing import Any

from tritonkit.export.quiet import quiet
from tritonkit.extras import need

__all__ = ["clipping", "need_nncf", "smoothing"]

_SILENT = "NNCF_CI"
"""With this set NNCF sends nothing about its use anywhere (nncf/telemetry/wrapper.py); it looks when imported."""


def need_nncf() -> Any:
    """The module; BuildError where it is not installed."""
    before = os.environ.get(_SILENT)
    os.environ[_SILENT] = "1"
    try:
        with quiet():
            return need("nncf", "optimize")
    finally:
        if before is None:
            del os.environ[_SILENT]
        else:
            os.environ[_SILENT] = before


def smoothing(strength: float) -> dict[str, Any]:
    """Arguments of `quantize`: how much of the range of activations moves into the weights, 0 to 1."""
    advanced = _advanced()
    alphas = advanced.AdvancedSmoothQuantParameters(matmul=strength)
    return {
        "advanced_parameters": advanced.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)
    }


def clipping(share: float) -> dict[str, Any]:
    """Arguments of `quantize`: ranges that leave out a share of an activation's values at each end."""
    ranges = need("nncf.quantization.range_estimator", "optimize")
    end = ranges.StatisticsCollectorParameters(
        statistics_type=ranges.StatisticsType.QUANTILE,
        aggregator_type=ranges.AggregatorType.MEAN,
        quantile_outlier_prob=share,
    )
    both = ranges.RangeEstimatorParameters(min=end, max=end)
    return {
        "advanced_parameters": _advanced().AdvancedQuantizationParameters(
            activations_range_estimator_params=both
        )
    }


def _advanced() -> Any:
    return need("nncf.quantization.advanced_parameters", "optimize")
