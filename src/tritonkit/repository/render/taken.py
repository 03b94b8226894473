"""A model in Triton's layout as a plan: its own config.pbtxt stays as it is, under the spec's name."""

from __future__ import annotations

from tritonkit.errors import RenderError
from tritonkit.releases import to_release
from tritonkit.repository.export.artifact import TensorInfo
from tritonkit.repository.export.triton_folder import TritonFolder, read_triton_folder
from tritonkit.repository.modelspec import Spec, resolve_folder
from tritonkit.repository.modelspec.calls import written_calls
from tritonkit.repository.render.gpu_target import check_backend
from tritonkit.repository.render.parts import CALLS
from tritonkit.repository.render.values import ModelPlan, Target, TensorPlan

__all__ = ["plan_taken"]

_OURS = ("onnxruntime", "openvino", "python", "pytorch", "tensorrt")
"""Backends of a repository for tritonkit's own server; TensorRT plans in one for CPUs are for NVIDIA's image."""


def plan_taken(spec: Spec, target: Target) -> ModelPlan:
    """The plan of a spec with `network.folder`.

    Raises:
        RenderError: the target's server does not have what its configuration names.
    """
    from google.protobuf import text_format

    where = f"{spec.file} network.folder"
    taken = read_triton_folder(resolve_folder(str(spec.model.network.folder), spec, "network.folder"), where)
    config = taken.config
    _check_target(taken, target, where)
    config.name = spec.name
    return ModelPlan(
        name=spec.name,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        inputs=tuple(map(_tensor, taken.signature.inputs)),
        outputs=tuple(map(_tensor, taken.signature.outputs)),
        decoupled=config.model_transaction_policy.decoupled,
        parameters={key: value.string_value for key, value in config.parameters.items()},
        version_files=taken.version_files,
        model_files=taken.model_files,
        given=text_format.MessageToString(config),
        section=where,
        triton=to_release(spec.model.triton),
        notes=tuple(f"{spec.name}: {note}" for note in _notes(spec, taken)),
    )


def _tensor(info: TensorInfo) -> TensorPlan:
    return TensorPlan(info.name, info.dtype, info.shape, optional=info.optional)


def _check_target(taken: TritonFolder, target: Target, where: str) -> None:
    config = taken.config
    check_backend(config.backend, target, where)
    if target != "nvidia" and config.backend not in _OURS:
        raise RenderError(
            where,
            found=f"backend {config.backend}, with target {target}",
            wanted=f"one of {', '.join(_OURS)}, those of tritonkit's own server",
            todo="build with --target nvidia, and serve it in an image that has the backend",
        )
    kinds = {group.Kind.Name(group.kind) for group in config.instance_group}
    if target == "cpu" and "KIND_GPU" in kinds:
        raise RenderError(
            where,
            found="instance_group of KIND_GPU, with target cpu",
            wanted="KIND_CPU or KIND_AUTO",
            todo="change it, or build with --target gpu",
        )


def _notes(spec: Spec, taken: TritonFolder) -> tuple[str, ...]:
    config = taken.config
    notes = list(taken.left_out)
    if config.backend != "python":
        return tuple(notes)
    if CALLS not in config.parameters:
        calls = written_calls(taken.version_files[taken.main_file])
        if calls.names or calls.computed:
            named = ", ".join(sorted(calls.names)) or "a model whose name is computed"
            notes.append(
                f"its Python calls {named}: name them in {CALLS}, a parameter of its config.pbtxt, to load them first"
            )
    if config.max_batch_size > 1 and config.HasField("dynamic_batching"):
        notes.append(
            f"nothing shows that an item gets the same answer in a batch as alone; `tritonkit check-batching"
            f" {spec.name}` tries it on a server"
        )
    return tuple(notes)
