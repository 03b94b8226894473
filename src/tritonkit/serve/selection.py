"""The choice of models to serve: a model that cannot be served does not keep others from being served."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tritonkit.errors import ServerStartError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonkit.serve.repository import ServedModel

__all__ = ["ALL", "Selection", "mark", "select"]

ALL = "all"
"""Value in `Settings.require` that stands for every model."""


@dataclass(frozen=True)
class Selection:
    """The models that a server is to serve, and those that it does without.

    Args:
        models: the models to load, each after the models it calls.
        refused: model -> the error for which it is not even loaded.
        roots: the models that callers want: the named ones, or all that no other model calls.
        required: the models without which the server is not to run.
        killers: model -> its `mark` at the time when it ended the server.
    """

    models: Mapping[str, ServedModel]
    refused: Mapping[str, ServerStartError]
    roots: tuple[str, ...]
    required: frozenset[str]
    killers: Mapping[str, bytes] = field(default_factory=dict)

    def without(self, name: str, error: ServerStartError) -> Selection:
        """The selection without a model and the models that call it."""
        gone = {name: error}
        for model in self.models.values():
            for part in model.needs:
                if part in gone and model.name not in gone and part in model.relies_on:
                    gone[model.name] = _cannot(model.name, part)
        left = {name: model for name, model in self.models.items() if name not in gone}
        return replace(self, models=left, refused={**self.refused, **gone})

    def without_killer(self, name: str, error: ServerStartError) -> Selection:
        """The selection without a model that ended the server, for as long as the model is not changed."""
        killers = {**self.killers, name: mark(self.models[name])}
        return replace(self.without(name, error), killers=killers)

    def lacks(self, failed: Mapping[str, object]) -> list[str]:
        """Failed models that the server must not run without; empty if it may go on."""
        if missing := [name for name in failed if name in self.required]:
            return missing
        return list(failed) if failed and set(self.roots) <= set(failed) else []

    def check(self) -> None:
        """Refuse to start if a refused model is required.

        Raises:
            ServerStartError: the reason of the first model that the server must not run without.
        """
        if missing := self.lacks(self.refused):
            raise self.refused[missing[0]]


def select(
    models: Sequence[ServedModel],
    refused: Mapping[str, ServerStartError],
    named: Sequence[str] | None,
    require: Sequence[str],
) -> Selection:
    """The selection of a start.

    Args:
        models: the models that can be read.
        refused: the models that cannot be read, each with its error.
        named: the models that the settings name; None for all.
        require: the names of required models, or `ALL`.

    Raises:
        UsageError: `require` names a model that is not to be served.
    """
    names = [*(model.name for model in models), *refused]
    called = {part for model in models for part in model.needs if part != model.name}
    for name in require:
        if name not in names and name != ALL:
            raise UsageError(
                f"--require {name}",
                found="a model that is not to be served",
                wanted=f"one of {', '.join(sorted(names))}, or {ALL}",
            )
    roots = tuple(named) if named is not None else tuple(n for n in names if n not in called)
    required = set(names if ALL in require else require)
    for model in reversed(models):  # each stands after those it calls
        required.update(model.relies_on if model.name in required else ())
    return Selection({model.name: model for model in models}, dict(refused), roots or tuple(names), frozenset(required))


def mark(model: ServedModel) -> bytes:
    """Identity of a model's state: another value means that the model was changed."""
    config: bytes = model.config.SerializeToString(deterministic=True)
    return config + repr(model.versions).encode()


def _cannot(name: str, part: str) -> ServerStartError:
    return ServerStartError(f"model {name}", found=f"it calls {part}, which cannot be served", wanted=f"{part}")
