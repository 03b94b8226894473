"""Makes a running server load the newest versions of its models, without a failed request."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonkit.client.wire.signature import CALLS
from tritonkit.errors import InferenceError, ModelNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonkit.client.sync import Client

__all__ = ["Reloaded", "reload_models"]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Result of reloading one model: the versions that were ready before and are now, and its configuration."""

    model: str
    before: tuple[str, ...]
    now: tuple[str, ...]
    seconds: float
    reconfigured: bool = False
    """Whether the model was served before, and is served now with another configuration."""

    @property
    def changed(self) -> bool:
        """Whether other versions answer now, or the same ones with another configuration."""
        return self.before != self.now or self.reconfigured

    @property
    def outcome(self) -> str:
        """The result in words."""
        if self.before != self.now:
            return "new version"
        return "new configuration" if self.reconfigured else "unchanged"


def reload_models(client: Client, names: Sequence[str] = (), *, timeout_s: float = 120.0) -> tuple[Reloaded, ...]:
    """Load the newest versions of models, all of the repository by default.

    Ensembles come first: loading one brings its parts along in one step, so that a changed network
    and the changed steps around it appear together. Models that Python in these parts calls (those of a `map:`, those
    under `calls`) are loaded after them. A load returns when the new version is warm
    (`model_warmup` has run), and only then does Triton drop the old one.

    Args:
        client: a client of a server with explicit model control, with the server's key if it has one.
        names: models, or ensembles with all their parts, and the models that those call.
        timeout_s: seconds for each model.

    Returns:
        One value for each model that was requested or has changed.

    Raises:
        ModelNotFound: the repository has no such model.
        InferenceError: a model did not load, and Triton's reason; the version before still answers.
    """
    before = _ready(client)
    _check_known(client, names, before)
    configured = _configurations(client, before)
    seconds: dict[str, float] = {}
    waiting = sorted(names or before, key=lambda name: (not _is_ensemble(client, name), name))
    while waiting:
        name = waiting.pop(0)
        started = time.perf_counter()
        client.load(name, timeout_s=timeout_s)
        seconds[name] = time.perf_counter() - started
        waiting += [one for one in _called(client, name) if one not in (*seconds, *waiting)]
    now = _ready(client)
    configured_now = _configurations(client, now)
    models = [
        Reloaded(
            name,
            before.get(name, ()),
            versions,
            seconds.get(name, 0.0),
            name in configured and configured[name] != configured_now.get(name),
        )
        for name, versions in now.items()
    ]
    reloaded = tuple(model for model in models if model.model in seconds or model.changed)
    for model in reloaded:
        if model.model in seconds and not model.now:
            raise InferenceError(
                f"model {model.model} at {client.address}",
                found="it was loaded and no version of it is ready",
                todo="see why: tritonkit models",
            )
    return reloaded


def _check_known(client: Client, names: Sequence[str], repository: Mapping[str, tuple[str, ...]]) -> None:
    unknown = sorted(set(names) - repository.keys())
    if unknown:
        raise ModelNotFound(
            f"model {unknown[0]} at {client.address}",
            found="the server's repository has no such model",
            wanted=f"one of {', '.join(repository) or 'none'}",
            todo="build it: tritonkit build",
        )


def _ready(client: Client) -> dict[str, tuple[str, ...]]:
    """The ready versions of every model in the repository, oldest first."""
    versions: dict[str, tuple[str, ...]] = {}
    for status in client.models():
        versions[status.name] = versions.get(status.name, ()) + ((status.version,) * status.ready)
    return versions


def _configurations(client: Client, models: Mapping[str, tuple[str, ...]]) -> dict[str, bytes]:
    """The configuration with which each model is served, as bytes: equal for equal configurations."""
    return {
        name: client.config(name).SerializeToString(deterministic=True) for name, versions in models.items() if versions
    }


def _called(client: Client, name: str) -> list[str]:
    """The models that a loaded model's Python calls, or that of an ensemble's parts: Triton loads them with neither."""
    if not client.is_ready(name):
        return []
    config = client.config(name)
    if config.platform == "ensemble":
        parts = dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step)
        return [one for part in parts for one in _called(client, part)]
    return config.parameters[CALLS].string_value.split() if CALLS in config.parameters else []


def _is_ensemble(client: Client, name: str) -> bool:
    """Whether a model is a loaded ensemble; one that is not loaded yet is loaded with its parts later."""
    return client.is_ready(name) and client.config(name).platform == "ensemble"
