"""The way of one checked call to its answer: kept answers, batches, shared memory, a server."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tritonkit.client.batching import (
    Batcher,
    Batchers,
    Item,
    Retired,
    apart,
    layout,
    together,
)
from tritonkit.client.cache.entry import Entry
from tritonkit.client.inputs import Inputs, assumed_specs
from tritonkit.client.reply import Reply, Timing
from tritonkit.client.shm import output_sizes
from tritonkit.errors import ClientError
from tritonkit.wire.answer import decode
from tritonkit.wire.request import Prepared

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.batching import Adaptive
    from tritonkit.client.cache import PredictionCache
    from tritonkit.client.policy import Policy, Sent
    from tritonkit.client.reply import Origin
    from tritonkit.client.shm import CallRegions, Placement, RegionPool
    from tritonkit.client.steps import Steps
    from tritonkit.wire.answer import Answer
    from tritonkit.wire.signature import ModelSignature
    from tritonkit.wire.transport import Body, Headers

__all__ = ["Call", "Known", "Path"]

_MOST_ASSUMED = 64
"""Kinds of inputs that are remembered of a model whose server declares none."""


class Known:
    """A model's signature as last read, and the requests prepared for it.

    Args:
        signature: the model's.
        idempotent: whether its calls may run twice; None: as the model's configuration says.
    """

    __slots__ = (
        "_assumed",
        "batchers",
        "fixed",
        "idempotent",
        "inputs",
        "joinable",
        "prepared",
        "read_at",
        "signature",
        "undeclared",
        "where",
    )

    def __init__(self, signature: ModelSignature, idempotent: bool | None = None) -> None:
        self.signature = signature
        self.idempotent = signature.idempotent if idempotent is None else idempotent
        self.inputs = Inputs(signature)
        self.where = f"model {signature.name}"
        """For messages."""
        self.undeclared = not (signature.inputs or signature.configured)
        """Whether the server does not say what the model takes: see `assuming`."""
        self._assumed: dict[tuple[Any, ...], Known] = {}
        tensors = (*signature.inputs.values(), *signature.outputs.values())
        self.joinable = signature.max_batch_size > 1 and all(each.batched for each in tensors)
        """Whether items of several callers may go in one request: shape tensors cannot be joined."""
        inputs = signature.inputs.values()
        self.fixed = not any(each.optional or -1 in each.dims for each in inputs)
        """Whether all items have one `layout`."""
        self.batchers = Batchers()
        self.read_at = time.monotonic()
        self.prepared: dict[tuple[str, tuple[str, ...] | None], Prepared] = {}

    def assuming(self, inputs: Mapping[str, Any]) -> Known:
        """What is known of a model that takes any inputs, once the inputs of a call are seen."""
        specs = assumed_specs(self.where, inputs)
        key = tuple(specs.values())
        found = self._assumed.get(key)
        if found is None:
            if len(self._assumed) >= _MOST_ASSUMED:
                self._assumed.clear()
            found = Known(replace(self.signature, inputs=specs), self.idempotent)
            self._assumed[key] = found
        return found

    def request(self, version: str, outputs: tuple[str, ...] | None) -> Prepared:
        """What is the same in every request for these outputs."""
        made = self.prepared.get((version, outputs))
        if made is None:
            made = Prepared(self.signature, version, outputs)
            made = self.prepared.setdefault((version, outputs), made)
        return made


class Call(NamedTuple):
    """One checked call: arrays as they are sent, `items` of them, until a moment of the clock."""

    known: Known
    name: str
    version: str
    arrays: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...] | None
    priority: int
    items: int
    deadline: float
    headers: Headers = ()
    idempotent: bool = False
    """Whether it may run twice."""


class Path:
    """What one client has between its callers and its servers.

    Args:
        policy: where calls go and what happens when they fail.
        cache: answers kept, or None.
        batching: joins single items into batches, or None.
        regions: shared memory for tensors, or None.
    """

    def __init__(
        self,
        policy: Policy,
        cache: PredictionCache | None,
        batching: Adaptive | None,
        regions: RegionPool | None,
    ) -> None:
        self._policy = policy
        self._cache = cache
        self._batching = batching
        self._regions = regions

    def answer(self, call: Call) -> Steps[Reply]:
        """The call's outputs, from wherever they are to be had."""
        return self._served(call) if self._cache is None else self._kept(call, self._cache)

    def _kept(self, call: Call, cache: PredictionCache) -> Steps[Reply]:
        inputs = call.known.signature.inputs
        typed = {name: (inputs[name].datatype, array) for name, array in call.arrays.items()}
        key = cache.key(call.name, call.version, typed, call.outputs)
        kept = cache.peek(key)
        if kept is not None:  # the usual case is kept short
            return _kept_reply(call, kept, "l1")
        made: list[Reply] = []

        def make() -> Steps[Entry]:
            reply = yield from self._served(call)
            made.append(reply)
            return Entry(call.name, reply.version, reply.outputs)

        kept, origin = yield from cache.fetch(
            key, make, deadline=call.deadline, where=call.known.where
        )
        if not made:
            return _kept_reply(call, kept, origin)
        reply = made[0]
        reply.outputs = kept.outputs
        return reply

    def _served(self, call: Call) -> Steps[Reply]:
        if self._batching is not None and call.items == 1 and call.known.joinable:
            return self._joined(call, self._batching)
        return self._alone(call)

    def _joined(self, call: Call, batching: Adaptive) -> Steps[Reply]:
        entered = time.perf_counter()
        known, arrays = call.known, call.arrays
        shape = known.fixed or layout(arrays)
        kind = (call.version, call.outputs, call.priority, call.idempotent, shape)
        item = Item(arrays, call.deadline)
        while True:
            batcher = known.batchers.get(kind) or self._new_batcher(kind, call, batching)
            try:
                reply: Reply = yield from batcher.join(item)
                break
            except Retired:  # since it was found
                known.batchers.forget(kind, batcher)
        timing = reply.timing
        joining_s = time.perf_counter() - entered - timing.wait_s - timing.queue_s
        timing.joining_s = joining_s if joining_s > 0.0 else 0.0
        return reply

    def _new_batcher(self, kind: Hashable, call: Call, batching: Adaptive) -> Batcher:
        # What stays of the first call is what all have in common, not its tensors or its trace.
        common = call._replace(arrays={}, headers=())

        def send(items: Sequence[Item], deadline: float) -> Steps[list[Reply]]:
            count = len(items)
            batch = common._replace(arrays=together(items), items=count, deadline=deadline)
            sent = yield from self._alone(batch)
            wait_s, queue_s = sent.timing.wait_s, sent.timing.queue_s
            # Made here for all: each thread would do it at a higher price, since the interpreter's own
            # data move from core to core with every thread that wakes.
            return [
                Reply(
                    outputs,
                    sent.model,
                    sent.version,
                    Timing(0.0, wait_s, queue_s),
                    "server",
                    count,
                    sent.endpoint,
                    sent.attempts,
                )
                for outputs in apart(sent.outputs, count, common.known.where)
            ]

        most = call.known.signature.max_batch_size
        batcher = Batcher(batching, most, send, where=call.known.where, idempotent=call.idempotent)
        return call.known.batchers.add(kind, batcher)

    def _alone(self, call: Call) -> Steps[Reply]:
        lease = self._lease(call) if self._regions is not None else None
        return self._in_regions(call, lease) if lease else self._in_message(call)

    def _in_message(self, call: Call) -> Steps[Reply]:
        sent = yield from self._policy.call(
            "ModelInfer",
            self._body(call, None),
            call.deadline,
            where=call.known.where,
            idempotent=call.idempotent,
            headers=call.headers,
        )
        answer = decode(sent.body)
        return _reply(call, answer, sent, answer.outputs)

    def _in_regions(self, call: Call, lease: CallRegions) -> Steps[Reply]:
        """Through shared memory; once more if the server has forgotten the region, as after a restart."""
        try:
            return (yield from self._placed(call, lease))
        except ClientError as error:
            if not lease.lost(error):
                raise
        again = self._lease(call)
        return (yield from self._placed(call, again) if again else self._in_message(call))

    def _placed(self, call: Call, lease: CallRegions) -> Steps[Reply]:
        asked = call.outputs or tuple(call.known.signature.outputs)
        ended: tuple[str | None, BaseException | None] = (None, None)

        def body(transport: Any, timeout_s: float) -> Steps[Body]:
            placed = yield from lease.place(transport, timeout_s)
            return self._body(call, placed)

        try:
            sent = yield from self._policy.call(
                "ModelInfer",
                body,
                call.deadline,
                where=call.known.where,
                idempotent=call.idempotent,
                headers=call.headers,
            )
            ended = (sent.endpoint, None)
            answer = decode(sent.body, asked)
            found = {name: placed[:2] for name, placed in answer.in_region.items()}
            outputs = {**answer.outputs, **lease.read(sent.endpoint, found)}
            return _reply(call, answer, sent, {name: outputs[name] for name in asked})
        except BaseException as error:
            ended = (ended[0], error)
            raise
        finally:
            lease.end(*ended)

    def _body(self, call: Call, placed: Placement | None) -> Body:
        request = call.known.request(call.version, call.outputs)
        return request.encode(
            call.arrays,
            timeout_s=call.deadline - time.monotonic(),
            priority=call.priority,
            regions=placed.inputs if placed else {},
            output_regions=placed.outputs if placed else {},
        )

    def _lease(self, call: Call) -> CallRegions | None:
        """Shared memory for the call's tensors; None where there is none, or no use in it."""
        if self._regions is None:
            return None
        signature = call.known.signature
        inputs = {
            name: (signature.inputs[name].datatype, array) for name, array in call.arrays.items()
        }
        names = call.outputs or tuple(signature.outputs)
        items = call.items if signature.max_batch_size else None
        return self._regions.for_call(inputs, output_sizes(signature, names, items))


def _reply(call: Call, answer: Answer, sent: Sent, outputs: Mapping[str, NDArray[Any]]) -> Reply:
    return Reply(
        outputs,
        call.name,
        answer.version,
        Timing(0.0, sent.wait_s, sent.queue_s),
        "server",
        call.items,
        sent.endpoint,
        sent.attempts,
    )


def _kept_reply(call: Call, kept: Entry, origin: Origin) -> Reply:
    return Reply(kept.outputs, call.name, kept.version, Timing(0.0), origin, call.items, "", 0)
