"""The result of a call; every reply is made here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.cache.entry import Entry
    from tritonkit.client.policy import Sent
    from tritonkit.client.request import InferRequest
    from tritonkit.client.wire.answer import Answer
    from tritonkit.client.wire.parameters import Parameter

__all__ = ["Origin", "Reply", "Timing", "cached_reply", "item_reply", "joined_reply", "server_reply"]

Origin = Literal["server", "l1", "l2"]
"""The source of an answer: a server, this process's cache, or the shared cache."""


@dataclass(slots=True)
class Timing:
    """The time that each part of one call took, by this process's monotonic clock; skipped parts are 0.

    `total_s` runs from entering `predict` to its return. `queue_s` was spent waiting for the
    client's own in-flight limit, `joining_s` waiting for a batch to leave and for its other parts,
    `wait_s` on the wire: network, server queue and inference. The rest is checking, encoding,
    decoding, and the pauses before retries. Triton's answers do not split `wait_s`: `Client.statistics`
    has the sums over all requests, and `tritonkit profile` splits them.
    """

    total_s: float
    wait_s: float = 0.0
    queue_s: float = 0.0
    joining_s: float = 0.0


@dataclass(slots=True, eq=False)  # not frozen: setting its fields would take far longer
class Reply:
    """The outputs of one call by name, and their origin.

    Arrays have the batch axis first (length 1 for one item) if the model batches, and are read-only
    views of the answer: copy one to write to it. BYTES outputs are object arrays of bytes.
    """

    outputs: Mapping[str, NDArray[Any]]
    model: str
    version: str
    timing: Timing
    origin: Origin = "server"
    batch_size: int = 1
    """Items in the request that carried this call: more than its own if others joined it."""
    endpoint: str = ""
    """The server that answered; empty for a cached answer."""
    attempts: int = 1
    """Requests sent for this call: 0 for a cached answer, 2 and more after retries or hedging."""
    request_id: str = ""
    """The call's `request_id`, as returned by the server."""
    parameters: Mapping[str, Parameter | None] = field(default_factory=dict)
    """The answer's values that are not tensors, as sent by the server; empty in a cached answer."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One output; a `KeyError` lists the existing ones."""
        try:
            return self.outputs[name]
        except KeyError:
            there = ", ".join(self.outputs) or (
                "none: Triton leaves out what a Python model gives under a name that its configuration does not have"
            )
            raise KeyError(f"model {self.model} gave no output {name!r}; it gave {there}") from None

    def __iter__(self) -> Iterator[str]:
        """The output names, in the server's order."""
        return iter(self.outputs)

    def __len__(self) -> int:
        """The number of outputs."""
        return len(self.outputs)


def server_reply(request: InferRequest, answer: Answer, sent: Sent) -> Reply:
    """The reply made from a server's answer to a request."""
    _, version, request_id, parameters, outputs, _ = answer
    _, endpoint, attempts, queue_s, wait_s = sent
    timing, items, model = Timing(0.0, wait_s, queue_s), request.items, request.key[0]
    return Reply(outputs, model, version, timing, "server", items, endpoint, attempts, request_id, parameters)


def cached_reply(request: InferRequest, entry: Entry, origin: Origin) -> Reply:
    """A cached answer to a request."""
    model, timing, items = request.key[0], Timing(0.0), request.items
    outputs, version, request_id = entry.outputs, entry.version, request.request_id
    return Reply(outputs, model, version, timing, origin, items, "", 0, request_id)


def item_reply(batch: Reply, outputs: Mapping[str, NDArray[Any]]) -> Reply:
    """The reply for one item of a batch, with its own outputs."""
    timing = Timing(0.0, batch.timing.wait_s, batch.timing.queue_s)
    size, endpoint, attempts = batch.batch_size, batch.endpoint, batch.attempts
    model, version, parameters = batch.model, batch.version, batch.parameters
    return Reply(outputs, model, version, timing, "server", size, endpoint, attempts, "", parameters)


def joined_reply(replies: Sequence[Reply], total_s: float) -> Reply:
    """One reply made of many: outputs joined on the batch axis, times and attempts summed."""
    outputs = {name: np.concatenate([reply.outputs[name] for reply in replies]) for name in replies[0].outputs}
    for array in outputs.values():
        array.flags.writeable = False
    timings = [(timing.wait_s, timing.queue_s, timing.joining_s) for timing in (r.timing for r in replies)]
    return replace(
        replies[-1],
        outputs=outputs,
        timing=Timing(total_s, *map(sum, zip(*timings, strict=True))),
        batch_size=max(reply.batch_size for reply in replies),
        attempts=sum(reply.attempts for reply in replies),
    )
