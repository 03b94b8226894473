"""What a call does, from inputs to reply, for both clients: generators of steps, without I/O."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tritonkit.client.inference import Call, Known, Path
from tritonkit.client.inputs import checked_outputs, conformed_inputs, items_in
from tritonkit.client.log import logger
from tritonkit.client.observers.events import CallEvent, Watch
from tritonkit.client.questions import Questions, unconfigured
from tritonkit.client.reply import Reply, Timing
from tritonkit.client.split import joined_reply, parts
from tritonkit.errors import (
    InferenceError,
    InvalidInput,
    ModelNotFound,
    Overloaded,
    Unsupported,
    UsageError,
)
from tritonkit.wire.limits import AnswerLimit
from tritonkit.wire.signature import ModelSignature, signature_from
from tritonkit.wire.transport import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from tritonkit.client.batching import Adaptive
    from tritonkit.client.cache import PredictionCache
    from tritonkit.client.policy import Policy
    from tritonkit.client.shm import RegionPool
    from tritonkit.client.steps import Steps
    from tritonkit.wire.transport import Headers

__all__ = ["Ask", "Calls", "Key", "model_key"]

Key: TypeAlias = tuple[str, str]
"""A model's name and the version asked for, empty for the server's choice."""

_NOBODY = Watch()

_TRUSTED_S = 1.0
"""How old a signature must be before a refused call makes the client read it again: a server that
turns many calls away is not asked two questions more for each."""


class Ask(NamedTuple):
    """What a caller wants of one call."""

    key: Key
    inputs: Mapping[str, Any]
    outputs: Sequence[str] | None = None
    timeout_s: float | None = None
    priority: int = 0
    idempotent: bool | None = None


class Calls(Questions):
    """All that a client does, over the policy that knows its servers.

    Args:
        policy: where calls go and what happens when they fail.
        timeout_s: seconds for a call that says nothing else.
        limit: how large answers may be; grows with the models that are learned.
        idempotent: whether such a call may run twice; None: as its model's configuration says.
        cache: answers kept, or None.
        batching: joins single items into batches, or None.
        regions: shared memory for tensors, or None.
        watch: the observers.
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
        watch: Watch = _NOBODY,
    ) -> None:
        super().__init__(policy, timeout_s)
        self._known: dict[Key, Known] = {}
        self._limit = limit or AnswerLimit()
        self._idempotent = idempotent
        self._cache = cache
        self._regions = regions
        self.watch = watch
        self._watched = bool(watch)
        self._batches = batching is not None
        self._path = Path(policy, cache, batching, regions)
        self._closed = False

    def signature(self, key: Key) -> Steps[ModelSignature]:
        """The kept signature, or a fresh one."""
        self.check_process()
        known = self._known.get(key)
        if known is None:
            known = yield from self._learn(key, time.monotonic() + self.timeout_s)
        return known.signature

    def predict(self, ask: Ask) -> Steps[Reply]:
        """One item or one batch: the reply."""
        if os.getpid() != self._pid:  # first of all: what follows may take locks
            self.check_process()
        if not self._watched:
            return self._predict(ask)
        return self.watched(ask.key[0], lambda headers: self._predict(ask, headers))

    def watched(self, model: str, reply_to: Callable[[Headers], Steps[Reply]]) -> Steps[Reply]:
        """A call of which observers are told; it sends the headers that they give."""
        watch = self.watch
        token = watch.started(model)
        started = time.perf_counter()
        try:
            reply = yield from reply_to(watch.headers(token))
        except BaseException as error:
            timing = Timing(time.perf_counter() - started)
            watch.finished(token, CallEvent(model, timing=timing, error=type(error).__name__))
            raise
        watch.finished(token, _event(reply))
        return reply

    def _predict(self, ask: Ask, headers: Headers = ()) -> Steps[Reply]:
        started = time.perf_counter()
        usual = ask.timeout_s is None
        deadline = time.monotonic() + self.timeout_s if usual else self.deadline(ask)
        try:
            known = self._known.get(ask.key) or (yield from self._learn(ask.key, deadline))
            reply = yield from self._path.answer(_call(known, ask, deadline, headers))
        except (InvalidInput, InferenceError, ModelNotFound) as error:
            self.doubt(ask.key, error)
            raise
        reply.timing.total_s = time.perf_counter() - started
        return reply

    def checked(self, ask: Ask, deadline: float, headers: Headers = ()) -> Steps[Call]:
        """The call of a stream or a sequence, checked against the model's signature and not yet sent.

        Raises:
            Unsupported: the server does not tell how the model is configured.
        """
        try:
            known = self._known.get(ask.key) or (yield from self._learn(ask.key, deadline))
            if not known.signature.configured:
                raise unconfigured(known.where, "a stream or a sequence", "call predict")
            return _call(known, ask, deadline, headers)
        except (InvalidInput, InferenceError, ModelNotFound) as error:
            self.doubt(ask.key, error)
            raise

    def predict_item(
        self,
        key: Key,
        item: Any,
        outputs: Sequence[str] | None,
        timeout_s: float | None,
        idempotent: bool | None = None,
    ) -> Steps[Reply]:
        """One item of many: a value alone if the model has one input, and in parts if it is too large."""
        started = time.perf_counter()
        ask = Ask(key, {}, outputs, timeout_s, idempotent=idempotent)
        known = self._known.get(key) or (yield from self._learn(key, self.deadline(ask)))
        signature = known.signature
        given = item if isinstance(item, Mapping) else {_only_input(signature): item}
        if known.undeclared:
            return (yield from self.predict(ask._replace(inputs=given)))
        arrays = conformed_inputs(signature, given)
        items = items_in(signature, arrays)
        if items <= signature.max_batch_size or not signature.max_batch_size:
            return (yield from self.predict(ask._replace(inputs=arrays)))
        replies = []
        for part in parts(signature, arrays, items):
            replies.append((yield from self.predict(ask._replace(inputs=part))))
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
        """UsageError if no answers are kept."""
        if self._cache is None:
            raise UsageError(
                f"client of {self.address}",
                found="it keeps no answers",
                wanted="a cache to fill: Client(..., cache=Cache())",
            )

    def close(self) -> None:
        """Close what blocks to be closed; in a fork, let go of it without disturbing the parent."""
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
        """Close what is awaited to be closed; in a fork, the parent's loop and connections stay as they are."""
        self._closed = True
        if self.forked:
            return
        if self._regions is not None:
            await self._regions.aclose()
        if self._cache is not None:
            await self._cache.aclose()
        await self.policy.aclose()

    def deadline(self, ask: Ask) -> float:
        """When the call must be over: a moment of the monotonic clock."""
        seconds = ask.timeout_s
        if seconds is None:
            return time.monotonic() + self.timeout_s
        return time.monotonic() + checked_timeout(seconds, f"model {ask.key[0]}")

    def _learn(self, key: Key, deadline: float) -> Steps[Known]:
        name, version = key
        metadata = yield from self._ask("ModelMetadata", name, version, deadline=deadline)
        try:
            config = (yield from self._ask("ModelConfig", name, version, deadline=deadline)).config
        except Unsupported:  # a server of the Open Inference Protocol that is no Triton
            config = None
        if config is None and self._batches:
            raise unconfigured(f"model {name}", "batching", "make the client without batching=")
        signature = signature_from(metadata, config)
        self._limit.learn(signature)
        known = self._known[key] = Known(signature, self._idempotent)
        if self.policy.hedges and not known.idempotent:
            logger.info("%s is not declared idempotent: its calls are not hedged", known.where)
        return known

    def doubt(self, key: Key, error: Exception) -> None:
        """After a refusal: the model may have been replaced by one with another signature.

        A server without room says nothing about its models, and questions would only add to its load.
        """
        known = self._known.get(key)
        if isinstance(error, Overloaded) or known is None:
            return
        if time.monotonic() - known.read_at > _TRUSTED_S:
            self._known.pop(key, None)


