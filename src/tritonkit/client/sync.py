"""The blocking client: a thin shell of `core` and a transport."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tritonkit.client.core import decode_response, encode_request, messages
from tritonkit.client.reply import Reply, Timing
from tritonkit.client.signature import ModelSignature, signature_from
from tritonkit.client.status import (
    ModelStatistics,
    ModelStatus,
    ServerInfo,
    info_from,
    statistics_from,
    statuses_from,
)
from tritonkit.client.transport import Method, Transport, checked_timeout, time_left
from tritonkit.errors import (
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    ServerUnavailable,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

__all__ = ["Client", "Model"]

_Key = tuple[str, str]

_TRUSTED_S = 1.0
"""How old a signature must be before a refused call makes the client read it again: a server that
turns many calls away is not asked two questions more for each."""


class Client:
    """Calls the models of one server. Threads may share it; each process needs its own.

    Args:
        address: the server's gRPC address, `host:port` or `grpc://host:port`. Nothing is sent yet.
        timeout_s: seconds each call may take where it says nothing else.
        transport: what carries the calls, instead of an address: a `MemoryTransport` in tests.
        admin_key: for servers that restrict `models()` and `load()`, such as tritonkit's container.

    Raises:
        UsageError: a bad address or timeout, or not exactly one of address and transport.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float = 30.0,
        transport: Transport | None = None,
        admin_key: str | None = None,
    ) -> None:
        self._timeout_s = checked_timeout(timeout_s, "Client")
        self._transport = _transport(address, transport, admin_key)
        self._models: dict[_Key, Model] = {}
        self._signatures: dict[_Key, tuple[ModelSignature, float]] = {}

    @property
    def address(self) -> str:
        """Where calls go."""
        return self._transport.address

    def model(self, name: str, version: str | int | None = None) -> Model:
        """A model to call; its metadata is fetched the first time and kept.

        Args:
            name: the model's name on the server.
            version: a version number; None leaves the choice to the server at each call.

        Raises:
            ModelNotFound: the server does not serve that model or version now.
        """
        key = (name, "" if version is None else str(version))
        model = self._models.get(key)
        if model is None:
            if not name or (key[1] and not key[1].isdecimal()):
                raise UsageError(
                    f"model {name!r}, version {version!r}",
                    found="not a model's name and version number",
                    wanted="a name, and a whole number above 0 or None",
                )
            self._signature(key, self._timeout_s)
            model = self._models.setdefault(key, Model(self, *key))
        return model

    def is_ready(self, name: str = "", version: str | int | None = None) -> bool:
        """Whether the server (or one model on it) takes requests; False too if nobody answers."""
        wanted = "" if version is None else str(version)
        try:
            if name:
                request = messages().ModelReadyRequest(name=name, version=wanted)
                return bool(self._call("ModelReady", request).ready)
            return bool(self._call("ServerReady", messages().ServerReadyRequest()).ready)
        except (ServerUnavailable, DeadlineExceeded):
            return False

    def models(self) -> tuple[ModelStatus, ...]:
        """Every model version in the server's repository, ready or not and why."""
        return statuses_from(self._call("RepositoryIndex", messages().RepositoryIndexRequest()))

    def load(self, name: str, *, timeout_s: float | None = None) -> None:
        """Load a model, or its newest version, with what an ensemble needs; ready when this returns.

        The old version answers until the new one is loaded and warm. A server that was not started
        with explicit model control refuses.

        Raises:
            InferenceError: it could not be loaded, and why; what was served before still is.
            DeadlineExceeded: not loaded in time; the server goes on loading.
        """
        request = messages().RepositoryModelLoadRequest(model_name=name)
        left_s = checked_timeout(timeout_s or self._timeout_s, f"model {name}")
        self._transport.call("RepositoryModelLoad", request, left_s)

    def server_metadata(self) -> ServerInfo:
        """The server's name, version and extensions."""
        return info_from(self._call("ServerMetadata", messages().ServerMetadataRequest()))

    def config(self, name: str, version: str | int | None = None) -> Any:
        """The configuration a model is served with, as Triton's own `ModelConfig` message."""
        wanted = "" if version is None else str(version)
        request = messages().ModelConfigRequest(name=name, version=wanted)
        return self._call("ModelConfig", request).config

    def statistics(
        self, name: str, version: str | int | None = None
    ) -> tuple[ModelStatistics, ...]:
        """Counters of a model since it was loaded, one value per loaded version."""
        wanted = "" if version is None else str(version)
        request = messages().ModelStatisticsRequest(name=name, version=wanted)
        try:
            return statistics_from(self._call("ModelStatistics", request))
        except InferenceError as error:
            # Here, unlike elsewhere, Triton calls an unknown model an invalid argument.
            if self.is_ready(name, version):
                raise
            raise ModelNotFound(error.where, found=error.found, todo=error.todo) from error

    def close(self) -> None:
        """Free the connection; closing twice is closing once, calling afterwards a `UsageError`."""
        self._transport.close()

    def __enter__(self) -> Client:
        """The client itself, closed when the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _call(self, method: Method, request: Any) -> Any:
        return self._transport.call(method, request, self._timeout_s)

    def _signature(self, key: _Key, timeout_s: float) -> ModelSignature:
        """The kept signature, or a fresh one."""
        kept = self._signatures.get(key)
        if kept is not None:
            return kept[0]
        name, version = key
        started = time.perf_counter()
        send = self._transport.call
        asked = messages().ModelMetadataRequest(name=name, version=version)
        metadata = send("ModelMetadata", asked, time_left(started, timeout_s, name))
        wanted = messages().ModelConfigRequest(name=name, version=version)
        config = send("ModelConfig", wanted, time_left(started, timeout_s, name)).config
        signature = signature_from(metadata, config)
        self._signatures[key] = (signature, time.monotonic())
        return signature

    def _doubt(self, key: _Key) -> None:
        """After a refusal: the model may have been replaced by one with another signature."""
        kept = self._signatures.get(key)
        if kept is not None and time.monotonic() - kept[1] > _TRUSTED_S:
            self._signatures.pop(key, None)

    def _predict(
        self,
        key: _Key,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None,
        timeout_s: float | None,
    ) -> Reply:
        started = time.perf_counter()
        if timeout_s is None:
            timeout_s = self._timeout_s
        else:
            checked_timeout(timeout_s, f"model {key[0]}")
        try:
            signature = self._signature(key, timeout_s)
            request = encode_request(
                signature, inputs, version=key[1], outputs=outputs, timeout_s=timeout_s
            )
            left_s = time_left(started, timeout_s, key[0])
            sent = time.perf_counter()
            response = self._transport.call("ModelInfer", request, left_s)
            answered = time.perf_counter()
            arrays = decode_response(response)
        except (InvalidInput, InferenceError, ModelNotFound):
            self._doubt(key)
            raise
        return Reply(
            outputs=arrays,
            model=response.model_name,
            version=response.model_version,
            timing=Timing(total_s=time.perf_counter() - started, wait_s=answered - sent),
        )


class Model:
    """One model on a server; made by `Client.model`, safe to share between threads."""

    __slots__ = ("_client", "_key")

    def __init__(self, client: Client, name: str, version: str) -> None:
        self._client = client
        self._key = (name, version)

    @property
    def name(self) -> str:
        """The name it is called by."""
        return self._key[0]

    @property
    def version(self) -> str:
        """The version asked for; empty if the server chooses."""
        return self._key[1]

    @property
    def signature(self) -> ModelSignature:
        """Its inputs, outputs and batch limit, as last read from the server."""
        client = self._client
        return client._signature(self._key, client._timeout_s)

    def predict(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        **named: Any,
    ) -> Reply:
        """Send one item or one batch and wait for the answer.

        For a model that batches, an array with as many axes as the model declares for an item is
        one item, with one more it is a batch; where an item is declared as [1], a bare value (also
        bytes or str) is one item and a flat list is a batch. Every input must hold the same number
        of items. `tritonkit.client.values` states the types that fit.

        Args:
            inputs: values by name, for names that are not Python identifiers or are taken here.
            outputs: names of the outputs to ask for; None asks for all.
            timeout_s: seconds for the whole call; the client's own if None. The server is told too.
            **named: values by input name.

        Returns:
            The outputs as arrays, batch axis first (length 1 for one item).

        Raises:
            InvalidInput: refused before sending: a name, type, shape or size does not fit.
            ModelNotFound: the model or version is no longer served.
            InferenceError: the server answered with an error.
            DeadlineExceeded: no answer in time; the server may still have worked.
            ServerUnavailable: nobody answers at the address.
            UsageError: the client is closed, or the timeout is not a positive number.
        """
        given = named if inputs is None else _merged(self.name, inputs, named)
        return self._client._predict(self._key, given, outputs, timeout_s)


def _transport(
    address: str | None, transport: Transport | None, admin_key: str | None
) -> Transport:
    if (address is None) == (transport is None):
        raise UsageError(
            "Client",
            found="both an address and a transport" if address else "no address",
            wanted='one of them, such as Client("127.0.0.1:8001")',
        )
    if transport is not None:
        return transport
    # gRPC takes a fifth of a second to import: paid by those who connect.
    from tritonkit.client.grpc_transport import GrpcTransport

    return GrpcTransport(address or "", admin_key)


def _merged(model: str, inputs: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    twice = sorted(inputs.keys() & named.keys())
    if twice:
        raise InvalidInput(
            f"model {model}, input {twice[0]}",
            found="given twice: in `inputs` and as an argument",
            wanted="one value",
        )
    return {**inputs, **named}
