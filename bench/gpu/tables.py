"""The tables of `make gpu`, as docs/gpu.md has them. Standard library only."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.gpu.goals import EAGER, Row, judge

__all__ = ["tables"]

WAYS = {"grpc": "gRPC", "system": "shared memory", "cuda": "CUDA shared memory"}
VARIANTS = {
    EAGER: "PyTorch eager FP32, a Python model",
    "resnet50_fp32": "ONNX FP32",
    "resnet50_tf32": "ONNX TF32",
    "resnet50_fp16": "ONNX FP16",
    "resnet50_int8": "ONNX INT8 (QDQ)",
}
"""Variants of ResNet-50 in the order of their table."""


def tables(result: Mapping[str, Any]) -> str:
    """The tables of a run as Markdown: the goals, the variants of ResNet-50, the engines in process, the server."""
    card, rows = result["card"], result.get("rows", [])
    head = f"{card['name']}, driver {card['driver']}, {result['date']}; load: {result.get('generator', 'none')}."
    spread = "Medians with least and most of the rounds; engine and server took turns on the same card."
    parts = [f"{head} {spread}", _goals(rows), _variants(rows), _engines(rows), _served(rows)]
    errors = [f"- {_title(row)}: {row['error']}" for row in rows if "error" in row]
    errors += [f"- {model}: {reason}" for model, reason in result.get("not_served", {}).items()]
    if left_out := result.get("left_out"):
        errors.append(f"- The step's time was over before {', '.join(left_out)}.")
    return "\n\n".join([part for part in parts if part] + (["Not measured:", "\n".join(errors)] if errors else []))


def _title(row: Row) -> str:
    """The words that name a row that has no figures."""
    way, callers = row.get("way"), row.get("callers")
    return f"{row['what']} {row['model']}{f' by {WAYS[way]}' if way else ''}{f', {callers} callers' if callers else ''}"


def _goals(rows: Sequence[Row]) -> str:
    lines = ["| goal | bar | figure | reached |", "| --- | --- | --- | --- |"]
    for judged in judge(rows):
        goal = judged.goal
        unit = f" {goal.unit}" if goal.unit else ""
        bar = f"{'at least' if goal.at_least else 'at most'} {goal.bar:g}{unit}"
        word = {True: "yes", False: "**no**", None: "not measured"}[judged.reached]
        lines.append(f"| {goal.title} | {bar} | {_spread(judged.figures, unit)} | {word} |")
    return "\n".join(lines)


def _spread(figures: Sequence[float], unit: str) -> str:
    if not figures:
        return ""
    return f"{statistics.median(figures):.2f}{unit} ({min(figures):.2f} to {max(figures):.2f})"


def _grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def _middle(rows: Sequence[Row], *keys: str) -> list[float]:
    """The median of each figure."""
    return [statistics.median(row[key] for row in rows) for key in keys]


def _use(rows: Sequence[Row]) -> str:
    """The utilization of the GPU; empty where nvidia-smi does not tell."""
    shares = [row["gpu"] for row in rows if row["gpu"] is not None]
    return f"{statistics.median(shares):.0%}" if shares else ""


def _line(*cells: object) -> str:
    """A row of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def _variants(rows: Sequence[Row]) -> str:
    """One table of what each variant of ResNet-50 gives, for one caller and in batches, against eager PyTorch."""
    served = [row for row in rows if row["what"] == "served" and "error" not in row and row["model"] in VARIANTS]
    if not served:
        return ""
    groups = _grouped(served, "model", "way", "callers")
    eager = groups.get((EAGER, "grpc", 1), [])
    first = ("ResNet-50", "by", "callers", "requests/s", "p50, p99 ms", "GPU")
    titles = (*first, "difference from FP32", "same class", "times eager")
    lines = [_line(*titles), _line(*["---"] * len(titles))]
    for model, title in VARIANTS.items():
        close = _closeness(rows, model)
        for (name, way, callers), group in sorted(groups.items(), key=lambda item: (item[0][2], item[0][1])):
            if name == model:
                rate, *points = _middle(group, "per_s", "p50_ms", "p99_ms")
                times = f"{rate / _middle(eager, 'per_s')[0]:.1f}" if eager else ""
                ms = ", ".join(f"{point:.2f}" for point in points)
                lines.append(_line(title, WAYS[way], callers, f"{rate:.0f}", ms, _use(group), *close, times))
    return "\n".join(lines)


def _closeness(rows: Sequence[Row], model: str) -> tuple[str, str]:
    """The distance of a variant's answers from those of FP32 on the CPU, in two cells."""
    judged = [row for row in rows if row["what"] == "accuracy" and row["model"] == model and "error" not in row]
    if not judged:
        return ("weights of its own" if model == EAGER else "", "")
    return f"{judged[-1]['difference']:.1g}", f"{judged[-1]['same']} of {judged[-1]['images']}"


def _engines(rows: Sequence[Row]) -> str:
    alone = [row for row in rows if row["what"] == "engine" and "error" not in row]
    if not alone:
        return ""
    lines = ["| in process | batch | items/s | ms |", "| --- | --- | --- | --- |"]
    for (model, batch, copies), group in sorted(_grouped(alone, "model", "batch", "copies").items()):
        name = f"{model}, from and to numpy" if copies else model
        rate, ms = _middle(group, "per_s", "ms")
        lines.append(f"| {name} | {batch} | {rate:.0f} | {ms:.2f} |")
    return "\n".join(lines)


def _served(rows: Sequence[Row]) -> str:
    loads = [row for row in rows if row["what"] in ("served", "paced") and "error" not in row]
    if not loads:
        return ""
    lines = [
        "| served | by | callers | requests/s | p50, p95, p99 ms | batch | GPU |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (model, way, callers), group in sorted(_grouped(loads, "model", "way", "callers").items()):
        rate, batch, *points = _middle(group, "per_s", "batch", "p50_ms", "p95_ms", "p99_ms")
        ms = ", ".join(f"{point:.2f}" for point in points)
        lines.append(_line(model, WAYS[way], callers or "at a rate", f"{rate:.0f}", ms, f"{batch:.1f}", _use(group)))
    return "\n".join(lines)
