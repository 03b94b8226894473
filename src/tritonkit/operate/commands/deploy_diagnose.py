"""`tritonkit deploy diagnose`: why a pod is not ready."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson
from tritonkit.cli.output import note, print_json, print_line

__all__ = ["command"]

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace that it was deployed to.")]
Context = Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig, not its current one.")]


def command(namespace: Namespace = "tritonkit", context: Context = None, as_json: AsJson = False) -> None:
    """Say why pods are not ready or a rollout does not go on: where, what was found, wanted, what to do.

    The exit code is 0 whatever is found; --json has the verdict for programs.

    Example: tritonkit deploy diagnose --namespace tritonkit
    """
    from tritonkit.operate.deploy.cluster import causes_of, connect, logs_of, look

    cluster = connect(context, namespace)
    seen = look(cluster)
    logs_of(cluster, seen)
    causes = causes_of(seen)
    verdict = causes[0].cause if causes else "healthy"
    if as_json:
        found = [asdict(each) for each in causes]
        print_json({"verdict": verdict, "causes": found, "notes": seen.notes})
        return
    print_line(f"verdict: {verdict}")
    for number, each in enumerate(causes, 1):
        more = f" and {len(each.pods) - 1} more" if len(each.pods) > 1 else ""
        print_line()
        print_line(f"{number}. {each.cause}: {each.where}{more}")
        print_line(f"   found: {each.found}")
        print_line(f"   wanted: {each.wanted}")
        print_line(f"   do: {each.todo}")
        for line in each.details.splitlines():
            print_line(f"   | {line}")
    for text in seen.notes:
        note(f"note: {text}")
