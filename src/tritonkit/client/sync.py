"""The blocking client: threads share it; `core` has the logic of a call."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any

from tritonkit.client.build import make_core
from tritonkit.client.many import many
from tritonkit.client.request import ModelKey, model_key
from tritonkit.client.shell import ModelShell
from tritonkit.client.status import ModelStatistics, ModelStatus, ServerInfo
from tritonkit.client.steps import run_blocking
from tritonkit.client.wire.signature import ModelSignature

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from typing import Unpack

    from tritonkit.client.batching import Joining
    from tritonkit.client.options import ManyOptions, Options
    from tritonkit.client.reply import Reply
    from tritonkit.client.steps import Steps
    from tritonkit.client.streams import Sequence as ModelSequence
    from tritonkit.client.streams import Stream
    from tritonkit.client.wire.parameters import Parameter
    from tritonkit.client.wire.transport import Transport
    from tritonkit.errors import ClientError

__all__ = ["Client", "Model"]

_SUBMITTED_AT_ONCE = 32


class Client:
    """Calls the models of one server, or of several that serve the same. Threads may share it; each
    process needs another.

    Args:
        address: a server's gRPC address, `host:port`, `grpc://host:port` or `grpcs://host:port`; a list
            of them; or `dns:host:port` for every server that name stands for. Nothing is sent yet.
        transport: the transport to use instead of an address: a `MemoryTransport` in tests.
        **options: see `Options`.

    Raises:
        UsageError: an address or setting is invalid, or not exactly one of address and transport is given.
    """

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        *,
        transport: Transport | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._core = make_core("Client", address, transport, options)
        self._models: dict[ModelKey, Model] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    @property
    def address(self) -> str:
        """The server's address; several are joined by commas."""
        return self._core.address

    def model(self, name: str, version: str | int | None = None) -> Model:
        """A model to call; its metadata is read the first time.

        Args:
            name: the model's name on the server.
            version: a version number; None leaves the choice to the server at each call.

        Raises:
            ModelNotFound: the server does not serve that model or version now.
        """
        key = model_key(name, version)
        model = self._models.get(key)
        if model is None:
            run_blocking(self._core.signature(key))
            model = self._models.setdefault(key, Model(self, key))
        return model

    def is_ready(self, name: str = "", version: str | int | None = None) -> bool:
        """Whether a server (or one model on it) takes requests; False also if no server answers."""
        return run_blocking(self._core.is_ready(name, version))

    def models(self) -> tuple[ModelStatus, ...]:
        """Every model version in the server's repository, ready or not and why."""
        return run_blocking(self._core.models())

    def load(self, name: str, *, config: Any = None, timeout_s: float | None = None) -> None:
        """Load a model, or its newest version, with the models that an ensemble needs; it is ready when this returns.

        The old version answers until the new one is loaded and warm. Each of several servers loads it.
        A server that was not started with explicit model control refuses.

        Args:
            name: the model's name.
            config: a configuration to use instead of the repository's, whose files stay as they are: a
                `ModelConfig` message, as `config()` returns, or its JSON text. Triton 2.51
                keeps it until the model's files are newer: a load without `config` does not undo it, one
                with the former configuration does.
            timeout_s: seconds for each server; the client's if None.

        Raises:
            InferenceError: the model could not be loaded; the message says why. What was served before still is.
            DeadlineExceeded: the model was not loaded in time; the server goes on loading.
        """
        run_blocking(self._core.load(name, config, timeout_s))

    def server_metadata(self) -> ServerInfo:
        """The server's name, version and extensions."""
        return run_blocking(self._core.server_metadata())

    def config(self, name: str, version: str | int | None = None) -> Any:
        """The configuration a model is served with, as Triton's own `ModelConfig` message."""
        return run_blocking(self._core.config(name, version))

    def statistics(self, name: str, version: str | int | None = None) -> tuple[ModelStatistics, ...]:
        """Counters of a model since it was loaded, one value per loaded version; sums over servers."""
        return run_blocking(self._core.statistics(name, version))

    def precompute(self, name: str, items: Iterable[Any], *, concurrency: int = 8) -> int:
        """Fill the cache with the answers to `items` ahead of time, and return their number.

        Raises:
            UsageError: the client has no `cache`.
        """
        self._core.check_cache()
        return sum(1 for _ in self.model(name).predict_many(items, concurrency=concurrency))

    def close(self) -> None:
        """Close connections; closing twice is harmless, and a later call raises `UsageError`."""
        if not self._core.forked:
            with self._lock:
                pool, self._pool = self._pool, None
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        self._core.close()

    def __enter__(self) -> Client:
        """The client itself, closed when the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client: see `close`."""
        self.close()

    def _submit(self, steps: Steps[Reply]) -> Future[Reply]:
        with self._lock:
            self._core.check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_SUBMITTED_AT_ONCE, "tritonkit-submit")
            return self._pool.submit(run_blocking, steps)


