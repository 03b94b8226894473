"""tritonkit: from a model spec to a served prediction on NVIDIA Triton.

Importing this package reads nothing and imports no heavy library: each public name is loaded when it is first used.
Packages are also found by the names that they had in version 0.1.0 (`tritonkit.moved`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tritonkit.moved import find_moved_packages

if TYPE_CHECKING:
    from tritonkit.client import AsyncClient, Client, Reply
    from tritonkit.errors import TritonkitError

__all__ = ["AsyncClient", "Client", "Reply", "TritonkitError", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "tritonkit.client",
    "Client": "tritonkit.client",
    "Reply": "tritonkit.client",
    "TritonkitError": "tritonkit.errors",
}
find_moved_packages()


def __getattr__(name: str) -> Any:
    """Load a public name from its room on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
