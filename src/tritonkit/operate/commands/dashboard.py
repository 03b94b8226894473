"""`tritonkit dashboard`: the dashboard for Grafana and the alerts for Prometheus, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson, Root, project_or_here
from tritonkit.cli.output import note, print_json
from tritonkit.errors import RenderError

__all__ = ["command"]


def command(
    check: Annotated[
        bool, typer.Option("--check", help="Fail if a file differs from a fresh render; write nothing.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The folder to write into; deploy/ by default.")] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Write the dashboard for Grafana (grafana/) and the alerts for Prometheus (prometheus/alerts.yml).

    `tritonkit dash` shows the same without Grafana.

    Example: tritonkit dashboard --check
    """
    from tritonkit.operate.observe import differing, write

    folder = out or project_or_here(root) / "deploy"
    if check:
        differ = differing(folder)
        if differ:
            raise RenderError(
                str(folder),
                found=f"not as a fresh render has them: {', '.join(p.name for p in differ)}",
                todo="tritonkit dashboard, and commit what it wrote",
            )
    changed = [] if check else write(folder)
    if as_json:
        print_json({"written": [str(path) for path in changed]})
        return
    for path in changed:
        note(f"wrote {path}")
    if not changed:
        note(f"{folder}: nothing to change")
