"""`tritonkit load`: load of users, at a rate, or of a language model's tokens, with every answer checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from tritonkit.cli.completion import complete_model
from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AnyServer, Root, project_folder, project_or_here, refuse
from tritonkit.perf.commands.load_generation import has_language_model, load_language_model
from tritonkit.perf.commands.load_names import whole_inputs
from tritonkit.perf.commands.load_open import load_at_rate
from tritonkit.perf.commands.load_options import LoadOptions, ShapeName
from tritonkit.perf.commands.load_users import load_users

__all__ = ["command"]

_KINDS = ("poisson", "constant", "bursty")


@expanded("load")
def command(
    names: Annotated[
        list[str], typer.Argument(metavar="MODEL...", autocompletion=complete_model, help="Models of models/ to call.")
    ],
    options: LoadOptions,
    address: AnyServer = None,
    root: Root = None,
) -> None:
    """Send load from many users or at a fixed rate; check answers and latency.

    With --rate or --find-rate (open loop) requests are sent on a schedule, independent of the server's answers,
    and latency counts from when each was due. Otherwise (closed loop) Locust's users each wait for an answer. A
    language model gets streams of prompts and answers of drawn lengths in either loop, and is also judged by its first
    token and the time between tokens. Exit code 0 if all limits hold, 1 with a line for each that does not.

    Example: tritonkit load digits --rate 200 --duration 30s --slo p99=20ms
    """
    project = project_folder(root) if address is None else project_or_here(root)
    inputs = whole_inputs(list(options.inputs), names)
    options = replace(options, models=tuple(dict.fromkeys(names)), whole_inputs=inputs)
    is_trace = options.arrivals is not None and options.arrivals not in _KINDS
    if has_language_model(project, names, address):
        _check_tokens(options)
        load_language_model(project, address, options)
    elif options.rate_per_s is None and not options.find and not is_trace:
        _check_users(options)
        load_users(project, address, options)
    else:
        _check_rate(options, is_trace)
        load_at_rate(project, address, options)


def _check_tokens(options: LoadOptions) -> None:
    """Refuse options that a language model has no use for."""
    others = {
        "--processes": options.processes,
        "--think-time": options.think_time_s,
        "--rest": options.rest or None,
        "--http-address": options.http_address,
        "--input": options.inputs or None,
        "--sequence-calls": options.sequence_calls,
    }
    refuse(others, "a model that is not a language model")


def _refuse_tokens(options: LoadOptions) -> None:
    tokens = {
        "--prompt-tokens": options.prompt_tokens,
        "--output-tokens": options.output_tokens,
        "--trace": options.trace,
        "--shared-prefix": options.shared_prefix,
    }
    refuse(tokens, "a language model (docs/llm.md)")


def _check_users(options: LoadOptions) -> None:
    """Refuse options of an open loop."""
    _refuse_tokens(options)
    opened = {
        "--slo": options.slo or None,
        "--arrivals": options.arrivals,
        "--cv": options.cv,
        "--warm-up": options.warm_s,
        "--processes": options.processes,
        "--seed": options.seed,
        "--timeout": options.timeout_s,
    }
    refuse(opened, "--rate or --find-rate")


def _check_rate(options: LoadOptions, is_trace: bool) -> None:
    """Refuse options of a closed loop, and those that this kind of arrivals has no use for."""
    _refuse_tokens(options)
    closed = {
        "--users": options.users,
        "--think-time": options.think_time_s,
        "--tier": options.tier,
        "--rest": options.rest or None,
        "--http-address": options.http_address,
        "--thresholds": options.thresholds,
    }
    refuse(closed, "a closed loop, so not with --rate, --find-rate or a trace")
    if is_trace:
        shape = None if options.shape is ShapeName.steady else options.shape
        drawn = {"--cv": options.cv, "--warm-up": options.warm_s, "--shape": shape}
        refuse(drawn, "drawn arrivals, so not with a trace")
    elif options.arrivals != "bursty":
        refuse({"--cv": options.cv}, "--arrivals bursty")
