"""`quality` of `model.yaml`: real input, metrics, and limits that a variant must keep to be published."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from tritonkit.repository.modelspec.base import HOOK_PATTERN, FileReference, Hook, InnerPath, Strict

__all__ = [
    "LABEL_COLUMNS",
    "LESS_IS_BETTER",
    "Metric",
    "Quality",
    "ReadyMetric",
    "SampleFiles",
    "Samples",
    "Tolerance",
    "metric_title",
    "ready_metric",
]

ReadyMetric = Literal[
    "accuracy",
    "top_5",
    "f1",
    "f1_macro",
    "f1_micro",
    "auc",
    "map50_95",
    "wer",
    "cer",
    "exact_match",
    "spearman",
    "ndcg_10",
    "cosine",
    "rmse",
]
"""Metrics that tritonkit brings."""
LESS_IS_BETTER = frozenset({"wer", "cer", "rmse"})
"""Ready metrics that count errors."""
NORMALIZED = frozenset({"wer", "cer", "exact_match"})
"""Ready metrics that compare texts and can normalize them first."""
LABEL_COLUMNS = ("label", "labels", "target", "reference")
"""Columns that hold the right answers unless the spec names another; the first that there is."""


class Tolerance(Strict):
    """Largest difference between the exported file and the reference, with the meaning of numpy.allclose."""

    absolute: Annotated[float, Field(ge=0)] = 1e-4
    relative: Annotated[float, Field(ge=0)] = 1e-3


class SampleFiles(Strict):
    """Real data in files: exactly one of folder, csv, jsonl and npz.

    A row of them has the model's inputs, under their names or those in `inputs`. The pipeline's own steps turn them
    into the network's inputs, unless the rows have these already.
    """

    folder: InnerPath | None = None
    """A folder of images or sounds: CLASS/FILE; or files, each with a .txt of its name next to it; or the folders
    `images` and `labels` with the same names of files."""
    csv: FileReference | None = None
    """A table with the names of its columns in the first line; its cells are separated by commas, in .tsv by tabs."""
    jsonl: FileReference | None = None
    """A JSON object on each line."""
    npz: FileReference | None = None
    """Arrays of numpy, rows along the first axis."""
    inputs: dict[str, str | tuple[str, ...]] = {}
    """Columns of inputs whose columns have other names. Several columns are the elements of one vector."""
    pairs: dict[str, tuple[str, str]] = {}
    """An input whose two columns are two items of one row, such as two sentences whose similarity is known."""
    files: tuple[str, ...] | None = None
    """Inputs whose cells name files, relative to the table's folder; by default those with a file in `example`."""
    labels: str | None = None
    """Column of the right answers; by default the first of label, labels, target and reference that there is."""
    classes: FileReference | None = None
    """Names of the classes, one on each line, for labels that are names; by default the `labels` of a step."""
    group: str | None = None
    """Column of what belongs together, as the documents of one query do; for ndcg_10."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        keys = ("folder", "csv", "jsonl", "npz")
        given = [key for key in keys if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"found {' and '.join(given) or 'none'} of folder, csv, jsonl and npz; wanted one")
        if len(self.pairs) > 1:
            raise ValueError(f"pairs has {' and '.join(self.pairs)}; wanted one input")
        if both := sorted(set(self.pairs) & set(self.inputs)):
            raise ValueError(f"pairs and inputs both have {both[0]}; wanted it in one of them")
        return self

    @property
    def source(self) -> tuple[str, FileReference]:
        """The key that is given, and its value."""
        given = {"folder": self.folder, "csv": self.csv, "jsonl": self.jsonl, "npz": self.npz}
        return next((key, value) for key, value in given.items() if value is not None)


class Metric(Strict):
    """A ready metric with settings."""

    name: ReadyMetric
    output: str | None = None
    """The output that is measured, of the network or of a step after it, where several would fit."""
    labels: str | None = None
    """The column with its right answers, where it is not that of the samples."""
    normalize: bool = False
    """Whether texts are compared in lower case and without punctuation; for exact_match without articles too."""

    @model_validator(mode="after")
    def _normalizes_texts(self) -> Self:
        if self.normalize and self.name not in NORMALIZED:
            raise ValueError(f"normalize is given for {self.name}; wanted it only for {', '.join(sorted(NORMALIZED))}")
        return self

    @model_validator(mode="after")
    def _measures_one_output(self) -> Self:
        if self.output is not None and self.name == "map50_95":
            raise ValueError(
                "output is given for map50_95; wanted none: it measures boxes, scores and classes together"
            )
        return self

    @property
    def title(self) -> str:
        """The name that reports show: f1 says which, and an output that was named follows."""
        name = "f1_macro" if self.name == "f1" else self.name
        return f"{name} of {self.output}" if self.output else name


def _checked_name(name: str) -> str:
    """Refuse a name that is neither a function nor a ready metric."""
    if ":" not in name and name not in get_args(ReadyMetric):
        raise ValueError(
            f"unknown metric {name!r}; wanted module:function, or one of {', '.join(get_args(ReadyMetric))}"
        )
    return name


MetricName = Annotated[
    str,
    Field(pattern=rf"{HOOK_PATTERN}|^[a-z0-9_]+$"),
    AfterValidator(_checked_name),
    WithJsonSchema(
        {
            "anyOf": [{"enum": list(get_args(ReadyMetric))}, {"type": "string", "pattern": HOOK_PATTERN}],
            "description": "The name of a ready metric; or module:function, a Python file of the model's folder and a"
            " name in it",
        }
    ),
]


def _kind(given: object) -> str:
    return "name" if isinstance(given, str) else "settings"


# The kind is decided by what is written, so that an error is about the kind that was meant.
Samples = Annotated[
    Annotated[Hook, Tag("name")] | Annotated[SampleFiles, Tag("settings")],
    Discriminator(_kind),
]
AnyMetric = Annotated[
    Annotated[MetricName, Tag("name")] | Annotated[Metric, Tag("settings")],
    Discriminator(_kind),
]


class Quality(Strict):
    """The quality that the network must have to be published."""

    samples: Samples | None = None
    """Real input: files, or a function without arguments that returns a list of batches, each name -> array."""
    metric: AnyMetric | None = None
    """The name of a ready metric; or a function of (outputs, reference), lists of batches in the order of the samples.

    A function returns a number, or an array of one score per item; more is better. The mean of the scores counts, and
    their spread gives a drop its confidence interval. With `max_samples` it gets only that many items.
    """
    also: tuple[AnyMetric, ...] = ()
    """More metrics of this kind, each held to max_drop."""
    at_least: float | None = None
    """Least value of the metric for the exported file."""
    at_most: float | None = None
    """Largest value of a metric that counts errors: wer, cer and rmse."""
    max_drop: Annotated[float, Field(ge=0)] = 0.01
    """Most by which it may be worse than the reference's."""
    max_samples: Annotated[int, Field(ge=1)] | None = None
    """Number of items of the samples to measure on; all by default."""
    max_latency_ratio: Annotated[float, Field(gt=0)] | None = None
    """Most latency of one item, relative to onnx-fp32 on the building machine."""
    max_size_ratio: Annotated[float, Field(gt=0)] | None = None
    """Most bytes, relative to onnx-fp32."""
    tolerance: Tolerance = Tolerance()

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        ready = ready_metric(self.metric)
        counts_errors = ready is not None and ready.name in LESS_IS_BETTER
        if self.at_most is not None and not counts_errors:
            raise ValueError("at_most is given; wanted at_least: higher is better for this metric")
        if self.at_least is not None and counts_errors:
            raise ValueError(f"at_least is given; wanted at_most: lower is better for {ready.title if ready else ''}")
        names = [metric_title(metric) for metric in (self.metric, *self.also) if metric is not None]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"metric and also have two metrics called {twice[0]}; wanted another name for one of them")
        return self

    @property
    def metrics(self) -> dict[str, str | Metric]:
        """All metrics, by their fields of model.yaml."""
        first = {} if self.metric is None else {"quality.metric": self.metric}
        return first | {f"quality.also.{place}": metric for place, metric in enumerate(self.also)}

    @property
    def ready(self) -> dict[str, Metric]:
        """The ready metrics, by their fields."""
        ready = {field: ready_metric(metric) for field, metric in self.metrics.items()}
        return {field: metric for field, metric in ready.items() if metric is not None}


def ready_metric(metric: str | Metric | None) -> Metric | None:
    """A ready metric with its settings; None for a function of the model's folder."""
    if metric is None or isinstance(metric, Metric):
        return metric
    return None if ":" in metric else Metric.model_validate({"name": metric})


def metric_title(metric: str | Metric) -> str:
    """The name of a metric in reports: a function's own, or a ready metric's."""
    ready = ready_metric(metric)
    return ready.title if ready else str(metric).split(":")[1]
