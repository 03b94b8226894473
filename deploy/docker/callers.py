"""Models that load only once the server runs: Python that calls other models (BLS), and ensembles with such a part.

While Triton starts it refuses every call of a model ("Server not ready"), so such Python fails where it calls others in
its warm-up or while it loads.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

from core.unix_http import Admin

__all__ = ["LateLoads", "configs_of", "later", "needs_of"]

_CALLS = re.compile(r'key:\s*"tritonkit\.calls"\s*value:?\s*{\s*string_value:\s*"([^"]*)"')
"""The parameter by which a build says which models its Python calls."""
_PARTS = re.compile(r'model_name:\s*"([^"]+)"')
_TOO_EARLY = "Server not ready"


def later(repository: Path, early: Collection[str] = ()) -> list[str]:
    """The models to load once the server runs, each after those it needs.

    Args:
        early: others that turned out to call models while the server started.
    """
    configs = configs_of(repository)
    needs = needs_of(repository)
    waiting = {name for name, text in configs.items() if name in early or _calls(text)}
    while more := {name for name in needs.keys() - waiting if needs[name] & waiting}:
        waiting |= more
    ordered: list[str] = []
    while waiting:
        # Models that call each other have no order.
        ready = sorted(name for name in waiting if not needs[name] & waiting - {name}) or sorted(waiting)
        ordered += ready
        waiting -= set(ready)
    return ordered


def needs_of(repository: Path) -> dict[str, set[str]]:
    """Model -> the parts of an ensemble, or the models that its Python calls."""
    return {name: _needs(text) for name, text in configs_of(repository).items()}


def configs_of(repository: Path) -> dict[str, str]:
    """Model -> the text of its configuration."""
    return {file.parent.name: file.read_text() for file in sorted(repository.glob("*/config.pbtxt"))}


def _calls(text: str) -> set[str]:
    return {name for names in _CALLS.findall(text) for name in names.split()}


def _needs(text: str) -> set[str]:
    return set(_PARTS.findall(text)) if "ensemble_scheduling" in text else _calls(text)


class LateLoads(threading.Thread):
    """Loads these models, and then those that failed because they called others too early. Whether one failed is in
    Triton's index, as for those of the start.

    Args:
        without: the models that are not to be loaded.
    """

    def __init__(self, admin: Admin, repository: Path, without: Collection[str] = ()) -> None:
        super().__init__(name="late-loads", daemon=True)
        self._admin, self._repository, self._without = admin, repository, without

    def run(self) -> None:
        """Load one after the other; a server that has ended is started again by the code that waits for it."""
        loaded = later(self._repository)
        try:
            self._load(loaded)
            early = [str(entry.get("name")) for entry in self._admin.index() if _TOO_EARLY in str(entry.get("reason"))]
            if early:
                self._load(name for name in later(self._repository, early) if name not in loaded)
        except (OSError, ValueError, http.client.HTTPException):
            return

    def _load(self, names: Iterable[str]) -> None:
        for name in (name for name in names if name not in self._without):
            with contextlib.suppress(http.client.HTTPException):  # Triton's refusal
                self._admin.load(name)
