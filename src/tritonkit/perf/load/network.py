"""Time inside the model's network, by its runtime's profiler: this process runs the files that the server serves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.client.inputs import checked_inputs
from tritonkit.errors import TritonkitError, UsageError
from tritonkit.machine import cores
from tritonkit.perf.load.profile import steps_of
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.op_library import operators_of
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import PipelineModel, PipelineNetwork, Spec, read_example
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.runtimes import RUNTIMES, OperatorTime
from tritonkit.repository.optimize.timing import batch_of
from tritonkit.repository.optimize.variants import AS_IS, PYTHON, parse
from tritonkit.repository.optimize.variants.torch_export import PROGRAM
from tritonkit.repository.publish.integrity import read_manifest
from tritonkit.text import first_line

if TYPE_CHECKING:
    from tritonkit.client import Client

__all__ = ["NetworkProfile", "example_inputs", "network_inputs", "profile_network"]

_REPEATS = 50
_THREADS = ("intra_op_thread_count", "INFERENCE_NUM_THREADS")
"""The backends' name for the number of threads in a configuration."""
_RUNTIMES = {"model.xml": "openvino", "model.pt": "torch", PROGRAM: "torch", "model.plan": "tensorrt"}
"""File of a version -> the engine that profiles it."""


@dataclass(frozen=True)
class NetworkProfile:
    """A run of the network in this process, by operator, slowest first; `problem` if there is none."""

    model: str
    variant: str = ""
    runtime: str = ""
    threads: int = 0
    operators: tuple[OperatorTime, ...] = ()
    problem: str = ""

    @property
    def ms(self) -> float:
        """All operators together."""
        return sum(operator.ms for operator in self.operators)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, each operator with its share of the total."""
        operators = [asdict(o) | {"share": o.ms / (self.ms or 1.0)} for o in self.operators]
        return asdict(self) | {"operators": operators, "ms": self.ms}


def example_inputs(spec: Spec, root: Path, client: Client) -> dict[str, Any]:
    """One item for a request: the spec's `example`; for arrays otherwise the first of its quality samples.

    Raises:
        UsageError: no real data is known for an input.
    """
    tensors = client.model(spec.name).signature.inputs
    inputs: dict[str, Any] = {name: read_example(spec, name) for name in spec.model.example if name in tensors}
    needed = [name for name, tensor in tensors.items() if not tensor.optional]
    if any(name not in inputs for name in needed):
        inputs = _sample(spec, root) | inputs
    if left := [name for name in needed if name not in inputs]:
        raise UsageError(
            f"{spec.file} example",
            found=f"no example for input {left[0]}",
            wanted="real data to send",
            todo=f"add it: example: {{{left[0]}: {{file: examples/NAME}}}}",
        )
    return {name: inputs[name] for name in tensors if name in inputs}


def profile_network(spec: Spec, client: Client, repository: Path, inputs: Mapping[str, Any]) -> NetworkProfile:
    """Run the network's served version here, on the output of the steps before it for a request.

    Args:
        repository: the model repository that the server reads, on this machine.
        inputs: the request's inputs, from which the steps before the network make its input.
    """
    model = spec.network_name
    if spec.members:
        networks = ", ".join(one.name for one in spec.tree if not one.members)
        return NetworkProfile(spec.name, problem=f"several networks: profile each by its name ({networks})")
    version = max(client.statistics(model), key=lambda statistics: int(statistics.version)).version
    folder = repository / model / version
    facts = read_manifest(folder)
    if facts is None:
        return NetworkProfile(model, problem=f"there is no {folder}, the version that is served")
    variant = str(facts.get("variant", PYTHON))
    if variant == PYTHON:
        return NetworkProfile(model, variant, problem="a model.py, which has no operators")
    try:
        # Output of a library must not mix with a command's own, such as --json.
        with contextlib.redirect_stdout(sys.stderr), operators_of(spec):
            batch = network_inputs(client, spec, inputs)
            return _profile(model, variant, folder, _threads(client, model), batch)
    except TritonkitError as error:
        return NetworkProfile(model, variant, problem=str(error))
    except Exception as error:  # an engine's own: the request's profile stands without it
        problem = f"{type(error).__name__}: {first_line(error)}"
        return NetworkProfile(model, variant, problem=problem)


def _profile(model: str, variant: str, folder: Path, threads: int, batch: Batch) -> NetworkProfile:
    runtime = _runtime_of_file(folder) if variant == AS_IS else parse(variant, str(folder)).runtime
    if runtime is None:
        return NetworkProfile(model, variant, problem="it does not run on this machine")
    runner = RUNTIMES[runtime](folder, threads, str(folder))
    runner.run(batch)
    times = sorted(runner.profile(batch, _REPEATS), key=lambda time: time.ms, reverse=True)
    return NetworkProfile(model, variant, runtime, threads, tuple(times))


def _runtime_of_file(folder: Path) -> str | None:
    """The engine of a ready-made file; None for a file that only another machine opens."""
    return next((runtime for name, runtime in _RUNTIMES.items() if (folder / name).is_file()), None)


def network_inputs(client: Client, spec: Spec, inputs: Mapping[str, Any]) -> Batch:
    """The network's input for a request: the steps before it are called one by one."""
    tensors: Batch = dict(checked_inputs(client.model(spec.name).signature, inputs))
    for step in steps_of(client, spec.name):
        step_inputs = {own: tensors[name] for own, name in step.input_map.items()}
        if step.model == spec.network_name:
            tensors = step_inputs
            break
        reply = client.model(step.model).predict(inputs=step_inputs)
        tensors |= {name: reply[own] for own, name in step.output_map.items()}
    # Answers are read-only views of bytes, which not every engine takes.
    return {name: array.copy() for name, array in tensors.items()}


def _threads(client: Client, model: str) -> int:
    """The number of threads with which it is served; all cores if its configuration does not set it."""
    parameters = client.config(model).parameters
    counts = [parameters[key].string_value for key in _THREADS if key in parameters]
    return next((int(text) for text in counts if text.isdecimal() and int(text)), cores())


def _sample(spec: Spec, root: Path) -> Batch:
    """The first of the network's own samples; for a pipeline of other networks, of each under its tensors' names."""
    if not spec.model.has_network:
        entries = [part for part in spec.model.pipeline if isinstance(part, PipelineNetwork | PipelineModel)]
        known: Batch = {}
        for entry in entries:
            own = _sample(spec.members[entry.key], root)
            known = {entry.inputs.get(name, name): array for name, array in own.items()} | known
        return known
    if spec.model.network.python or spec.model.network.folder:
        return {}
    job = job_of(spec, BuildCache.of_project(root))
    with contextlib.redirect_stdout(sys.stderr), operators_of(spec):
        samples = job.samples
    return batch_of(samples, 1) if job.batched else samples[0]
