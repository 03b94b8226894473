"""`tritonkit deploy`: the repository on Kubernetes, as a Kustomize tree; a model as a function of AWS Lambda."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Repository, Root, project_or_here
from tritonkit.cli.output import note, print_json
from tritonkit.operate.commands import (
    deploy_diagnose,
    deploy_fetch,
    deploy_image,
    deploy_lambda,
)
from tritonkit.operate.commands.drift import refuse_drift
from tritonkit.option import Option

__all__ = ["DeployTarget", "app", "deploy"]

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.command("image")(deploy_image.command)
app.command("fetch")(deploy_fetch.command)
app.command("diagnose")(deploy_diagnose.command)


class DeployTarget(StrEnum):
    """The platform that runs it."""

    kubernetes = "kubernetes"
    aws_lambda = "lambda"


@dataclass(frozen=True)
class DeployOptions:
    """The files to render, and the platform that they are for."""

    target: Annotated[DeployTarget, Option("The platform that runs it.")] = DeployTarget.kubernetes
    out: Annotated[
        Path | None, Option("The folder to write; deploy/kubernetes, or deploy/lambda-MODEL, by default.")
    ] = None
    namespace: Annotated[str | None, Option("Namespace for a new values.yaml; an existing one must have the same.")] = (
        None
    )
    check: Annotated[bool, Option("Fail, with a diff, if a file differs; write nothing.")] = False
    force: Annotated[bool, Option("Overwrite files that were edited by hand.")] = False
    model: Annotated[str | None, Option("For lambda: the model; required if there are several.")] = None
    variant: Annotated[
        str | None, Option("For lambda: fp32, int8 or a variant that ONNX Runtime runs; by default the served one.")
    ] = None
    require: Annotated[
        Sequence[str] | None,
        Option("For lambda: a package that one of your steps imports; may be repeated.", metavar="NAME==VERSION"),
    ] = None


@app.callback()
@expanded("deploy")
def deploy(
    context: typer.Context,
    options: DeployOptions,
    repository: Repository = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Render the files with which Kubernetes serves the repository; apply an overlay with `kubectl apply -k`.

    Your decisions are in OUT/values.yaml, which is written once. With --target lambda, the result is a folder from
    which docker builds the image of an AWS Lambda function that runs one model in its own process.

    Example: tritonkit deploy --target kubernetes --out deploy/kubernetes
    """
    if context.invoked_subcommand is not None:
        return
    if options.target is DeployTarget.aws_lambda:
        deploy_lambda.refuse({"--repository": repository, "--namespace": options.namespace}, "kubernetes")
        deploy_lambda.deploy_lambda(
            root,
            options.out,
            options.model,
            options.variant,
            options.require or [],
            options.check,
            options.force,
            as_json,
        )
        return
    deploy_lambda.refuse(
        {"--model": options.model, "--variant": options.variant, "--require": options.require}, "lambda"
    )
    _deploy_to_kubernetes(options, repository, as_json, project_or_here(root))


def _deploy_to_kubernetes(options: DeployOptions, repository: Path | None, as_json: bool, project: Path) -> None:
    from tritonkit.operate.deploy import FILE, compare, read_facts, read_values, render_tree, write_tree
    from tritonkit.operate.deploy.measured import read_profile
    from tritonkit.operate.deploy.pinned import tagged
    from tritonkit.operate.deploy.values import with_namespace, write_values

    folder = options.out or project / "deploy" / options.target.value
    values = with_namespace(read_values(folder / FILE), options.namespace, folder / FILE)
    profile = read_profile(folder, values.measured)
    facts = read_facts((repository or project / "model_repository").resolve(), values, profile)
    tree = render_tree(values, facts)
    if options.check:
        todo = "the same command without --check, and commit what it wrote"
        refuse_drift(folder, compare(folder, tree), todo, as_json)
    written = [] if options.check else write_tree(folder, tree, force=options.force)
    if not options.check:
        written += write_values(folder / FILE, values.namespace)
    if as_json:
        print_json(
            {
                "files": sorted(tree),
                "written": [str(file) for file in written],
                "facts": facts.to_dict(),
                "images_by_tag": tagged(tree.values()),
            }
        )
        return
    for file in written:
        note(f"wrote {file}")
    if not written:
        note(f"{folder}: nothing to change")
    if images := tagged(tree.values()):
        note(f"named by a tag, which a registry can move; name them by digest in {FILE}: {', '.join(images)}")
