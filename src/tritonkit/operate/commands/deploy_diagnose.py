"""`tritonkit deploy diagnose`: why a pod is not ready."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson
from tritonkit.cli.output import note, print_json, print_line

__all__ = ["command"]

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the deployment.")]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig; its current one by default.")
]


def command(namespace: Namespace = "tritonkit", context: Context = None, as_json: AsJson = False) -> None:
    """Say why pods are not ready or a rollout is stuck: where, what was found, what was wanted, what to do.

    The exit code is 0 whatever the causes are; --json has the verdict for programs.

    Example: tritonkit deploy diagnose --namespace tritonkit
    """
    from tritonkit.operate.deploy.cluster import causes_of, connect, logs_of, look

    cluster = connect(context, namespace)
    state = look(cluster)
    logs_of(cluster, state)
    causes = causes_of(state)
    verdict = causes[0].cause if causes else "healthy"
    if as_json:
        facts = [asdict(cause) for cause in causes]
        print_json({"verdict": verdict, "causes": facts, "notes": state.notes})
        return
    print_line(f"verdict: {verdict}")
    for number, cause in enumerate(causes, 1):
        more = f" and {len(cause.pods) - 1} more" if len(cause.pods) > 1 else ""
        print_line()
        print_line(f"{number}. {cause.cause}: {cause.where}{more}")
        print_line(f"   found: {cause.found}")
        print_line(f"   wanted: {cause.wanted}")
        print_line(f"   do: {cause.todo}")
        for line in cause.details.splitlines():
            print_line(f"   | {line}")
    for text in state.notes:
        note(f"note: {text}")
