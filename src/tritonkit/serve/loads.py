"""Progress of the loads of a start, read from the log, and loads by request once the server runs."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonkit.serve.log import read_tail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tritonkit.serve.core.unix_http import Admin
    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.start import Run

__all__ = ["WARM_UP_FAILED", "Loads", "load_later", "read_loads", "without_warm_up"]

WARM_UP_FAILED = "failed to run warmup sample"
"""Phrase in Triton's reason for not loading a model whose warm-up failed."""

_BEGUN = re.compile(r'\] "loading: (\S+):\d+"')
_DONE = re.compile(r"(?:successfully loaded|failed to load) '([^']+)'\"?$", re.MULTILINE)


@dataclass(frozen=True)
class Loads:
    """The state of a start's loads, as its log shows it so far.

    Args:
        begun: the models whose loads have begun, in order.
        going: the models among them whose loads have not ended.
        warm_up_failed: whether a `model_warmup` has failed.
    """

    begun: tuple[str, ...]
    going: tuple[str, ...]
    warm_up_failed: bool


def read_loads(log: Path, offset: int = 0) -> Loads:
    """The loads in a log from byte `offset` on, because one run's processes share the log."""
    text = read_tail(log, offset)
    begun = tuple(dict.fromkeys(_BEGUN.findall(text)))
    ended = set(_DONE.findall(text))
    going = tuple(name for name in begun if name not in ended)
    return Loads(begun, going, WARM_UP_FAILED in text)


def load_later(run: Run, admin: Admin, failed: dict[str, str], rejected: dict[str, str]) -> Iterable[str]:
    """Load the rest of a run's models; yield each name before it is loaded.

    Models whose `model_warmup` failed are loaded without it.

    Args:
        failed: model -> the reason that it is not loaded; kept up to date.
        rejected: receives each model that was loaded without its warm-up, with the reason.
    """
    loaded: set[str] = set()
    for name, model in run.models.items():
        without = name in run.unwarmed or WARM_UP_FAILED in failed.get(name, "")
        # An ensemble cannot be loaded before its parts.
        again = name in failed and not loaded.isdisjoint(model.needs)
        if not (without or again or name in run.later):
            continue
        loaded.add(name)
        yield name
        first = failed.get(name, "Triton ended while it ran it")
        try:
            reason = _load(admin, model, warm=not without)
            if WARM_UP_FAILED in reason:
                without, first = True, reason
                reason = _load(admin, model, warm=False)
        except ConnectionError as error:  # the server has ended
            failed[name] = str(error)
            return
        if reason:
            failed[name] = reason
            continue
        failed.pop(name, None)
        if without:
            rejected[name] = first


def _load(admin: Admin, model: ServedModel, *, warm: bool) -> str:
    """Load a model; return why that failed, or nothing. ConnectionError if the server ended meanwhile."""
    try:
        admin.load(model.name, "" if warm else without_warm_up(model))
    except ConnectionError:
        raise
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return ""


def without_warm_up(model: ServedModel) -> str:
    """A model's configuration as JSON, without the requests with which Triton warms it up."""
    from google.protobuf import json_format

    config = type(model.config)()
    config.CopyFrom(model.config)
    config.ClearField("model_warmup")
    return json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True))
