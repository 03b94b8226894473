"""A call from its request to its reply, for threads and tasks: generators of steps, without I/O."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tritonkit.client.admin import AdminCalls, unconfigured
from tritonkit.client.inference import Inference
from tritonkit.client.inputs import conformed_inputs, items_in
from tritonkit.client.log import logger
from tritonkit.client.observers.events import CallEvent, Observers
from tritonkit.client.reply import Reply, Timing, joined_reply
from tritonkit.client.request import InferRequest, ModelKey, ModelState
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.signature import ModelSignature, signature_from
from tritonkit.client.wire.transport import checked_timeout
from tritonkit.errors import (
    ClientError,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    Unsupported,
    UsageError,
)

if TYPE_CHECKING:
    from tritonkit.client.batching import Adaptive, Joining
    from tritonkit.client.cache import PredictionCache
    from tritonkit.client.policy import Policy
    from tritonkit.client.shm import RegionPool
    from tritonkit.client.steps import Steps

__all__ = ["Core"]

_TRUSTED_S = 1.0
"""Minimal age in seconds of a signature that a refused call makes the client read again. A server that refuses many
calls thus does not get two more requests for each."""


class Core(AdminCalls):
    """All that a client does, over the policy that knows its servers.

    Args:
        policy: the policy that chooses servers and handles failures.
        timeout_s: default seconds for a call.
        limit: upper bounds on answer size; they grow with the models that become known.
        idempotent: default for whether a call may run twice; None: its model's configuration decides.
        cache: answers to use again, or None.
        batching: joins single items into batches, or None.
        regions: shared memory for tensors, or None.
        observers: the observers that get an event for each call.
    """

    def __init__(
        self,
        policy: Policy,
        timeout_s: float,
        *,
        limit: AnswerLimit | None = None,
        idempotent: bool | None = None,
        cache: PredictionCache | None = None,
        batching: Adaptive | None = None,
        regions: RegionPool | None = None,
        observers: Observers | None = None,
    ) -> None:
        super().__init__(policy, timeout_s)
        self._models: dict[ModelKey, ModelState] = {}
        self._limit = limit or AnswerLimit()
        self._idempotent = idempotent
        self._cache = cache
        self._regions = regions
        self.gpu = None if regions is None else regions.gpu
        """The GPU whose memory is shared, which takes inputs that lie on one."""
        self.observers = observers or Observers()
        self._observed = bool(self.observers)
        self._batches = batching is not None
        self._inference = Inference(policy, cache, batching, regions)
        self._closed = False

    def signature(self, key: ModelKey) -> Steps[ModelSignature]:
        """The signature as last read, or a newly read one."""
        self.check_process()
        return (yield from self._model(key, time.monotonic() + self.timeout_s)).signature

    def joining(self, key: ModelKey) -> Steps[Joining]:
        """Whether calls of the model are joined, as far as known."""
        self.check_process()
        return (yield from self._model(key, time.monotonic() + self.timeout_s)).joining

    def predict(self, request: InferRequest) -> Steps[Reply]:
        """The reply to a call with one item or one batch."""
        if os.getpid() != self._pid:  # comes first, because the rest may take locks
            self.check_process()
        steps = self._predict(request)
        return self.observed(request, steps) if self._observed else steps

    def observed(self, request: InferRequest, steps: Steps[Reply]) -> Steps[Reply]:
        """The steps of a request that observers see; it carries their headers."""
        model, observers = request.key[0], self.observers
        token = observers.started(model)
        started = time.perf_counter()
        try:
            request.headers = observers.headers(token)
            reply = yield from steps
        except BaseException as error:
            timing = Timing(time.perf_counter() - started)
            observers.finished(token, CallEvent(model, timing=timing, error=type(error).__name__))
            raise
        observers.finished(token, CallEvent.of(reply))
        return reply

    def _predict(self, request: InferRequest) -> Steps[Reply]:
        started = time.perf_counter()
        request.deadline = self.deadline(request)
        try:
            model = self._models.get(request.key)
            request.check(model or (yield from self._learn(request.key, request.deadline)))
            reply = yield from self._inference.answer(request)
        except ClientError as error:
            self.forget_stale(request.key, error)
            raise
        reply.timing.total_s = time.perf_counter() - started
        return reply

    def checked(self, request: InferRequest) -> Steps[None]:
        """Check the request of a stream or a sequence against its model, without sending it.

        Raises:
            Unsupported: the server does not report the model's configuration.
        """
        request.deadline = self.deadline(request)
        try:
            model = yield from self._model(request.key, request.deadline)
            if not model.signature.configured:
                raise unconfigured(model.where, "a stream or a sequence", "call predict")
            request.check(model)
        except ClientError as error:
            self.forget_stale(request.key, error)
            raise

    def predict_item(self, like: InferRequest, item: Any) -> Steps[Reply]:
        """The reply for one item of many: a bare value if the model has one input; sent in parts if it is too large.

        `like` is the request without its inputs.
        """
        started = time.perf_counter()

        def part(inputs: Mapping[str, Any]) -> Steps[Reply]:
            return self.predict(like.with_inputs(inputs))

        model = yield from self._model(like.key, self.deadline(like))
        signature = model.signature
        values = item if isinstance(item, Mapping) else {_only_input(signature): item}
        if model.undeclared:
            return (yield from part(values))
        arrays = conformed_inputs(signature, values, self.gpu)
        items = items_in(signature, arrays)
        if items <= signature.max_batch_size or not signature.max_batch_size:
            return (yield from part(arrays))
        most = signature.max_batch_size

        def rows(start: int) -> Mapping[str, Any]:
            return {  # shape tensors go into each part
                name: array[start : start + most] if signature.inputs[name].batched else array
                for name, array in arrays.items()
            }

        first = like.with_inputs(rows(0))
        first.deadline = self.deadline(like)
        first.check(model)
        yield from self._inference.check_parts(first, items)
        replies = []
        for start in range(0, items, most):
            replies.append((yield from part(rows(start))))
        return joined_reply(replies, time.perf_counter() - started)

    def check_open(self) -> None:
        """UsageError after `close`."""
        if self._closed:
            raise UsageError(
                f"client of {self.address}",
                found="it was closed",
                todo="make a new client, or call inside its `with` block",
            )

    def check_cache(self) -> None:
        """Raise a UsageError if there is no cache."""
        if self._cache is None:
            raise UsageError(
                f"client of {self.address}",
                found="it has no cache",
                wanted="a cache to fill: Client(..., cache=Cache())",
            )

    def close(self) -> None:
        """Close all that must block to be closed; in a fork, drop it without disturbing the parent."""
        self._closed = True
        if self.forked:
            self.policy.drop()
            return
        if self._regions is not None:
            self._regions.close()
        if self._cache is not None:
            self._cache.close()
        self.policy.close()

    async def aclose(self) -> None:
        """Close everything in the event loop; in a fork, the parent's loop and connections stay as they are."""
        self._closed = True
        if self.forked:
            return
        if self._regions is not None:
            await self._regions.aclose()
        if self._cache is not None:
            await self._cache.aclose()
        await self.policy.aclose()

    def deadline(self, request: InferRequest) -> float:
        """The request's deadline, as a moment of the monotonic clock."""
        seconds = request.timeout_s
        if seconds is None:
            return time.monotonic() + self.timeout_s
        return time.monotonic() + checked_timeout(seconds, request.where)

    def forget_stale(self, key: ModelKey, error: BaseException | None) -> None:
        """Let the next call read the model again after a refused call: it may have changed.

        `Overloaded` is an exception: it says nothing about the model, and more requests would only add to the
        server's load.
        """
        model = self._models.get(key)
        refused = isinstance(error, InvalidInput | InferenceError | ModelNotFound)
        if model is None or not refused or isinstance(error, Overloaded):
            return
        if time.monotonic() - model.read_at > _TRUSTED_S:
            self._models.pop(key, None)

    def _model(self, key: ModelKey, deadline: float) -> Steps[ModelState]:
        return self._models.get(key) or (yield from self._learn(key, deadline))

    def _learn(self, key: ModelKey, deadline: float) -> Steps[ModelState]:
        name, version = key
        metadata = yield from self._ask("ModelMetadata", name, version, deadline=deadline)
        try:
            config = (yield from self._ask("ModelConfig", name, version, deadline=deadline)).config
        except Unsupported:  # another server of the Open Inference Protocol
            config = None
        if config is None and self._batches:
            raise unconfigured(f"model {name}", "batching", "make the client without batching=")
        signature = signature_from(metadata, config)
        self._limit.learn(signature)
        model = self._models[key] = ModelState(signature, self._idempotent, self.gpu)
        if self.policy.latencies is not None and not model.idempotent:
            logger.info("%s is not declared idempotent: its calls are not hedged", model.where)
        return model


def _only_input(signature: ModelSignature) -> str:
    needed = [name for name, tensor in signature.inputs.items() if not tensor.optional]
    if len(needed) == 1 or len(signature.inputs) == 1:
        return next(iter(needed or signature.inputs))
    raise InvalidInput(
        f"model {signature.name}",
        found="an item that is a value alone",
        wanted=f"a mapping with values for {', '.join(signature.inputs) or 'the inputs by name'}",
    )