class Model(ModelShell):
    """One model on the servers; made by `Client.model`, safe to share between threads."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, key: ModelKey) -> None:
        super().__init__(client._core, key)
        self._client = client

    @property
    def signature(self) -> ModelSignature:
        """Its inputs, outputs and batch limit, as last read from the server."""
        return run_blocking(self._core.signature(self._key))

    @property
    def joining(self) -> Joining:
        """Whether a client with `batching=` joins its calls: `state` and `reason`."""
        return run_blocking(self._core.joining(self._key))

    def predict(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
        **named: Any,
    ) -> Reply:
        """Send one item or one batch and wait for the answer.

        For a model that batches, an array with as many axes as the model declares for an item is
        one item, with one more it is a batch; where an item is declared as [1], a bare value (also
        bytes or str) is one item and a flat list is a batch. Every input must hold the same number
        of items. `tritonkit.client.values` states the types that fit.

        Args:
            inputs: values by name, for names that are not Python identifiers or are other arguments here.
            outputs: names of the outputs to request; None requests all.
            timeout_s: seconds for the whole call; the client's if None. The server gets it too.
            priority: Triton's, for models that have priority levels: 1 is the highest, 0 the default.
            idempotent: True: the call may run twice, so it is sent again also after the loss of a
                server that may have begun with it, and may be hedged. False: it is not. None: as the
                client, or else the model's configuration says; False if neither does.
            parameters: values for the model that are not tensors, by name: str, int, float, bool.
            request_id: comes back as `Reply.request_id`, and appears in the server's log and trace.
            classification: the number of best classes to give in place of an output's values, for all
                outputs or by name: texts `VALUE:INDEX:LABEL`, best first (without LABEL if the model has none).
            **named: values by input name.

        Returns:
            The outputs as arrays, batch axis first (length 1 for one item).

        Raises:
            InvalidInput: a name, type, shape or size does not fit; nothing was sent.
            ModelNotFound: the model or version is no longer served.
            InferenceError: the server answered with an error; `Overloaded` if it had no room.
            DeadlineExceeded: no answer in time; the server may still have run the call.
            ServerUnavailable: no server answers; `CircuitOpen` if nothing was sent for that reason.
            UsageError: the client is closed, or the timeout is not a positive number.
        """
        request = self._request(
            inputs, named, outputs, timeout_s, priority, idempotent, parameters, request_id, classification
        )
        return run_blocking(self._core.predict(request))

    __call__ = predict

    def submit(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        idempotent: bool | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
        **named: Any,
    ) -> Future[Reply]:
        """`predict` in another thread: a future of its reply.

        At most 32 such calls of a client run concurrently; the others wait, and their time starts when they do.
        """
        request = self._request(
            inputs, named, outputs, timeout_s, priority, idempotent, parameters, request_id, classification
        )
        return self._client._submit(self._core.predict(request))

    def predict_many(self, items: Iterable[Any], **options: Unpack[ManyOptions]) -> Generator[Reply, None, None]:
        """Call for each of `items`, several at a time; the replies in the items' order.

        `items` may never end: at most `concurrency` are taken ahead of what is read. An item is
        a mapping of input names to values, or the value itself for a model with one input; a batch larger
        than the model takes is sent in parts. The first error ends it; see `try_many` to go on.

        Args:
            items: any iterable.
            **options: see `ManyOptions`.
        """
        return many(items, *self._many(False, **options))

    def try_many(
        self, items: Iterable[Any], **options: Unpack[ManyOptions]
    ) -> Generator[Reply | ClientError, None, None]:
        """`predict_many` that hands on an item's error in its place, and goes on with the next."""
        return many(items, *self._many(True, **options))

    def stream(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
        **named: Any,
    ) -> Stream:
        """Call a decoupled model: an iterator of its replies, as many as it sends.

        Leaving its `with` block early, or closing it, ends the work at the server.
        """
        from tritonkit.client.streams import Stream

        request = self._request(
            inputs,
            named,
            outputs,
            timeout_s,
            parameters=parameters,
            request_id=request_id,
            classification=classification,
        )
        return Stream(self._core, request)

    def sequence(self, correlation_id: int | str | None = None) -> ModelSequence:
        """A sequence of calls that share state in the server: a context manager.

        Args:
            correlation_id: names the sequence; None makes one up that no other sequence has.
        """
        from tritonkit.client.streams import Sequence

        return Sequence(self._core, self._key, correlation_id)
