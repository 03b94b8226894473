"""What the room asks a running server: Triton's gRPC service, called through its own stubs.

The client room is for people's requests and stands to the right of this one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tritonkit.serve.core.keys import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NotAnswered", "Service", "connect"]

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class NotAnswered(Exception):
    """The server refused or did not answer a call; the text is its own reason."""


class Service:
    """The calls this room needs. Each takes the seconds it may last and raises NotAnswered."""

    def __init__(self, stub: Any, key: str) -> None:
        self._stub = stub
        self._metadata = ((f"triton-grpc-protocol-{HEADER}", key),) if key else ()

    def live(self, timeout_s: float) -> bool:
        """Whether the server answers; False also where nobody does."""
        from tritonclient.grpc import service_pb2

        try:
            return bool(self._call("ServerLive", service_pb2.ServerLiveRequest(), timeout_s).live)
        except NotAnswered:
            return False

    def version(self, timeout_s: float) -> str:
        """Triton's version."""
        from tritonclient.grpc import service_pb2

        request = service_pb2.ServerMetadataRequest()
        return str(self._call("ServerMetadata", request, timeout_s).version)

    def unavailable(self, models: Sequence[str], timeout_s: float) -> dict[str, str]:
        """Of `models`, those that did not load, with Triton's reason."""
        from tritonclient.grpc import service_pb2

        answer = self._call("RepositoryIndex", service_pb2.RepositoryIndexRequest(), timeout_s)
        ready = {entry.name for entry in answer.models if entry.state == "READY"}
        reasons = {entry.name: entry.reason for entry in answer.models if entry.state != "READY"}
        # A version that failed counts also where another one of the model is ready.
        return {
            name: reasons.get(name) or "it was not loaded, and Triton gives no reason"
            for name in models
            if name not in ready or reasons.get(name, "unloaded") != "unloaded"
        }

    def reload(self, model: str, timeout_s: float) -> None:
        """Unload and load a model: the only way to a new stub, and its ensembles follow by themselves
        (tried on 2.51: loading alone changes nothing)."""
        from tritonclient.grpc import service_pb2

        self.unload(model, timeout_s)
        load = service_pb2.RepositoryModelLoadRequest(model_name=model)
        self._call("RepositoryModelLoad", load, timeout_s)

    def unload(self, model: str, timeout_s: float) -> None:
        """Take no new requests for a model; those it has are answered (`is_loaded` until then)."""
        from tritonclient.grpc import service_pb2

        request = service_pb2.RepositoryModelUnloadRequest(model_name=model)
        self._call("RepositoryModelUnload", request, timeout_s)

    def is_loaded(self, model: str, timeout_s: float) -> bool:
        """Whether a version of a model is there, be it on its way out."""
        from tritonclient.grpc import service_pb2

        answer = self._call("RepositoryIndex", service_pb2.RepositoryIndexRequest(), timeout_s)
        return any(one.name == model and one.reason != "unloaded" for one in answer.models)

    def infer(self, request: Any, *, decoupled: bool, timeout_s: float) -> None:
        """Send one request and wait for its answer; of a decoupled model, for all of them."""
        if not decoupled:
            self._call("ModelInfer", request, timeout_s)
            return
        import grpc

        # The stream ends when both sides have said all; until then Triton holds it open.
        stream = self._stub.ModelStreamInfer(
            iter([request]), timeout=timeout_s, metadata=self._metadata
        )
        try:
            for answer in stream:
                if answer.error_message:
                    raise NotAnswered(answer.error_message)
        except grpc.RpcError as error:
            raise NotAnswered(_reason(error)) from error

    def _call(self, method: str, request: Any, timeout_s: float) -> Any:
        import grpc

        try:
            return getattr(self._stub, method)(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise NotAnswered(_reason(error)) from error


@contextlib.contextmanager
def connect(address: str, key: str = "") -> Iterator[Service]:
    """A connection of its own to `host:port`, for as long as the block; `key` opens the admin calls."""
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        yield Service(service_pb2_grpc.GRPCInferenceServiceStub(channel), key)


def _reason(error: Any) -> str:
    return f"{error.details()} ({error.code().name})"
