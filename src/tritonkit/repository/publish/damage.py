"""The error for a repository that differs from the published one."""

from __future__ import annotations

from collections.abc import Sequence

from tritonkit.errors import ServerError
from tritonkit.repository.publish.integrity import Damage

__all__ = ["damage"]

_MOST_NAMED = 20


def damage(findings: Sequence[Damage]) -> ServerError:
    """One error for all findings: the first as the error, the others as its details."""
    first, *others = findings
    lines = [str(finding) for finding in others[:_MOST_NAMED]]
    if len(others) > _MOST_NAMED:
        lines.append(f"... and {len(others) - _MOST_NAMED} more")
    return ServerError(
        str(first.file), found=first.found, wanted=first.wanted, todo=first.todo, details="\n".join(lines)
    )
