"""Notes on a part for the person who builds it: the reasons of choices, and limits that no error reports."""

from __future__ import annotations

from tritonkit.repository.environments.environment import OWN_MODEL
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.calls import written_calls
from tritonkit.repository.render.batching import independence_note, warm_up_note
from tritonkit.repository.render.engines import weights_at
from tritonkit.repository.render.parts import CALLS, Part
from tritonkit.repository.render.values import Target

__all__ = ["part_notes"]


def part_notes(part: Part, spec: Spec, artifact: Artifact, target: Target, max_batch_size: int) -> tuple[str, ...]:
    """Notes on calls, padding, weights and batches; notes on warm-up requests and trials are made with them."""
    own = () if part.is_step else _network_notes(spec, artifact, max_batch_size)
    limits = (_padding_note(part, max_batch_size, target), _compiled_note(part, target))
    notes = (_calls_note(part, spec), _states_note(part), *limits, _weights_note(part, spec), *own)
    return tuple(note for note in notes if note)


def _network_notes(spec: Spec, artifact: Artifact, max_batch_size: int) -> tuple[str, ...]:
    edges = artifact.quality.edges if artifact.quality else ""
    return (warm_up_note(spec, artifact, max_batch_size), independence_note(spec, artifact), edges)


def _padding_note(part: Part, max_batch_size: int, target: Target) -> str:
    """The limit of the openvino backend in NVIDIA's image, by its source (SetInputTensors)."""
    free = any(-1 in port.info.shape for port in part.inputs)
    if target != "nvidia" or part.backend != "openvino" or max_batch_size < 2 or not free:
        return ""
    return (
        f"NVIDIA's openvino backend does not pad inputs with a free axis, so it answers only full batches of"
        f" {max_batch_size}; serve another variant, or set max_batch_size: 1"
    )


def _compiled_note(part: Part, target: Target) -> str:
    if target == "cpu" or part.torch_kinds != ("cpu",):
        return ""
    gpus = "torch-compile-cuda, torch-export" if target == "gpu" else "torch-export"
    return f"it runs on the CPU, for which torch-compile compiled it; {gpus} and the onnx variants run on a GPU"


def _states_note(part: Part) -> str:
    """A note on states that Triton hands to the network as uninitialized memory."""
    sequences = part.serving.sequence_batching
    names = sequences.without_first_value if sequences else ()
    if not names:
        return ""
    return (
        f"Triton has no first value for the state {names[0]}, which has a free axis; give each axis a size, or add a"
        " control_input of kind start by which the network knows a new sequence"
    )


def _calls_note(part: Part, spec: Spec) -> str:
    """A note on calls of other models that the spec does not name."""
    python = None if part.is_step else spec.model.network.python
    files = part.version_files
    file = spec.folder / python if python else files.get(OWN_MODEL) or files.get("model.py")
    if part.backend != "python" or file is None or CALLS in part.parameters:
        return ""
    calls = written_calls(file)
    if calls.computed:
        return "its Python calls a model whose name is computed: list such models in `calls`, so that they load first"
    names = ", ".join(sorted(calls.names))
    return f"its Python calls {names}: list in `calls` the models that must be loaded with it" if names else ""


def _weights_note(part: Part, spec: Spec) -> str:
    return f"the server reads its checkpoint from {weights_at(spec)}" if part.engine else ""
