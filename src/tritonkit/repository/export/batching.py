"""The choice of a build: batch a network, serve one item at a time if its items are not independent, or refuse."""

from __future__ import annotations

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Artifact, Independence
from tritonkit.repository.modelspec import Serving, Spec

__all__ = ["DECLARED", "advice", "demand", "fits_demand", "hold_to_demand", "hold_to_padding"]

DECLARED = Independence("declared", "serving.independent_items is true")


def demand(serving: Serving) -> str:
    """The spec's demand for batches: `none`, `declared` (independent), `demanded`, `open`, or `unshared`.

    With `unshared`, requests may have several items but share no batch.
    """
    dynamic, sequences = serving.dynamic_batching, serving.sequence_batching
    if serving.max_batch_size == 0:
        return "none"
    if serving.independent_items:
        return "declared"
    if serving.max_batch_size == 1 or (dynamic is False and sequences is None and serving.max_batch_size):
        return "unshared"
    return "demanded" if serving.max_batch_size or dynamic else "open"


def fits_demand(spec: Spec, artifact: Artifact) -> bool:
    """Whether a built artifact still fits the spec.

    Its hash leaves out how requests share batches, because that matters only if items are not independent.
    """
    independence, demanded = artifact.independence, demand(spec.model.serving)
    if independence is None or independence.holds:
        return True
    if demanded == "open":
        return not artifact.signature.batched or artifact.variant != "onnx-fp32"
    return demanded == "unshared" and artifact.signature.batched


def hold_to_demand(spec: Spec, independence: Independence | None, what: str) -> None:
    """Raise BuildError if the spec demands batches of a network whose items are not known to be independent."""
    if independence is None or independence.holds or demand(spec.model.serving) != "demanded":
        return
    serving = spec.model.serving
    field = "max_batch_size" if serving.max_batch_size else "dynamic_batching"
    raise BuildError(
        f"{spec.file} serving.{field}",
        found=f"batching is on, and {reason(independence)} ({what}): {independence.seen}",
        wanted="items that get the same answer in a batch as alone",
        todo=advice(independence),
    )


def hold_to_padding(spec: Spec, padded: Independence, what: str) -> None:
    """Raise BuildError if padding an item to a longer one's size is not known to keep its answer."""
    if padded.holds:
        return
    axis = next(axis for axis, free in spec.model.network.free_axes.items() if free.pad)
    changes = padded.state == "coupled"
    values = "filling up changes answers" if changes else "nothing shows that it changes no answer"
    unknown = "give quality.samples of several sizes; or " if padded.state == "unknown" else ""
    raise BuildError(
        f"{spec.file} network.free_axes.{axis}.pad",
        found=f"{values} ({what}): {padded.seen}",
        wanted="outputs that, cut back to an item's own size, equal those of the item alone",
        todo=f"{unknown}make the network ignore the padding (with a mask among its inputs, which pad fills with 0),"
        " or give other values, or remove pad, so that only requests of one size share a batch;"
        " or set serving.independent_items: true if this is intended",
    )


def reason(independence: Independence) -> str:
    """The reason why items may not share a batch, as half a sentence."""
    return {
        "coupled": "the items of a batch are not independent",
        "random": "the network answers the same item differently each time",
        "unknown": "nothing shows that the items of a batch are independent",
        "fixed": "the network has no batch axis",
    }.get(independence.state, "the items of a batch are independent")


def advice(independence: Independence, *, refused: bool = True) -> str:
    """Advice on how it can batch; after a refusal, also on how to do without."""
    declare = "or set serving.independent_items: true if this is intended"
    without = ", or set max_batch_size: 0" if refused else ""
    leave_out = ", or leave max_batch_size and dynamic_batching out" if refused else ""
    return {
        "coupled": "make axis 0 the batch axis (transpose, or batch_first=True in PyTorch) and compute nothing across"
        f" it{leave_out}{without}; {declare}",
        "random": f"take the random operators out (dropout in training mode?){without}; {declare}",
        "unknown": f"give two different items or more with quality.samples{without}; {declare}",
        "fixed": f"export with a dynamic batch axis in front of every input and output{without}",
    }.get(independence.state, "")
