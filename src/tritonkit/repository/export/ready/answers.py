"""The right answers of samples: the column that has them, classes by their names, and errors that name the row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.ready.prepared import PreparedSamples, missing_column
from tritonkit.repository.export.ready.rows import CLASS, TEXT, Row
from tritonkit.repository.modelspec import SampleFiles, Spec, resolve_file
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.modelspec.quality import LABEL_COLUMNS, Metric

__all__ = ["CLASS_METRICS", "RightAnswers", "is_whole_number"]

CLASS_METRICS = frozenset({"accuracy", "top_5", "f1", "f1_macro", "f1_micro", "auc"})
"""Metrics whose right answers are classes."""
_USUAL = {"cosine": ("reference",)}
"""Metrics with right answers in other columns than the usual ones, which may hold classes for another metric."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class RightAnswers:
    """The right answers for one metric, by row."""

    spec: Spec
    prepared: PreparedSamples
    metric: Metric

    @cached_property
    def column(self) -> str | None:
        """The column of the right answers; None if there is none."""
        files, rows = self.spec.model.quality.samples, self.prepared.rows
        if rows is None or not isinstance(files, SampleFiles):
            return None
        usual = _USUAL.get(self.metric.name, LABEL_COLUMNS) if files.folder is None else self._of_folder
        named = self.metric.labels or (files.labels if usual == LABEL_COLUMNS or files.folder is not None else None)
        if named is not None and named not in rows.columns:
            raise missing_column(self.spec, "quality.samples", rows, named, " for the right answers")
        return named or next((name for name in usual if name in rows.columns), None)

    @property
    def _of_folder(self) -> tuple[str, ...]:
        """The column of a folder that holds answers of this metric's kind."""
        if self.metric.name == "cosine":
            return ()
        return (CLASS, TEXT) if self.metric.name in CLASS_METRICS else (TEXT,)

    def of_rows(self, rows: Sequence[int], expected: str) -> list[Any]:
        """The answers of these rows as the source has them; arrays of numpy as lists.

        Raises:
            BuildError: there is no such column, or a row lacks it.
        """
        if self.column is None:
            given = self.prepared.rows
            shown = f"{given.name} has {', '.join(map(repr, given.columns))}" if given else "they come from a function"
            raise BuildError(
                f"{self.spec.file} quality.samples",
                found=f"the samples have no right answers, which {self.metric.name} needs: {shown}",
                wanted=f"a column {expected}: {', '.join(LABEL_COLUMNS)}, or another",
                todo="name it: samples: {..., labels: COLUMN}",
            )
        return [self._plain(index, self.row(index).values.get(self.column), expected) for index in rows]

    def _plain(self, index: int, value: Any, expected: str) -> Any:
        """An answer as Python's own numbers, texts and lists."""
        import numpy as np

        if value is None:
            raise self.refused(index, "it is empty", expected)
        if not isinstance(value, np.ndarray | np.generic):
            return value
        if value.dtype.kind != "S":
            return value.tolist()
        texts: Any = value
        try:
            return np.char.decode(texts, "utf-8").tolist()
        except UnicodeDecodeError:
            raise self.refused(index, "it is not UTF-8", expected) from None

    def row(self, index: int) -> Row:
        """A row of the source."""
        assert self.prepared.rows is not None  # noqa: S101  items of a function have no rows
        return self.prepared.rows.rows[index]

    def refused(self, index: int, found: str, wanted: str) -> BuildError:
        """The error for a row whose answer cannot be used."""
        return BuildError(
            f"{self.spec.file} quality.samples",
            found=f"{self.row(index).place}, {self.column}: {found}",
            wanted=wanted,
            todo="correct or remove that row, or name another column: samples: {..., labels: COLUMN}",
        )

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of their numbers; none if nothing has them."""
        files = self.spec.model.quality.samples
        path = None
        if isinstance(files, SampleFiles) and files.classes is not None:
            path = resolve_file(files.classes, self.spec, "quality.samples.classes")
        path = path or _labels_of_steps(self.spec)
        if path is not None:
            return _names_of(path)
        if self.column == CLASS and self.prepared.rows is not None:
            return tuple(sorted({str(row.values[CLASS]) for row in self.prepared.rows.rows}))
        return ()

    def class_number(self, index: int, value: Any, count: int) -> int:
        """The number of a class that a row names or numbers; -1 for a number below 0, which does not count.

        Raises:
            BuildError: there is no such class among `count`.
        """
        text = str(value).strip()
        if text in self.classes:
            number = self.classes.index(text)
        elif is_whole_number(text):
            number = int(text)
        elif isinstance(value, float) and value.is_integer():
            number = int(value)
        else:
            names = nearest(text, self.classes) if self.classes else "the number of a class"
            todo = "" if self.classes else "; or names: samples: {..., classes: FILE}"
            raise self.refused(index, f"there is no class {text!r}", f"{names}{todo}")
        if number >= count:
            raise self.refused(
                index, f"the class {text} has the number {number}", f"0 to {count - 1}, as the output has"
            )
        return max(number, -1)


def is_whole_number(text: str) -> bool:
    """Whether a text is a number that a class can have."""
    return _WHOLE.fullmatch(text) is not None


def _names_of(path: Path) -> tuple[str, ...]:
    """The lines of a file of names, as the steps of pipelines read it.

    Raises:
        BuildError: it cannot be read, or a line is empty, so that the names after it would be shifted.
    """
    try:
        names = [line.strip() for line in path.read_text("utf-8").removesuffix("\n").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(str(path), found=f"it cannot be read: {error}", wanted="names in UTF-8") from None
    for number, name in enumerate(names, start=1):
        if not name:
            raise BuildError(
                f"{path}:{number}", found="the line is empty", wanted="the name of a class", todo="remove the line"
            )
    return tuple(names)


def _labels_of_steps(spec: Spec) -> Path | None:
    """The file with the names of the classes: the `labels` of a step, or those that Triton gives to callers."""
    for step in spec.steps:
        if step is not None and "labels" in step.files:
            return step.files["labels"]
    for name, output in spec.model.serving.output.items():
        if output.label_filename:
            return resolve_file(output.label_filename, spec, f"serving.output.{name}.label_filename")
    return None
