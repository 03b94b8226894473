"""The names and parameters of Triton's FIL backend, which are the same for every forest.

By triton-inference-server/fil_backend, docs/model_config.md: one input `input__0` and one output `output__0`, FP32.
With `predict_proba` it gives a number for each class. Up to 25.08 it reads `output_class`, from 25.09 on
`is_classifier`, and `threshold` with either (src/shared_state.h). A release ignores a parameter that it does not know,
or names it in its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact, TensorInfo
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.render.values import Port

__all__ = ["fil_parameters", "fil_port"]

_OURS = ("model_type", "output_class", "is_classifier", "predict_proba", "threshold")


def fil_port(info: TensorInfo, side: str) -> Port:
    """The backend's `input` or `output`, which the pipeline has under the network's own name."""
    return Port(replace(info, name=f"{side}__0"), info.name)


def fil_parameters(spec: Spec, artifact: Artifact) -> Mapping[str, str]:
    """Parameters by which the output is the network's: its only number, or the probability of each class.

    RenderError if the spec has one of them itself, or a model without batches, which the backend does not have.
    """
    serving = spec.model.serving
    for name in _OURS:
        if name in serving.parameters:
            raise RenderError(
                f"{spec.file} serving.parameters.{name}",
                found=serving.parameters[name],
                wanted="parameters that change no answer, such as chunk_size or layout: the build chooses this one",
                todo="remove it",
            )
    if serving.max_batch_size == 0:
        raise RenderError(
            f"{spec.file} serving.max_batch_size",
            found="0, with the variant fil",
            wanted="at least 1",
            todo="remove it",
        )
    several = artifact.signature.outputs[0].shape != (1,)
    shared = {"model_type": "treelite_checkpoint", "predict_proba": "true" if several else "false"}
    classifier = dict.fromkeys(("output_class", "is_classifier"), "true" if several else "false")
    return shared | classifier | ({"threshold": "0.5"} if several else {})
