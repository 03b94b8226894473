"""A batch that is larger than the model takes: sent in parts, answered as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.reply import Reply, Timing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.wire.signature import ModelSignature

__all__ = ["joined_reply", "parts"]


def parts(
    signature: ModelSignature, arrays: Mapping[str, NDArray[Any]], items: int
) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays in parts of `max_batch_size` items and a rest; shape tensors go into each."""
    most = signature.max_batch_size
    for start in range(0, items, most):
        yield {
            name: array[start : start + most] if signature.inputs[name].batched else array
            for name, array in arrays.items()
        }


def joined_reply(replies: Sequence[Reply], total_s: float) -> Reply:
    """One reply of many: outputs joined on the batch axis, times and attempts added up."""
    first, last = replies[0], replies[-1]
    outputs = {
        name: np.concatenate([reply.outputs[name] for reply in replies]) for name in first.outputs
    }
    for array in outputs.values():
        array.flags.writeable = False
    timings = [reply.timing for reply in replies]
    return Reply(
        outputs=outputs,
        model=last.model,
        version=last.version,
        timing=Timing(
            total_s,
            sum(timing.wait_s for timing in timings),
            sum(timing.queue_s for timing in timings),
            sum(timing.joining_s for timing in timings),
        ),
        origin=last.origin,
        batch_size=max(reply.batch_size for reply in replies),
        endpoint=last.endpoint,
        attempts=sum(reply.attempts for reply in replies),
    )
