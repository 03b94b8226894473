"""`tritonkit deploy`: the repository on Kubernetes."""

from __future__ import annotations

import typer

from tritonkit.cli import deploy_diagnose, deploy_logs, deploy_status

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("status")(deploy_status.command)
app.command("logs")(deploy_logs.command)
app.command("diagnose")(deploy_diagnose.command)


@app.callback()
def deploy() -> None:
    """What runs in a Kubernetes cluster, and why something there does not."""
