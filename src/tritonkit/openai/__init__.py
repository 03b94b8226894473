"""An OpenAI-compatible HTTP server before a Triton endpoint: `tritonkit openai`.

`bodies` reads requests, `generation` and `embeddings` call the models, `answers` makes the responses and `events`
sends them. `app` joins these to an application, and `run` serves it. All but `app`, `events` and `run` need no HTTP.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.openai.run import run_openai
    from tritonkit.openai.settings import OpenAISettings, read_keys

__all__ = ["OpenAISettings", "read_keys", "run_openai"]

_HOMES = {"OpenAISettings": "settings", "read_keys": "settings", "run_openai": "run"}


def __getattr__(name: str) -> Any:
    if name == "Settings":
        warnings.warn("tritonkit.openai.Settings is OpenAISettings since version 0.2", DeprecationWarning, stacklevel=2)
        name = "OpenAISettings"
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
