"""Restart without a model that ended the server during its start."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tritonkit.errors import ServerStartError
from tritonkit.serve.values import ServeEvent

if TYPE_CHECKING:
    from tritonkit.serve.ready import EndedAtLoad
    from tritonkit.serve.start import Run

__all__ = ["without_cause"]


def without_cause(run: Run, end: EndedAtLoad) -> Run | None:
    """The run to try next; None if the server must not run without the model, or no model is the cause.

    In a start that loads models one after the other, the first of those being loaded is the cause. A model whose
    `model_warmup` failed is loaded without it, because Triton crashes when a warm-up of several requests fails.
    """
    models = [name for name in end.models if name in run.models]
    if not models:
        return None
    if len(models) > 1 and not end.certain and not run.one_by_one:
        run.settings.emit(
            ServeEvent("loading", f"{end.error.found} while it loaded {', '.join(models)}: trying them one by one")
        )
        return replace(run, one_by_one=True)
    causes = models if end.certain else models[:1]
    loaded_now = not end.certain or causes[0] in run.later
    if end.warming and loaded_now and causes[0] not in run.unwarmed:
        return _unwarmed(run, causes[0])
    selection = run.selection
    for name in causes:
        error = ServerStartError(
            f"model {name}",
            found=f"{end.error.found} while it loaded the model or ran its first request",
            wanted="a model that leaves the server running",
            todo=f"the whole log is {run.log}; it is loaded again once it is published again",
            details=end.error.details,
        )
        if name in selection.models:
            selection = selection.without_killer(name, error)
    if selection.lacks(selection.refused):
        return None
    for name in selection.refused.keys() - run.selection.refused.keys():
        run.settings.emit(ServeEvent("not_served", selection.refused[name].found, name))
    left = frozenset(selection.models)
    return replace(run, selection=selection, later=run.later & left, unwarmed=run.unwarmed & left)


def _unwarmed(run: Run, name: str) -> Run:
    """The run with a model and its callers loaded by request, if it can be loaded without its warm-up."""
    later = set(run.later) | {name}
    for model in run.models.values():
        if later & set(model.needs):
            later.add(model.name)
    return replace(run, later=frozenset(later), unwarmed=run.unwarmed | {name})
