"""Compare an ONNX file with the library that the forest comes from, where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.extras import need
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.trees.forest import Forest
from tritonkit.repository.trees.running import run_file
from tritonkit.repository.trees.to_onnx import INPUT, OUTPUT, onnx_of
from tritonkit.text import first_line
from tritonkit.watched import step

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Proof", "made_rows", "proven"]

_ROWS = 2000
_CELLS = 1 << 24
"""Most numbers of all rows."""
_THRESHOLDS = 200
"""Thresholds of a column that rows hold."""
_MISSING = 0.15
"""Share of missing values."""
_EPSILON = float(np.finfo(np.float32).eps)
_RELATIVE = 1e-5
_SPECIAL = (0.0, -0.0, 1e-36, -1e-36, 1.0, -1.0, 1e30, -1e30)
_INFINITE = (np.inf, -np.inf)


@dataclass(frozen=True)
class Proof:
    """The outcome of a comparison; no rows if there was none, and then the reason."""

    library: str
    rows: int = 0
    reason: str = ""

    def __str__(self) -> str:
        """One line for a person."""
        if self.rows:
            return f"the answers to {self.rows} rows are those of {self.library}"
        return f"the answers were not compared with {self.library}'s own: {self.reason}"


def proven(file: Path, forest: Forest, missing: float | None = None) -> Proof:
    """Compare made-up rows: every threshold and its neighbors, missing values, unknown categories, huge numbers.

    Raises:
        UsageError: an answer differs from the library's.
    """
    name = forest.library.partition(" ")[0]
    module = name.lower()
    if importlib.util.find_spec(module) is None:
        return Proof(name, reason=f"it is not installed (pip install {module})")
    rows = made_rows(forest, infinite=name != "XGBoost")
    if missing is not None:
        rows[np.random.default_rng(1).random(rows.shape) < _MISSING] = missing
    try:
        with quiet(), step(f"{name} predicts"):
            predict = _LIBRARIES[name](file, forest, missing)
            sums, answers = (np.asarray(one, np.float64).reshape(len(rows), -1) for one in predict(rows))
    except Exception as error:  # the libraries' errors have no common root
        return Proof(name, reason=f"{name} {_version(module)} does not read the file: {first_line(error)}")
    most = sum(float(np.abs(tree.values[tree.feature < 0]).max()) for tree in forest.trees)
    most += float(np.abs(forest.base).max())
    # Sums of float32 differ by their order, in which errors cancel each other like steps at random.
    rounding = _EPSILON * max(4.0, len(forest.trees) ** 0.5 / 2) * most
    _compare(name, rows, run(onnx_of(forest, missing, sums=True), forest, rows), sums, rounding)
    if answers.shape == sums.shape:
        ours = run(onnx_of(forest, missing), forest, rows)
        _compare(name, rows, ours, answers, _RELATIVE * np.maximum(1, np.abs(answers)) * max(1.0, most * 1e-2))
    return Proof(f"{name} {_version(module)}", len(rows))


def made_rows(forest: Forest, infinite: bool = True) -> NDArray[np.float64]:
    """Rows in which each threshold is met exactly, missed by the least possible, and by more."""
    draw = np.random.default_rng(0)
    count = max(16, min(_ROWS, _CELLS // forest.features))
    thresholds: dict[int, list[float]] = {}
    highest: dict[int, int] = {}
    for tree in forest.trees:
        for node in np.flatnonzero(tree.feature >= 0).tolist():
            column = int(tree.feature[node])
            if node in tree.sets:
                highest[column] = max(highest.get(column, 0), *tree.sets[node], 0)
            else:
                thresholds.setdefault(column, []).append(float(tree.threshold[node]))
    dtype = np.float64 if forest.dtype == "FP64" else np.float32
    rows = np.empty((count, forest.features))
    for column in range(forest.features):
        if column in forest.categorical:
            most = highest.get(column, 0)
            rows[:, column] = draw.integers(0, most + 3, count)
        else:
            pool = _pool(thresholds.get(column, []), dtype, draw, infinite)
            rows[:, column] = draw.choice(pool, count)
    rows[draw.random(rows.shape) < _MISSING] = np.nan
    return rows


def _pool(thresholds: list[float], dtype: Any, draw: Any, infinite: bool) -> NDArray[np.float64]:
    """The values of a column."""
    chosen = np.unique(np.array(thresholds or [0.0], dtype))
    if len(chosen) > _THRESHOLDS:
        chosen = draw.choice(chosen, _THRESHOLDS, replace=False)
    wide = float(np.ptp(chosen)) if np.isfinite(chosen).all() else 0.0
    between = draw.uniform(-1, 1, len(chosen)) * (wide if 0 < wide < np.inf else 1.0)
    with np.errstate(over="ignore"):
        near = [chosen, np.nextafter(chosen, dtype(-np.inf)), np.nextafter(chosen, dtype(np.inf)), chosen + between]
    pool = np.concatenate([*(one.astype(np.float64) for one in near), _SPECIAL, _INFINITE if infinite else ()])
    if not infinite:
        pool = pool[np.abs(pool) <= np.finfo(np.float32).max]
    return pool


def run(content: bytes, forest: Forest, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The answers of an ONNX file to rows."""
    with np.errstate(over="ignore"):
        given = rows.astype(np.float64 if forest.dtype == "FP64" else np.float32)
    return np.asarray(run_file(content, lambda _: {INPUT: given})[OUTPUT], np.float64)


