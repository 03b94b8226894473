"""The generated parts of docs/observe.md: `python -m tests.operate.observe.docs` writes them; a test holds them."""

from __future__ import annotations

import re

from tests.conftest import PROJECT
from tritonkit.metrics import GATEWAY_JOB
from tritonkit.operate.observe import ALERTS, SECTIONS, Alert, Need, Pace, Panel

__all__ = ["PAGE", "written"]

PAGE = PROJECT / "docs" / "observe.md"
_WANTS = {
    Need.gateway: "the gateway",
    Need.gpu: "a GPU",
    Need.cache: "a response cache",
    Need.gauges: "tritonkit's own server",
    Need.stubs: "models in Python",
    Need.llm: "a language model on a CPU",
}


def written(page: str) -> str:
    """The page with these parts in their places."""
    for name, text in {"panels": _panels(), "alerts": _alerts()}.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page = place.sub(lambda match, text=text: f"{match[1]}{text}{match[2]}", page)
    return page


def _panels() -> str:
    lines = ["| panel | what it shows, and what for | from |", "|---|---|---|"]
    for section in SECTIONS:
        lines.append(f"| **{section.title}** | | |")
        lines += [f"| {p.title} | {p.shows} {p.why} | {_source(p)} |" for p in section.panels]
    return "\n".join(lines) + "\n"


def _source(panel: Panel) -> str:
    jobs = " or ".join(f"`{job}`" for job in sorted(panel.jobs, key=lambda job: job != GATEWAY_JOB))
    wants = _WANTS.get(panel.need, "")
    return jobs if not wants or panel.need is Need.gateway else f"{jobs}; needs {wants}"


def _alerts() -> str:
    lines = ["| alert | for | what is the matter | mostly | to look further |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_alert, ALERTS)]) + "\n"


def _alert(alert: Alert) -> str:
    summary = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: match[1].upper(), alert.summary)
    command = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: match[1].upper(), alert.command)
    lasting = Pace()(alert.for_s) if alert.for_s else "immediately"
    cell = command.replace("|", r"\|")
    return f"| `{alert.name}`, {alert.severity} | {lasting} | {summary} | {alert.cause} | `{cell}` |"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
