"""A PyTorch network from its factory, with its weights, ready for export and comparison."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.hooks import hook_errors, load_hook
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.torch_shared import name_shared_input
from tritonkit.repository.export.torch_values import (
    Found,
    adapted,
    flatten,
    keywords_of,
    wants_other_values,
    wrapper_text,
)
from tritonkit.repository.modelspec import Spec
from tritonkit.text import first_line

__all__ = [
    "SEED",
    "as_plain",
    "load_weights",
    "make_module",
    "outputs_of",
    "run_module",
    "run_outputs",
    "to_array",
    "to_tensors",
]

SEED = 0


def make_module(spec: Spec, hook: str, field: str) -> Any:
    """The module that a factory of the model's folder returns, with every generator seeded."""
    torch = need("torch", "build")
    seed_all(torch)
    module = load_hook(spec, hook, field)()
    if not isinstance(module, torch.nn.Module):
        raise BuildError(
            f"{spec.file} {field}", found=f"{hook} returned {type(module).__name__}", wanted="a torch.nn.Module"
        )
    _check_order(spec, module, f"{spec.file} {field}")
    return module


def _check_order(spec: Spec, module: Any, where: str) -> None:
    """Refuse inputs named like forward's parameters but in another order. They are passed by position, so two tensors
    of one shape would be swapped silently."""
    inputs = list(spec.model.network.inputs)
    if keywords_of(module, inputs):
        return
    try:
        taken = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # compiled: no names are known
        return
    parameters = [parameter.name for parameter in taken if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    for place, name in enumerate(inputs):
        if name in parameters and parameters.index(name) != place:
            raise BuildError(
                where,
                found=f"forward({', '.join(parameters)}) and network.inputs {', '.join(inputs)}",
                wanted="inputs in the order of forward's parameters: they are passed by position",
                todo="put network.inputs into that order",
            )


def run_module(spec: Spec, module: Any, batch: Batch) -> Batch:
    """Outputs of the module for one batch, under the names the spec gives them."""
    names, values = list(spec.model.network.outputs), run_outputs(spec, module, batch)
    results = {name: values.tensors[name] for name in values.chosen(names)}
    if len(results) != len(names):
        raise BuildError(
            f"{spec.file} network.outputs",
            found=f"{len(names)} names for {len(results)} outputs of the module: {', '.join(results)}",
            wanted="the names of outputs of the module, or one for each, in the order it returns them",
        )
    return dict(zip(names, map(to_array, results.values()), strict=True))


def run_outputs(spec: Spec, module: Any, batch: Batch) -> Found:
    """The tensors that the module returns, under its own names, and the values that are not tensors."""
    torch, inputs = need("torch", "build"), list(spec.model.network.inputs)
    tensors = to_tensors(spec, batch)
    with _running(spec, module, tensors), torch.no_grad():
        values = flatten(_call(module, inputs, tensors))
    if not values.tensors:
        raise BuildError(
            f"{spec.file} network.torch",
            found="the module returned no tensor" + "".join(f"; {text}" for text in values.left_out),
            wanted="tensors: alone, or in tuples, lists, dictionaries or dataclasses",
        )
    return values


def _call(module: Any, inputs: Sequence[str], tensors: Sequence[Any]) -> Any:
    if keywords_of(module, inputs):
        return module(**dict(zip(inputs, tensors, strict=True)))
    return module(*tensors)


@contextmanager
def _running(spec: Spec, module: Any, tensors: Sequence[Any]) -> Iterator[None]:
    """Turn a module's errors into BuildError, with a wrapper to start from if forward does not take plain tensors."""
    network = spec.model.network
    try:
        with hook_errors(spec, "network.torch", "running the module on the samples"):
            yield
    except BuildError as error:
        inputs = list(network.inputs)
        if wants_other_values(module, inputs):
            hook = str(network.torch)
            error.wanted = "a module that takes tensors alone, in the order of network.inputs or by their names"
            error.todo = f"write a wrapper as below, and name it: torch: {hook.partition(':')[0]}:wrapped"
            error.details = f"{wrapper_text(module, inputs, hook)}\n\n{error.details}"
        else:
            name_shared_input(error, lambda *given: _call(module, inputs, given), inputs, tensors)
        raise


def to_array(tensor: Any) -> Any:
    """The tensor as a numpy array; BF16, which numpy lacks, becomes float32, which holds its values exactly."""
    torch = need("torch", "build")
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()


def to_tensors(spec: Spec, batch: Batch) -> tuple[Any, ...]:
    """The module's positional arguments: the spec's inputs, in their order.

    They are copies, because a module may change its input in place, and other networks run on the same batch later.
    """
    torch = need("torch", "build")
    return tuple(
        torch.from_numpy(batch[name]).to(torch.bfloat16)
        if tensor.dtype == "BF16"
        else torch.from_numpy(batch[name]).clone()
        for name, tensor in spec.model.network.inputs.items()
    )


def outputs_of(module: Callable[..., Any], inputs: Iterable[Any]) -> list[Any]:
    """The module's tensors as a list, in its order."""
    return list(flatten(module(*inputs)).tensors.values())


def as_plain(spec: Spec, module: Any, batch: Batch) -> tuple[Any, tuple[str, ...]]:
    """The module, or a wrapper that takes and returns plain tensors in the spec's order; and the left-out outputs.

    It is run on the batch once.
    """
    network = spec.model.network
    names = list(network.inputs), list(network.outputs)
    tensors = to_tensors(spec, batch)
    with _running(spec, module, tensors):
        return adapted(module, *names, tensors)


def seed_all(torch: Any) -> None:
    """Make training and initialization repeatable."""
    import numpy as np

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


def load_weights(module: Any, file: Path, where: str) -> None:
    """Load a .safetensors file, or a checkpoint without running code from it."""
    state = _read_weights(file, where)
    try:
        result = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise BuildError(where, found="weights of other shapes than the module's", details=str(error)) from error
    # Buffers that the module computes itself are saved by some writers and not by others.
    buffers = {name for name, _ in module.named_buffers()}
    missing = [name for name in result.missing_keys if name not in buffers]
    unexpected = [n for n in result.unexpected_keys if not n.endswith("position_ids")]
    if missing or unexpected:
        raise BuildError(
            where,
            found=f"{len(missing)} weights are missing and {len(unexpected)} are unknown to the module",
            wanted="the names of module.state_dict()",
            details="\n".join([f"missing: {n}" for n in missing[:5]] + [f"unknown: {n}" for n in unexpected[:5]]),
        )


def _read_weights(file: Path, where: str) -> dict[str, Any]:
    """The tensors of a file by name; BuildError for a file that is damaged, or that would have to run code."""
    try:
        if file.suffix == ".safetensors":
            state = need("safetensors.torch", "build").load_file(file)
        else:
            state = need("torch", "build").load(file, map_location="cpu", weights_only=True)
            state = state.get("state_dict", state) if isinstance(state, dict) else state
    except BuildError:
        raise
    except Exception as error:
        raise BuildError(
            where,
            found=f"{file.name} cannot be read: {first_line(error)}",
            wanted="a .safetensors file, or a checkpoint of tensors only",
            todo="save it again with safetensors.torch.save_file or torch.save(module.state_dict(), ...)",
        ) from error
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise BuildError(
            where,
            found=f"{file.name} holds a {type(state).__name__}",
            wanted="the names of module.state_dict(), each with its tensor",
        )
    return state
