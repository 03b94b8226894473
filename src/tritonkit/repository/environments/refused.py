"""One error for each reason for which uv does not install packages."""

from __future__ import annotations

import re

from tritonkit.errors import BuildError
from tritonkit.repository.environments.interpreter import Interpreter
from tritonkit.repository.modelspec.requirements import Requirements

__all__ = ["refused"]

_UNREACHABLE = re.compile(
    r"(?i)error sending request|failed to fetch|dns error|failed to lookup|connection refused|\bnetwork\b|timed? ?out"
    r"|error trying to connect|client error \(connect\)"
)
_MISSING = re.compile(
    r"(?P<name>\S+) was not found in the (?:package registry|provided package locations)"
    r"|there is no version of (?P<version>\S+) and you require (?P=version),"
)
_NO_WHEEL = re.compile(r"building from source is disabled|no usable wheels|no wheels with a matching|--no-build")
_FULL = re.compile(r"(?i)no space left on device|os error 28")


def refused(text: str, needed: Requirements, interpreter: Interpreter) -> BuildError:
    """The error for uv's output."""
    where = f"{needed.where}.requirements"
    words = " ".join(line.strip(" ×╰─▶│├") for line in text.splitlines())
    if _FULL.search(words):
        found, wanted, todo = (
            "the disk is full",
            "room for the packages",
            "free space, also in uv's cache (uv cache dir)",
        )
    elif "Hash mismatch" in words or ("hash" in words.lower() and needed.hashed):
        found, wanted = "a file has another hash, or none, than the lock", "the files that the lock names"
        todo = "use the index that the lock was written for, or write the lock again"
    elif re.search(r"Failed to (?:download and )?build", words):
        found, wanted, todo = "a package cannot be built", "packages that this machine can build", "see uv's words"
    elif _NO_WHEEL.search(words):
        found = f"a package has no wheel for Python {interpreter.version} on {interpreter.machine}"
        wanted = "wheels, which install without running code"
        todo = "choose a version with a wheel, or allow its code to run here: python: {sources: true}"
    elif "No solution found" in words and (missing := _MISSING.search(words)):
        found, wanted = f"the index has no {missing['name'] or missing['version']}", "packages that are in the index"
        todo = f"correct the name or the version, or name another index; they are for Python {interpreter.version}"
    elif re.search(r"\bnumpy\b", words) and "No solution found" in words:
        found = "they cannot be met together with the server's numpy"
        wanted = f"versions that work with numpy {interpreter.numpy}, which Triton's Python stub has loaded"
        todo = "loosen the requirements, or take older versions"
    elif "No solution found" in words:
        found, wanted = "they cannot be met together", "versions that exist and fit each other"
        todo = f"loosen the requirements; they are for Python {interpreter.version}"
    elif _UNREACHABLE.search(words):
        found, wanted = "the package index cannot be reached", "an index, or the packages in uv's cache"
        todo = "connect, or name a mirror or folder (UV_DEFAULT_INDEX, UV_FIND_LINKS, or pip's configuration)"
    else:
        found, wanted, todo = "uv cannot install them", "packages that can be installed", "see uv's words"
    return BuildError(where, found=found, wanted=wanted, todo=todo, details=text.strip())
