"""The options of `tritonkit load`, each once; an option that is not given is None or empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from tritonkit.option import Option

__all__ = ["LoadOptions", "ShapeName"]


class ShapeName(StrEnum):
    """The change of the number of users, or of the rate, during the run."""

    steady = "steady"
    ramp = "ramp"
    spike = "spike"
    step = "step"
    daily = "daily"


@dataclass(frozen=True)
class LoadOptions:
    """A load at a rate, of users, or of a language model's tokens.

    Args:
        models: the models to call.
        whole_inputs: `inputs`, with the whole paths of files.
        as_json: whether the report is printed as JSON.
    """

    rate_per_s: Annotated[
        float | None,
        Option(
            "Open loop: requests, or sequences, a second, independent of the server.",
            name="--rate",
            metavar="N",
            unit="rate",
        ),
    ] = None
    find: Annotated[bool, Option("Open loop: find the highest rate that holds --slo.", name="--find-rate")] = False
    slo: Annotated[
        Sequence[str],
        Option(
            "Open loop, and language models: the target; percentiles, errors=0.1%, and of a language model"
            " ttft_p99=500ms and itl_p99=50ms.",
            metavar="p99=20ms",
        ),
    ] = ()
    duration_s: Annotated[
        float | None,
        Option(
            "Duration, such as 30s; 20s by default, and 5s for each trial of --find-rate.",
            name="--duration",
            metavar="TIME",
            unit="time",
            min=0.001,
        ),
    ] = None
    arrivals: Annotated[
        str | None,
        Option(
            "Open loop: poisson (default), constant, bursty, or a CSV file of recorded seconds.", metavar="KIND|FILE"
        ),
    ] = None
    cv: Annotated[float | None, Option("Coefficient of variation of bursty gaps; 4 by default.", min=0.1, max=20)] = (
        None
    )
    shape: Annotated[ShapeName, Option("How the number of users, or the rate, changes.")] = ShapeName.steady
    warm_s: Annotated[
        float | None,
        Option("Open loop: uncounted warm-up time; 1s by default.", name="--warm-up", metavar="TIME", unit="time"),
    ] = None
    processes: Annotated[
        int | None,
        Option("Open loop: processes of the generator; by default as many as the rate needs.", min=1, max=64),
    ] = None
    seed: Annotated[int | None, Option("Open loop: the same seed sends at the same moments.", min=0)] = None
    users: Annotated[int | None, Option("Closed loop: the most callers at the same time; 20 by default.", min=1)] = None
    think_time_s: Annotated[
        float | None,
        Option(
            "Closed loop: a user's mean pause before its next request; 100ms by default.",
            name="--think-time",
            metavar="TIME",
            unit="time",
        ),
    ] = None
    tier: Annotated[
        str | None,
        Option(
            "Closed loop: judge by this tier of the thresholds file: interactive, standard, relaxed or batch; by"
            " default the model's own.",
            metavar="NAME",
        ),
    ] = None
    rest: Annotated[bool, Option("Closed loop: half of the users call over HTTP/REST, for comparison.")] = False
    prompt_tokens: Annotated[
        str | None,
        Option(
            "Language models: tokens of a prompt: N, A-B, lognormal:MEAN,SIGMA, or sharegpt (default).",
            metavar="LENGTHS",
        ),
    ] = None
    output_tokens: Annotated[
        str | None, Option("Language models: tokens of an answer, written in the same way.", metavar="LENGTHS")
    ] = None
    trace: Annotated[
        Path | None,
        Option(
            "Language models: a CSV file with prompt_tokens, output_tokens and, if known, seconds of each request.",
            metavar="FILE",
        ),
    ] = None
    shared_prefix: Annotated[
        int | None,
        Option("Language models: number of tokens of a prefix that all prompts share.", metavar="N", min=1),
    ] = None
    timeout_s: Annotated[
        float | None,
        Option(
            "Open loop and language models: an answer that takes longer counts as failed; 10s by default, 120s for a"
            " language model.",
            name="--timeout",
            metavar="TIME",
            unit="time",
            min=0.001,
        ),
    ] = None
    sequence_calls: Annotated[
        int | None,
        Option("Models that keep state: calls of each sequence; 8 by default.", metavar="N", min=1, max=10_000),
    ] = None
    inputs: Annotated[
        Sequence[str],
        Option(
            "An input of the only model, as for `tritonkit call`; by default its own example or samples.",
            name="--input",
            metavar="NAME=VALUE",
        ),
    ] = ()
    http_address: Annotated[
        str | None, Option("The server's HTTP address, for --rest; port 8000 of --address's host by default.")
    ] = None
    thresholds: Annotated[
        Path | None, Option("Closed loop: file with limits; loadtest/thresholds.yaml by default.")
    ] = None
    metrics: Annotated[
        str | None,
        Option(
            "Addresses of the servers' metrics, for figures of their GPUs; found automatically for `tritonkit serve`.",
            metavar="HOST:PORT,...",
        ),
    ] = None
    report: Annotated[Path | None, Option("Folder for report.html, report.json and CSV files.")] = None
    as_json: Annotated[bool, Option("Print JSON for programs.", name="--json")] = False
    models: tuple[str, ...] = ()
    whole_inputs: tuple[str, ...] = field(default=(), repr=False)
