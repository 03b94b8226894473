"""Packages of a model's own Python: `python` in model.yaml and step.yaml."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from tritonkit.repository.modelspec.base import Strict, inside

__all__ = ["OwnPackages", "PythonVersion", "check_requirement"]

PythonVersion = Literal["3.10", "3.11", "3.12", "3.13"]

_NAMED = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._, -]*\])?\s*(?P<rest>.*)")
_WHEEL = re.compile(r"@\s*https://[^\s/@]+/[^\s@]+\.whl(?:#sha256=[0-9a-f]{64})?\s*(?:;.*)?")
_VERSIONS = re.compile(r"(?:[<>=!~(][^@/\\]*)?(?:;.*)?")


def check_requirement(text: str) -> str:
    """The text if it is one requirement by name; ValueError for options, paths and addresses with a user or password.

    They would take files from outside of the folder, or put secrets into files and logs.
    """
    named = _NAMED.fullmatch(text.strip()) if text.isprintable() else None
    if named is None or not (_VERSIONS.fullmatch(named["rest"]) or _WHEEL.fullmatch(named["rest"])):
        shown = re.sub(r"//[^/\s]*@", "//...@", text)
        raise ValueError(
            f"{shown[:80]!r} is not a requirement; wanted a name with versions, such as xgboost>=3, or NAME @ https://"
            " and the address of a wheel, without a password. UV_DEFAULT_INDEX or pip's settings name an index"
        )
    return text.strip()


def _checked(requirements: tuple[str, ...] | str) -> tuple[str, ...] | str:
    if isinstance(requirements, str):
        return inside(requirements)
    if not requirements:
        raise ValueError("no requirement is given; wanted at least one, or no python")
    return tuple(map(check_requirement, requirements))


class OwnPackages(Strict):
    """Packages that a model's Python has for itself: it finds them before those of the server, and no other model has
    them."""

    requirements: Annotated[tuple[str, ...] | str, AfterValidator(_checked)]
    """Requirements as pip takes them, or a file of them in the model's folder; hashes in a file are checked."""
    version: PythonVersion | None = None
    """The Python of the server that is to run it; by default that of this machine's server, else of this Python."""
    sources: bool = False
    """Whether packages without a wheel may be built, which runs their code on this machine."""
