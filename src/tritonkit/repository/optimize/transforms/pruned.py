"""`pruned`: the teacher with channels physically removed, then fine-tuned to give its earlier outputs again.

The network's graph determines which layers must lose the same channels together: DepGraph, Fang, Ma, Song,
Mi and Wang 2023, "Towards any structural pruning" (https://arxiv.org/abs/2301.12900), by torch-pruning.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.hooks import hook_errors
from tritonkit.repository.export.torch_module import outputs_of
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.optimize.transforms.loop import fit, parameter_count, to_pairs
from tritonkit.text import first_line

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make", "remove_channels"]

# Autograd may have only these nodes between an operator and its weight.
_VIEWS_OF_WEIGHTS = ("TBackward", "TransposeBackward", "PermuteBackward", "ViewBackward")


def make(job: Job) -> tuple[Any, tuple[str, ...]]:
    """The teacher without `optimize.channels` of its channels, fine-tuned on `optimize.training`.

    BuildError when nothing can be removed, or the network does not run afterwards.
    """
    spec = job.spec
    pairs = to_pairs(spec, job.training)
    teacher = job.teacher()
    example = pairs[0][0]
    if job.batched:  # a large batch would only make tracing slow
        example = tuple(tensor[:2] for tensor in example)
    student = remove_channels(spec, teacher, example)
    before, after = parameter_count(teacher), parameter_count(student)
    job.say(f"removed channels: {after:,} of {before:,} parameters are left")
    with hook_errors(spec, "optimize.training", "fine-tuning the pruned network"):
        fit(student.train(), teacher, pairs, spec.model.optimize, f"{spec.file} optimize", job.say)
    return student.eval(), (f"parameters: {after:,}, before {before:,} ({after / before:.3f} of them)",)


def remove_channels(spec: Spec, module: Any, inputs: tuple[Any, ...]) -> Any:
    """A copy of `module` in evaluation mode, without the share `optimize.channels` of every layer's
    channels. Channels of the outputs and of `optimize.keep_channels` stay.

    `inputs` are the tensors with which the graph is traced.
    """
    pruning = need("torch_pruning", "optimize")
    share = spec.model.optimize.channels
    smaller = copy.deepcopy(module).eval()
    kept = list(_kept_layers(spec, smaller))
    before = [tuple(output.shape) for output in outputs_of(smaller, inputs)]
    try:
        _prune(pruning, smaller, inputs, share, kept)
        after = [tuple(output.shape) for output in outputs_of(smaller, inputs)]
    except Exception as error:
        raise _refused(spec, f"its channels cannot be removed: {type(error).__name__}: {first_line(error)}") from error
    if after != before:
        raise _refused(spec, f"its outputs would change from {before} to {after}")
    if parameter_count(smaller) == parameter_count(module):
        raise _refused(
            spec,
            f"no layer has channels that can be removed ({share:g} of them, outputs"
            f"{' and keep_channels' if kept else ''} kept)",
        )
    return smaller


def _prune(pruning: Any, module: Any, inputs: tuple[Any, ...], share: float, kept: Sequence[Any]) -> None:
    """Remove in place the channels whose weights, with those of all coupled channels, have the smallest norm.

    Channels of the layers `kept`, and of tensors added to them, stay. On digits this choice kept most of the accuracy
    before fine-tuning. After it, it was as good as Taylor importance, which needs gradients.
    """
    for parameter in module.parameters():
        parameter.requires_grad_(True)  # the graph is read from autograd
    pruner = pruning.pruner.BasePruner(
        module,
        inputs,
        importance=pruning.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=share,
        ignored_layers=[*_output_layers(module, inputs), *kept],
    )
    pruner.step()


def _kept_layers(spec: Spec, module: Any) -> Iterator[Any]:
    """The layers that `optimize.keep_channels` names; BuildError for a pattern that matches no layer."""
    layers = {name: layer for name, layer in module.named_modules() if _has_channels(layer)}
    for pattern in spec.model.optimize.keep_channels:
        names = fnmatch.filter(layers, pattern)
        if not names:
            raise BuildError(
                f"{spec.file} optimize.keep_channels",
                found=f"{pattern!r} matches no layer with channels",
                wanted=f"the name of one of {len(layers)} such layers, or a pattern of names"
                + (f": {nearest(pattern, list(layers))}" if layers else ""),
                todo="correct it, or remove it; * stands for any part of a name, dots included",
            )
        yield from (layers[name] for name in names)


def _has_channels(layer: Any) -> bool:
    return getattr(getattr(layer, "weight", None), "ndim", 0) >= 2


def _output_layers(module: Any, inputs: tuple[Any, ...]) -> Iterator[Any]:
    """Layers whose channels are channels of the outputs: the first with weights on each path back from the outputs."""
    owners = {id(layer.weight): layer for layer in module.modules() if _has_channels(layer)}
    waiting = [output.grad_fn for output in outputs_of(module, inputs)]
    seen = set()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        before = [source for source, _ in function.next_functions]
        layers = [owners[key] for source in before if (key := _weight(source)) in owners]
        yield from layers
        if not layers:
            waiting += before


def _weight(function: Any) -> int:
    """The id of the parameter that this autograd node stands for, also through transposes; else the id of None."""
    while function is not None and function.name().startswith(_VIEWS_OF_WEIGHTS):
        function = function.next_functions[0][0]
    return id(getattr(function, "variable", None))


def _refused(spec: Spec, why: str) -> BuildError:
    return BuildError(
        f"{spec.file} optimize.channels",
        found=why,
        wanted="a network with convolutions or linear layers in a row, whose shapes follow from its weights",
        todo="choose another variant, such as distilled or an int8 one",
    )