def _call(known: Known, ask: Ask, deadline: float, headers: Headers) -> Call:
    key, inputs, outputs, _, priority, said = ask
    if known.undeclared:
        known = known.assuming(inputs)
    arrays, items = known.inputs.checked(inputs)
    names = checked_outputs(known.signature, outputs)
    idempotent = known.idempotent if said is None else said
    return Call(known, *key, arrays, names, priority, items, deadline, headers, idempotent)


def _event(reply: Reply) -> CallEvent:
    return CallEvent(
        reply.model,
        reply.version,
        reply.origin,
        reply.endpoint,
        reply.attempts,
        reply.batch_size,
        reply.timing,
    )


def model_key(name: str, version: str | int | None) -> Key:
    """The key of a model and version.

    Raises:
        UsageError: an empty name, or a version that is no whole number.
    """
    key = (name, "" if version is None else str(version))
    if not name or (key[1] and not key[1].isdecimal()):
        raise UsageError(
            f"model {name!r}, version {version!r}",
            found="not a model's name and version number",
            wanted="a name, and a whole number above 0 or None",
        )
    return key


def _only_input(signature: ModelSignature) -> str:
    if len(signature.inputs) == 1:
        return next(iter(signature.inputs))
    raise InvalidInput(
        f"model {signature.name}",
        found="an item that is a value alone",
        wanted=f"a mapping with values for {', '.join(signature.inputs) or 'the inputs by name'}",
    )
