"""Reports of models that were never built: as many variants as there will ever be, with awkward figures."""

from __future__ import annotations

from pathlib import Path

from tritonkit.repository.export import Artifact, MeasuredQuality, Signature
from tritonkit.repository.optimize import Result
from tritonkit.repository.optimize.gate import GateOutcome, Miss
from tritonkit.repository.optimize.runtimes import OperatorTime
from tritonkit.repository.optimize.timing import VariantTiming
from tritonkit.repository.report import Machine, ModelReport, Operators

__all__ = ["CROWD", "MACHINE", "crowd", "report", "result"]

MACHINE = Machine("Some Processor @ 2.00GHz", 2, "Linux-6.1")

CROWD = (  # variant, bytes, metric, ms of one item, ms of 8 items
    ("onnx-fp32", 153_000, 0.9861, 0.0620, 0.150),
    ("onnx-fp16", 80_000, 0.9861, 0.0910, 0.240),
    ("onnx-bf16", 80_000, 0.9833, 0.0880, 0.230),
    ("onnx-int8-dynamic", 45_000, 0.9861, 0.0710, 0.210),
    ("onnx-int8-static", 43_000, 0.9833, 0.0480, 0.110),
    ("onnx-int8-qat", 43_000, 0.9861, 0.0490, 0.112),
    ("openvino-fp32", 153_500, 0.9861, 0.0550, 0.090),
    ("openvino-bf16", 79_000, 0.9861, 0.0530, 0.080),
    ("openvino-int8", 42_000, 0.9833, 0.0520, 0.060),
    ("torch-compile", 210_000, 0.9861, 0.0950, 0.210),
    ("torchscript", 190_000, 0.9861, 0.1300, 0.330),
    ("pruned", 61_000, 0.9806, 0.0450, 0.100),
    ("pruned+onnx-int8-static", 20_000, 0.9750, 0.0410, 0.080),
    ("distilled", 16_000, 0.9778, 0.0310, 0.060),
    ("distilled+onnx-int8-static", 7_000, 0.9722, 0.0300, 0.055),
    ("distilled+openvino-int8", 7_500, 0.9722, 0.0305, 0.052),
    ("tflite", 41_000, 0.9861, 0.0600, 0.400),
    ("onnx-int8-lost", 43_000, 0.4111, 0.0470, 0.110),
)
_DIFFERENCES = {"0": 12, "1e-08": 0, "1e-07": 300, "1e-06": 2000, "1e-05": 1200, "1e-04": 88}


def result(
    folder: Path,
    variant: str,
    size: int,
    value: float,
    one_ms: float,
    batch_ms: float,
    notes: tuple[str, ...] = (),
    least: float = 0.9761,
    counts: dict[str, int] | None = None,
) -> Result:
    """One variant with these figures, its file really there."""
    place = folder / variant
    place.mkdir(parents=True)
    with (place / "model.onnx").open("wb") as file:
        file.truncate(size)
    measured = MeasuredQuality(
        "accuracy",
        value,
        0.9861,
        2.3e-05,
        360,
        max(-0.004, 0.9861 - value - 0.011),
        0.9861 - value + 0.011,
        {"spearman": (0.9983, 1.0)},
        counts or _DIFFERENCES,
        "PyTorch",
    )
    artifact = Artifact(
        "net",
        variant,
        place,
        {"model.onnx": "0"},
        Signature((), (), True),
        measured,
        "0" * 64,
        {"python": "3.11.2", "onnxruntime": "1.26.0"},
        notes,
    )
    misses = ()
    if value < least:
        misses = (
            Miss(
                "quality.max_drop",
                f"accuracy is {value:.4f} on 360 samples, {0.9861 - value:.4f} below the reference's 0.9861",
                "a drop of at most 0.01",
                "choose another variant (tritonkit build --variants all shows them), or raise max_drop",
            ),
        )
    timing = VariantTiming(2, one_ms, 8, batch_ms, "run")
    return Result("net", variant, True, artifact, timing, GateOutcome(misses, value == 0.9833))


def report(results: tuple[Result, ...], operators: Operators | None = None) -> ModelReport:
    """The report of one model with these variants."""
    return ModelReport(
        "net",
        "A network that was never built",
        "models/net/model.yaml",
        results,
        results[-1].variant,
        {"tensorrt-fp16": "not built", "tensorrt-int8": "not built"},
        operators,
    )


def crowd(folder: Path) -> ModelReport:
    """Eighteen variants close together, one far off, and a profile of twenty operators."""
    results = tuple(
        result(folder, *figures, notes=("layers that stayed FP32: /conv1, <b>head</b>",) * (n % 3 == 1))
        for n, figures in enumerate(CROWD)
    )
    times = tuple(
        OperatorTime(f"/features/{n}/convolution_with_a_long_name/Conv", ("Conv", "Relu", "Gemm")[n % 3], 1 / (n + 2))
        for n in range(20)
    )
    made = report(results, Operators("torchscript", "torch", 2, 0.13, times))
    return ModelReport(**{**vars(made), "served": "onnx-int8-static"})
