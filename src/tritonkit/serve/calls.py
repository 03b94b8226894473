"""The other models of a repository that a Python model calls while it answers (Triton's BLS).

Triton does not know them: it loads no model because another's Python needs it. The spec names them (`network.calls`, in
the configuration the parameter `tritonkit.calls`). Without it, the model's file is searched for literal names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.client.wire.signature import CALLS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

__all__ = ["CALLS", "called_by"]


def called_by(folder: Path, config: Any, versions: Sequence[int], models: Collection[str]) -> tuple[str, ...]:
    """The models that a model of the Python backend calls: the ones its configuration names, else the models of the
    repository that its file names."""
    if config.backend != "python":
        return ()
    if CALLS in config.parameters:
        return tuple(str(config.parameters[CALLS].string_value).split())
    from tritonkit.repository.environments.environment import OWN_MODEL
    from tritonkit.repository.modelspec.calls import written_calls

    names: set[str] = set()
    for version in versions:
        place = folder / str(version)
        for name in (config.default_model_filename or "model.py", OWN_MODEL):
            names |= written_calls(place / name).names
    return tuple(sorted(names & set(models) - {folder.name}))
