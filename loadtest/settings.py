"""The options of a load, from Locust's command line, environment variables or its web page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import UsageError
from tritonkit.perf.load import SHAPES, Limits, limits_for, read_thresholds
from tritonkit.perf.load.kinds import SEQUENCE_CALLS
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.modelspec.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ADDRESS", "Settings", "add_options", "read_settings"]

ADDRESS = "127.0.0.1:8001"
_HTTP_PORT = 8000
_PAGE_HOST = "127.0.0.1"
"""Address of the web page unless --web-host names another: anyone who reaches the page can load any server."""


@dataclass(frozen=True)
class Settings:
    """Options that were read and checked.

    Args:
        address: Triton's gRPC address, host:port.
        http_address: its HTTP address.
        weights: the relative frequency of calls of each model.
        think_time_s: a user's mean pause.
        limits: the limits of each model.
        inputs: inputs of the only model, NAME=VALUE; none: those of its workload.
        sequence_calls: calls of each sequence, for models that keep state.
    """

    address: str
    http_address: str
    weights: dict[str, int]
    think_time_s: float
    limits: dict[str, Limits]
    inputs: tuple[str, ...] = ()
    sequence_calls: int = SEQUENCE_CALLS


_ON_THE_PAGE = ("http-host", "models", "weights", "think-time", "sequence-calls", "shape")
_OPTIONS: dict[str, dict[str, Any]] = {
    "http-host": {
        "default": "",
        "metavar": "HOST:PORT",
        "help": f"Triton's HTTP address, for RestUser; port {_HTTP_PORT} of --host by default",
    },
    "models": {
        "default": "",
        "metavar": "NAME,NAME",
        "help": "Models to call, of those in models/",
    },
    "weights": {
        "default": "",
        "metavar": "NAME=N,NAME=N",
        "help": "How often each model is called relative to the others; 1 by default",
    },
    "think-time": {
        "default": "100ms",
        "metavar": "TIME",
        "help": "A user's mean pause before its next request: 100ms, 1s, 0ms for none",
    },
    "sequence-calls": {
        "type": int,
        "default": SEQUENCE_CALLS,
        "metavar": "N",
        "help": "Calls of each sequence, for models that keep state",
    },
    "shape": {
        "default": "steady",
        "choices": list(SHAPES),
        "help": "How the number of users changes during the run",
    },
    "thresholds": {
        "default": str(Path(__file__).parent / "thresholds.yaml"),
        "metavar": "FILE",
        "help": "Limits for each model; a run that misses one ends with exit code 1",
    },
    "tier": {
        "default": "",
        "metavar": "NAME",
        "help": "Judge every model by this tier of the thresholds file",
    },
    "input": {
        "action": "append",
        "metavar": "NAME=VALUE",
        "help": "An input of the only model, as for `tritonkit call`; by default its own example or samples",
    },
    "outside": {
        "action": "store_true",
        "help": "Models need no folder in models/: the server knows them",
    },
    "report-json": {
        "default": "",
        "metavar": "FILE",
        "help": "Write the report and the missed limits to this file",
    },
}
"""Options by name, as `add_argument` takes them; all but flags and lists also have an environment variable."""


def add_options(parser: Any, default_models: Sequence[str]) -> None:
    """Declare the options with Locust's parser; the web page shows them too, except those of the command line alone.

    Locust's own defaults are a web page open on every interface, and no host.
    """
    for name, facts in _OPTIONS.items():
        env_var = {} if "action" in facts else {"env_var": f"LOADTEST_{name.upper().replace('-', '_')}"}
        shown = {} if name in _ON_THE_PAGE else {"include_in_web_ui": False}
        parser.add_argument(f"--{name}", **env_var, **shown, **facts)
    parser.set_defaults(host=ADDRESS, web_host=_PAGE_HOST, models=",".join(default_models))


def read_settings(options: Any, host: str | None, names: Sequence[str]) -> Settings:
    """The options of a run as a value.

    Args:
        options: what Locust's parser gave.
        host: Triton's gRPC address, as Locust has it; None or empty is `ADDRESS`.
        names: the models of the project.

    Raises:
        UsageError, SpecError: a model, weight, pause or threshold that cannot be.
    """
    sequence_calls = getattr(options, "sequence_calls", SEQUENCE_CALLS)
    if sequence_calls < 1:
        raise UsageError("--sequence-calls", found=str(sequence_calls), wanted="1 or more calls")
    models = [name.strip() for name in options.models.split(",") if name.strip()]
    if not models:
        raise UsageError("--models", found="no name", wanted=f"some of {', '.join(names)}")
    inputs = tuple(getattr(options, "input", None) or ())
    if inputs and len(models) > 1:
        raise UsageError("--input", found="several models", wanted="one model, which the inputs are for")
    for model in models:
        if not getattr(options, "outside", False):
            _need(model, names, "--models")
    thresholds = read_thresholds(Path(options.thresholds), names)
    address = (host or ADDRESS).removeprefix("grpc://").rstrip("/")
    http_address = options.http_host or f"{address.rpartition(':')[0]}:{_HTTP_PORT}"
    return Settings(
        address=address,
        http_address=http_address.removeprefix("http://").rstrip("/"),
        weights=_weights(options.weights, models),
        think_time_s=_think_time_s(options.think_time),
        limits={m: limits_for(thresholds, m, options.tier or None) for m in models},
        inputs=inputs,
        sequence_calls=sequence_calls,
    )


def _weights(text: str, models: Sequence[str]) -> dict[str, int]:
    weights = dict.fromkeys(models, 1)
    for pair in filter(None, text.split(",")):
        name, _, number = pair.partition("=")
        _need(name.strip(), models, "--weights")
        if not number.strip().isdecimal() or not 0 < int(number) <= 1000:
            raise UsageError("--weights", found=repr(pair), wanted="NAME=N with a whole number from 1 to 1000")
        weights[name.strip()] = int(number)
    return weights


def _think_time_s(text: str) -> float:
    try:
        return parse_duration(text) / 1e6
    except ValueError as error:
        raise UsageError("--think-time", found=str(error)) from None


def _need(name: str, names: Sequence[str], where: str) -> None:
    if name not in names:
        raise UsageError(where, found=f"there is no model {name!r}", wanted=nearest(name, names))