def _compare(name: str, rows: Any, ours: Any, theirs: Any, most: Any) -> None:
    if ours.shape != theirs.shape:
        raise UsageError("", found=f"answers {list(ours.shape)}; {name}'s own are {list(theirs.shape)}", wanted="equal")
    with np.errstate(invalid="ignore"):
        far = ~((np.abs(ours - theirs) <= most) | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    if far.any():
        row, output = np.argwhere(far)[0].tolist()
        raise UsageError(
            "",
            found=f"the answer {ours[row, output]:.7g}, where {name}'s own is {theirs[row, output]:.7g};"
            f" {int(far.any(axis=1).sum())} of {len(rows)} rows differ",
            wanted="the library's answers",
            todo="serve the library itself from a model.py, and report the file to tritonkit's authors",
            details=f"row: {np.array2string(rows[row][:20], separator=', ')}",
        )


def _version(module: str) -> str:
    return str(getattr(need(module, "trees"), "__version__", ""))


_Predict = Callable[["NDArray[np.float64]"], tuple[Any, Any]]
"""Rows to sums and predictions."""


def _xgboost(file: Path, forest: Forest, missing: float | None) -> _Predict:
    xgboost = need("xgboost", "trees")
    booster = xgboost.Booster(model_file=bytearray(file.read_bytes()))
    given = {"iteration_range": (0, forest.rounds)}

    def predict(rows: Any) -> tuple[Any, Any]:
        data = xgboost.DMatrix(
            rows.astype(np.float32),
            missing=np.nan if missing is None else missing,
            feature_names=booster.feature_names,
            feature_types=booster.feature_types,
            enable_categorical=True,
        )
        return booster.predict(data, output_margin=True, **given), booster.predict(data, **given)

    return predict


def _lightgbm(file: Path, forest: Forest, missing: float | None) -> _Predict:
    booster = need("lightgbm", "trees").Booster(model_str=file.read_text(encoding="utf-8"))

    def predict(rows: Any) -> tuple[Any, Any]:
        if missing is not None and not np.isnan(missing):
            rows = np.where(rows == missing, np.nan, rows)
        return booster.predict(rows, raw_score=True), booster.predict(rows)

    return predict


def _catboost(file: Path, forest: Forest, missing: float | None) -> _Predict:
    model = need("catboost", "trees").CatBoost()
    model.load_model(str(file), format="json")
    kind = {"sigmoid": "Probability", "softmax": "Probability", "exp": "Exponent"}.get(forest.link, "RawFormulaVal")

    def predict(rows: Any) -> tuple[Any, Any]:
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
        if missing is not None and not np.isnan(missing):
            rows = np.where(rows == np.float32(missing), np.float32(np.nan), rows)
        answers = model.predict(rows, prediction_type=kind)
        if forest.targets == 1 and np.ndim(answers) == 2:
            answers = answers[:, 1]
        return model.predict(rows, prediction_type="RawFormulaVal"), answers

    return predict


_LIBRARIES: dict[str, Callable[[Path, Forest, float | None], _Predict]] = {
    "XGBoost": _xgboost,
    "LightGBM": _lightgbm,
    "CatBoost": _catboost,
}
