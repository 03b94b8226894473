"""A panel: its queries, unit, title and purpose, and the source that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tritonkit.metrics import GATEWAY_JOB, TRITON_JOB

__all__ = [
    "BYTES",
    "COUNT",
    "DAYS",
    "EVENTS_PER_S",
    "JOULES",
    "MS",
    "PERCENT",
    "PER_S",
    "TIMES",
    "TOKENS_PER_S",
    "WATTS",
    "Need",
    "Panel",
    "Query",
    "Section",
    "Unit",
]


@dataclass(frozen=True)
class Unit:
    """A unit for people, and Grafana's name of it."""

    text: str
    grafana: str


PER_S = Unit("requests/s", "reqps")
TOKENS_PER_S = Unit("tokens/s", "suffix: tokens/s")
EVENTS_PER_S = Unit("a second", "cps")
MS = Unit("ms", "ms")
PERCENT = Unit("%", "percent")
BYTES = Unit("bytes", "bytes")
COUNT = Unit("", "short")
TIMES = Unit("x allowed", "none")
DAYS = Unit("days", "d")
WATTS = Unit("W", "watt")
JOULES = Unit("J", "joule")


class Need(StrEnum):
    """The source that a panel needs; the value is the sentence that is shown without it."""

    traffic = "no request was answered in this time"
    failures = "nothing failed in this time"
    gateway = "there is no gateway: Prometheus has no job of that name"
    gpu = "no replica has an NVIDIA GPU, or its GPU metrics are off"
    cache = "no model has a response cache (serving: {response_cache: true}), or none has been called"
    llm = "no model is a language model of tritonkit's backend llm, or none has been called"
    gauges = "these replicas were started by another tritonserver: only tritonkit's has these figures"
    stubs = "no model has a Python process: native backends and steps answer, or tritonkit did not start it"
    scraped = "Prometheus scrapes no replica: it has no job named triton"


@dataclass(frozen=True)
class Query:
    """PromQL with `$model`, `$instance` and `$window`, and the pattern of a series' name, as in `{{model}} p95`."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One plot.

    Attributes:
        name: the panel's name, for programs.
        shows: a description of its lines.
        why: its purpose.
        need: the source that it needs; without it the panel is empty, and says so.
        limits: limits to draw as lines, with their names.
        stacked: whether the lines are parts of a whole.
    """

    name: str
    title: str
    unit: Unit
    queries: tuple[Query, ...]
    shows: str
    why: str
    need: Need
    limits: tuple[tuple[float, str], ...] = ()
    stacked: bool = False

    @property
    def jobs(self) -> tuple[str, ...]:
        """The scrape jobs that it takes its series from."""
        expressions = " ".join(query.expr for query in self.queries)
        return tuple(job for job in (TRITON_JOB, GATEWAY_JOB) if f'job="{job}"' in expressions)

    @property
    def source(self) -> str:
        """The source of its figures, in words."""
        sources = {TRITON_JOB: "each replica's metrics", GATEWAY_JOB: "the gateway's metrics"}
        return " and ".join(sources[job] for job in self.jobs)


@dataclass(frozen=True)
class Section:
    """Panels that answer one question.

    Attributes:
        optional: whether most servers have no data for it. Such a section is drawn only if it has data, and is folded
            in Grafana.
    """

    title: str
    panels: tuple[Panel, ...]
    optional: bool = False
