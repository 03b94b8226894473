"""The way of one checked request to its reply: the cache, a batch, shared memory, a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tritonkit.client.batching import Batcher, Item, join_items, layout, split_outputs
from tritonkit.client.batching.independence import CHECKED_ITEMS, differ
from tritonkit.client.cache.entry import Entry
from tritonkit.client.reply import Reply, cached_reply, item_reply, server_reply
from tritonkit.client.shm import output_sizes
from tritonkit.client.wire.answer import decode
from tritonkit.errors import ClientError, InferenceError, InvalidInput, Overloaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.client.batching import Adaptive, CheckedItem, Trial
    from tritonkit.client.cache import PredictionCache
    from tritonkit.client.policy import Policy, Sent
    from tritonkit.client.policy.attempts import MakeBody
    from tritonkit.client.request import InferRequest
    from tritonkit.client.shm import CallRegions, RegionPool
    from tritonkit.client.steps import Steps
    from tritonkit.client.wire.transport import Body

__all__ = ["Inference"]

_UNHURRIED = 4
"""Time that a caller must have left for a check, as a multiple of its own request's time."""


class Inference:
    """The parts of one client between its callers and its servers.

    Args:
        policy: the policy that chooses servers and handles failures.
        cache: answers to use again, or None.
        batching: joins single items into batches, or None.
        regions: shared memory for tensors, or None.
    """

    def __init__(
        self, policy: Policy, cache: PredictionCache | None, batching: Adaptive | None, regions: RegionPool | None
    ) -> None:
        self._policy = policy
        self._cache = cache
        self._batching = batching
        self._regions = regions
        self._plain = cache is None and batching is None and regions is None

    def answer(self, request: InferRequest) -> Steps[Reply]:
        """The request's outputs, from the cache or the server."""
        if self._plain:
            return self._in_message(request)
        if request.model.gpu is not None and request.on_device:
            # Neither hashed nor joined: both would copy it to the machine's memory.
            return self._alone(request)
        return self._served(request) if self._cache is None else self._cached(request, self._cache)

    def _cached(self, request: InferRequest, cache: PredictionCache) -> Steps[Reply]:
        name, version = request.key
        key = cache.key(version, request.canonical())
        entry = cache.peek(key)
        if entry is not None:  # the usual case ends here
            return cached_reply(request, entry, "l1")
        made: Reply | None = None

        def make() -> Steps[Entry]:
            nonlocal made
            made = yield from self._served(request)
            return Entry(name, made.version, made.outputs)

        entry, origin = yield from cache.fetch(key, make, deadline=request.deadline, where=request.where)
        if made is None:
            return cached_reply(request, entry, origin)
        made.outputs = entry.outputs
        return made

    def _served(self, request: InferRequest) -> Steps[Reply]:
        # A request carries one id, so a call with its own id is sent alone.
        if self._batching is None or request.items != 1 or request.request_id:
            return self._alone(request)
        joining = request.model.joining
        if joining.state == "refused":
            return self._alone(request)
        if joining.known or self._batching.independent_items:
            return self._batched(request, self._batching)
        return self._unproven(request, self._batching)

    def _unproven(self, request: InferRequest, batching: Adaptive) -> Steps[Reply]:
        """Send a call joined if a check has allowed its kind; otherwise alone, as a part of that check."""
        joining = request.model.joining
        if not request.idempotent:
            joining.not_idempotent()
            return self._alone(request)
        if request.classes:  # texts that contain rounded numbers cannot be compared
            return self._alone(request)
        trial = joining.trial(_kind(request))
        if trial.independent:
            return self._batched(request, batching, trial)
        return self._tried(request, trial)

    def _tried(self, request: InferRequest, trial: Trial) -> Steps[Reply]:
        started = time.monotonic()
        reply: Reply = yield from self._alone(request)
        left_s, took_s = request.deadline - time.monotonic(), time.monotonic() - started
        # A caller with little time left leaves the check to another caller.
        if left_s > _UNHURRIED * took_s:
            samples = trial.take(request.arrays, reply.outputs, reply.version)
            if samples is not None:
                yield from self._check(request, trial, samples)
        return reply

    def _check(self, first: InferRequest, trial: Trial, samples: Sequence[CheckedItem]) -> Steps[None]:
        """Send the samples in one request and compare the answers; an error does not reach the caller."""
        joining, count = first.model.joining, len(samples)
        items = [Item(sample.arrays, first.deadline) for sample in samples]
        try:
            batch = yield from self._alone(first.of_batch(join_items(items), count, first.deadline))
            if batch.version != trial.version:
                trial.forget(trial.version)
                return
            joining.judge(trial, samples, split_outputs(batch.outputs, count, first.model.where))
        except (InferenceError, InvalidInput) as error:
            if isinstance(error, Overloaded):
                joining.failed(trial, error.found)
            else:
                joining.refuse(f"several items in one request are refused: {error.found}")
        except ClientError as error:
            joining.failed(trial, error.found)
        except BaseException:  # the caller was stopped, which says nothing about the model
            trial.end(again=True)
            raise

    def check_parts(self, request: InferRequest, count: int) -> Steps[None]:
        """Let rows go in several requests only if they are independent: a time axis must not be cut.

        A model that is not declared idempotent is not checked: its rows go in parts, with a warning.

        Args:
            request: the first of the requests.
            count: the total number of rows.

        Raises:
            InvalidInput: the answers to rows depend on each other.
        """
        joining = request.model.joining
        declared = self._batching is not None and self._batching.independent_items
        if joining.known or declared:
            return
        if joining.state != "refused":
            if not request.idempotent or request.classes:
                joining.not_idempotent()
                return
            yield from self._try_rows(request)
        if joining.coupled:
            most = request.model.signature.max_batch_size
            raise InvalidInput(
                request.where,
                found=f"{count} rows, which depend on each other: {joining.reason}",
                wanted=f"at most {most} rows in a request, the model's max_batch_size",
                todo="max_batch_size: 0 for a model whose first axis is not a batch",
            )

    def _try_rows(self, request: InferRequest) -> Steps[None]:
        """Check the independence of items with the rows of a request."""
        rows: list[InferRequest] = []
        for at in range(request.items):
            arrays = {name: array[at : at + 1] for name, array in request.arrays.items()}
            if all(differ(arrays, row.arrays) for row in rows):
                rows.append(request.of_batch(arrays, 1, request.deadline))
            if len(rows) == CHECKED_ITEMS:
                break
        if not rows or request.model.joining.trial(_kind(rows[0])).independent:
            return
        for row in rows:
            yield from self._tried(row, request.model.joining.trial(_kind(row)))

    def _batched(self, request: InferRequest, batching: Adaptive, trial: Trial | None = None) -> Steps[Reply]:
        entered = time.perf_counter()
        model, arrays = request.model, request.arrays
        # A check of one version says nothing about batches of the next one.
        checked = trial.version if trial is not None else None
        batcher = model.batchers.get(
            (*_kind(request), checked), lambda: self._new_batcher(request, batching, trial, checked)
        )
        reply: Reply = yield from batcher.join(Item(arrays, request.deadline))
        timing = reply.timing
        joining_s = time.perf_counter() - entered - timing.wait_s - timing.queue_s
        timing.joining_s = joining_s if joining_s > 0.0 else 0.0
        return reply

    def _new_batcher(
        self, first: InferRequest, batching: Adaptive, trial: Trial | None, checked: str | None
    ) -> Batcher:
        model = first.model
        common = first.of_batch({}, 0, 0.0)  # not the first call's tensors, nor its trace

        def send(items: Sequence[Item], deadline: float) -> Steps[list[Reply]]:
            count = len(items)
            batch = yield from self._alone(common.of_batch(join_items(items), count, deadline))
            if trial is not None and checked is not None and batch.version != checked:
                trial.forget(checked)
                return (yield from self._one_by_one(common, items, deadline))
            # Made here for all: it would cost each thread more, because the interpreter's own
            # data move from core to core with every thread that wakes.
            return [item_reply(batch, part) for part in split_outputs(batch.outputs, count, model.where)]

        return Batcher(
            batching, model.signature.max_batch_size, send, where=model.where, idempotent=bool(first.idempotent)
        )

    def _one_by_one(self, common: InferRequest, items: Sequence[Item], deadline: float) -> Steps[list[Reply]]:
        """Answers to items that were joined for a model whose other version was checked."""
        replies = []
        for item in items:
            replies.append((yield from self._alone(common.of_batch(item.arrays, 1, deadline))))
        return replies

    def _alone(self, request: InferRequest) -> Steps[Reply]:
        regions = self._regions_for(request)
        return self._in_regions(request, regions) if regions else self._in_message(request)

    def _in_message(self, request: InferRequest) -> Steps[Reply]:
        sent = yield from self._sent(request, request.encode())
        return server_reply(request, decode(sent.body), sent)

    def _sent(self, request: InferRequest, body: Body | MakeBody) -> Steps[Sent]:
        return self._policy.call(
            "ModelInfer",
            body,
            request.deadline,
            where=request.model.where,
            idempotent=bool(request.idempotent),
            headers=request.headers,
        )

    def _in_regions(self, request: InferRequest, regions: CallRegions, *, again: bool = True) -> Steps[Reply]:
        """Send the request through shared memory, again if the server has forgotten the region, as after a restart."""
        output_names = request.outputs or tuple(request.model.signature.outputs)
        endpoint: str | None = None

        def body(transport: Any, timeout_s: float) -> Steps[Body]:
            placed = yield from regions.place(transport, timeout_s)
            if placed is None:
                return request.encode()
            return request.encode(regions=placed.inputs, output_regions=placed.outputs)

        try:
            sent = yield from self._sent(request, body)
            endpoint = sent.endpoint
            answer = decode(sent.body, output_names)
            described = {name: output[:2] for name, output in answer.in_region.items()}
            outputs = answer.outputs | regions.read(endpoint, described)
            outputs = {name: outputs[name] for name in output_names}
            return server_reply(request, answer._replace(outputs=outputs), sent)
        except BaseException as error:
            if not (regions.end(endpoint, error) and again):
                raise
        finally:
            regions.end(endpoint)
        others = self._regions_for(request)
        steps = self._in_regions(request, others, again=False) if others else None
        return (yield from steps or self._in_message(request))

    def _regions_for(self, request: InferRequest) -> CallRegions | None:
        """Shared memory for the request's tensors; None if there is none, or it would not help."""
        if self._regions is None:
            return None
        signature = request.model.signature
        classified = dict(request.classes)  # texts, whose size is unknown
        output_names = request.outputs or tuple(signature.outputs)
        names = [name for name in output_names if name not in classified]
        items = request.items if signature.max_batch_size else None
        return self._regions.for_call(request.typed(), output_sizes(signature, names, items))


def _kind(request: InferRequest) -> tuple[Any, ...]:
    """Everything that must be equal in calls that share one request."""
    return (*request.shared_kind(), request.model.fixed or layout(request.arrays))
