"""An OpenAI-compatible HTTP server before a Triton endpoint: `tritonkit openai`.

`bodies` reads requests, `generation` and `embeddings` call the models, `answers` writes what comes back, `events`
sends it; `app` joins them to an application, `run` serves it. All but `app`, `events` and `run` need no HTTP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.openai.run import run_openai
    from tritonkit.openai.settings import Settings, read_keys

__all__ = ["Settings", "read_keys", "run_openai"]

_HOMES = {"Settings": "settings", "read_keys": "settings", "run_openai": "run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
