"""The generated parts of docs/diagnose.md: `python -m tests.perf.diagnose.page` writes them, a test compares them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tests.conftest import PROJECT
from tests.perf.diagnose.recorded import RECORDED
from tests.server.diagnose.cases import CASES, Case
from tritonkit.perf.diagnose import HEALTHY, RULES

__all__ = ["PAGE", "parts", "written"]

PAGE = PROJECT / "docs" / "diagnose.md"


def parts() -> dict[str, str]:
    """Text by the name of its place in the page."""
    return {"causes": _causes(), "provoked": _provoked(), "recorded": _recorded()}


def written(page: str) -> str:
    """The page with these parts in their places."""
    for name, text in parts().items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page = place.sub(lambda match, text=text: f"{match[1]}{text}{match[2]}", page)
    return page


def _causes() -> str:
    lines = ["| cause | when |", "|---|---|"]
    for cause, rule in RULES.items():
        meaning = " ".join((inspect.getdoc(rule) or "").split())
        lines.append(f"| `{cause}` | {meaning} |")
    return "\n".join(lines) + "\n"


def _provoked() -> str:
    lines = ["| cause | provoked by | evidence | verdict |", "|---|---|---|---|"]
    lines += [
        f"| {_cause(case)} | {case.how} | {case.evidence or 'no rule fires'} | `{case.cause}` |" for case in CASES
    ]
    return "\n".join(lines) + "\n"


def _recorded() -> str:
    lines = ["| verdict | trial | evidence |", "|---|---|---|"]
    lines += [f"| `{trial.cause}` | {trial.how} | {trial.evidence} |" for trial in RECORDED]
    return "\n".join(lines) + "\n"


def _cause(case: Case) -> str:
    return "none" if case.cause == HEALTHY else f"`{case.cause}`"


if __name__ == "__main__":
    page = Path(PAGE)
    page.write_text(written(page.read_text()))
