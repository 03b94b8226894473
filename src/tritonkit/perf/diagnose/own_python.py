"""A user's own Python, tried in batches by the embedded server before a build publishes it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client import Client
from tritonkit.errors import ClientError, ServerError, ServerNotFound, UsageError
from tritonkit.perf.diagnose.independence import BatchingCheck, check_batching
from tritonkit.repository.export.artifact import Independence
from tritonkit.repository.publish.publish import Rendered, publish
from tritonkit.serve import Server

if TYPE_CHECKING:
    from tritonkit.repository.render.values import ModelPlan

__all__ = ["prove_own_python"]

_TIMEOUT_S = 60.0

Arrays = Mapping[str, Any]


def prove_own_python(
    root: Path, models: Sequence[Rendered], names: Sequence[str], item_sets: Sequence[Arrays]
) -> dict[str, Independence]:
    """Try a user's own Python in batches as it will be served, with `check_batching` on a separate server.

    Args:
        root: the project, whose server is used.
        models: the models of one spec, the called one last.
        names: names of the models to try.
        item_sets: items along the first axis, by the names of the pipeline's tensors; each step's outputs for them
            are the inputs of the next.

    Returns:
        A verdict for each of the names; `unknown`, with the reason, if it was not tried.
    """
    with tempfile.TemporaryDirectory(prefix="tritonkit-build-") as folder:
        repository = Path(folder) / "model_repository"
        publish(repository, models)
        called = models[-1].plan
        there = {model.plan.name for model in models}
        # A pipeline with models of other specs is not served as a whole: they are not in this repository.
        whole = all(step.model in there for step in called.steps)
        served = (called.name,) if whole else tuple(names)
        server = Server(repository, models=served, root=root, grpc_port=0, metrics_port=0)
        try:
            with server, Client(server.endpoint.grpc, timeout_s=_TIMEOUT_S) as client:
                trial = _Trial(client, [model.plan for model in models], names)
                for items in item_sets:
                    trial.walk(items)
                return trial.verdicts
        except ServerNotFound:
            reason = "there is no server here (`tritonkit server install`)"
        except ServerError as error:
            reason = f"the server does not serve it ({error.in_a_line()})"
    return {name: Independence("unknown", reason) for name in names}


class _Trial:
    """A trial of a pipeline's models on a server, with the verdicts so far."""

    def __init__(self, client: Client, plans: Sequence[ModelPlan], names: Sequence[str]) -> None:
        self._client = client
        self._plans = {plan.name: plan for plan in plans}
        self._steps = plans[-1].steps
        self._names = names
        self.verdicts = {name: Independence("unknown", "no two different items of it are known") for name in names}

    def walk(self, items: Arrays) -> None:
        """Follow items through the pipeline, and try each chosen model on the values that reach it."""
        values = dict(items)
        left = [name for name in self._names if self.verdicts[name].state in ("unknown", "proven")]
        for name, inputs, outputs in self._parts():
            if name not in self._plans:  # a model of another spec
                continue
            needed = [t.name for t in self._plans[name].inputs if not t.optional]
            taken = {own: values[tensor] for own, tensor in inputs.items() if tensor in values}
            if not left or not all(own in taken for own in needed):
                continue
            if name in left:
                left.remove(name)
                verdict = self._verdict(name, taken)
                if verdict.state != "unknown" or self.verdicts[name].state == "unknown":
                    self.verdicts[name] = verdict
            if left:
                made = self._answers(name, taken)
                values |= {outputs[own]: array for own, array in made.items() if own in outputs}

    def _parts(self) -> list[tuple[str, Mapping[str, str], Mapping[str, str]]]:
        """Each model with the pipeline's names of its inputs and outputs."""
        if self._steps:
            return [(step.model, step.input_map, step.output_map) for step in self._steps]
        (plan,) = self._plans.values()
        return [(plan.name, {t.name: t.name for t in plan.inputs}, {t.name: t.name for t in plan.outputs})]

    def _verdict(self, name: str, taken: Arrays) -> Independence:
        try:
            return _said(check_batching(self._client, name, taken))
        except UsageError as error:
            return Independence("unknown", error.found)
        except ClientError as error:
            return Independence("unknown", f"it does not answer an item alone ({error.in_a_line()})")

    def _answers(self, name: str, taken: Arrays) -> dict[str, Any]:
        """A model's outputs for the items, asked one by one; those whose shape differs between items are left out."""
        model, count = self._client.model(name), len(next(iter(taken.values())))
        try:
            rows = [model.predict(inputs={own: array[i : i + 1] for own, array in taken.items()}) for i in range(count)]
        except ClientError:
            return {}
        return {
            own: np.concatenate([row[own] for row in rows])
            for own in rows[0]
            if len({row[own].shape for row in rows}) == 1
        }


def _said(check: BatchingCheck) -> Independence:
    """The verdict of a check, in the terms of a build."""
    if check.verdict == "independent":
        return Independence("proven", f"{check.items} items, {', '.join(check.arrangements)}")
    if check.verdict == "batches-refused":
        return Independence("coupled", f"it takes an item alone and not several ({check.found})")
    worst = check.couplings[0]
    report = (
        f"sent as {worst.arrangement}, {worst.differing} of {worst.compared} answers differ, most in"
        f" {worst.output} of item {worst.item}"
    )
    return Independence("coupled" if check.verdict == "coupled" else "random", report)
