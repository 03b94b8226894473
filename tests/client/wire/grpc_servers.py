"""A real gRPC server of Triton's service, for tests of every transport."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

__all__ = ["Answers", "body", "data_of", "grpc_server"]


def body(name: str = "echo", data: bytes = b"", **fields: Any) -> list[bytes | memoryview]:
    """A request's message."""
    request = service_pb2.ModelInferRequest(model_name=name, **fields)
    request.raw_input_contents.append(data)
    return [request.SerializeToString()]


def data_of(answer: memoryview) -> bytes:
    """The bytes that an answer carries."""
    return bytes(service_pb2.ModelInferResponse.FromString(bytes(answer)).raw_output_contents[0])


class Answers(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Ends a call with the status that its model name spells, and its id or "as asked" for a message.

    `echo` echoes, `slow` does so after `id` seconds or `go_on`, `trailers` with `id` bytes of trailing metadata.
    """

    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []
        self.left_s: list[float] = []
        self.slow = threading.Event()
        self.go_on = threading.Event()
        self.cancelled = threading.Event()

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Says yes."""
        return service_pb2.ServerLiveResponse(live=True)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Notes the metadata."""
        self.metadata.append(dict(context.invocation_metadata()))
        return service_pb2.RepositoryIndexResponse()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Echoes or fails."""
        self.metadata.append(dict(context.invocation_metadata()))
        self.left_s.append(context.time_remaining())
        if request.model_name == "slow":
            context.add_callback(self.cancelled.set)
            self.slow.set()
            self.go_on.wait(float(request.id))
        elif request.model_name == "trailers":
            context.set_trailing_metadata([("x-own", "v" * int(request.id))])
        elif request.model_name != "echo":
            message = request.id or "as asked: 50 % ü"
            context.abort(getattr(grpc.StatusCode, request.model_name), message)
        answer = service_pb2.ModelInferResponse(model_name="echo", id=request.id)
        answer.raw_output_contents.extend(request.raw_input_contents)
        return answer

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Echoes each request as often as its id says; the model `fail` ends the stream."""
        context.add_callback(self.cancelled.set)
        for request in requests:
            if request.model_name == "fail":
                context.abort(grpc.StatusCode.INTERNAL, "as asked")
            for _ in range(int(request.id or 1)):
                answer = service_pb2.ModelInferResponse(model_name="echo")
                answer.raw_output_contents.extend(request.raw_input_contents)
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)


@contextlib.contextmanager
def grpc_server(
    servicer: Answers,
    credentials: Any = None,
    port: int = 0,
    options: Sequence[tuple[str, int]] = (),
    compression: grpc.Compression | None = None,
) -> Iterator[tuple[grpc.Server, int]]:
    """A real server, and its port."""
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(8), options=[*options, *sizes], compression=compression)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    address = f"127.0.0.1:{port}"
    add = server.add_insecure_port if credentials is None else server.add_secure_port
    port = add(*([address] if credentials is None else [address, credentials]))
    server.start()
    try:
        yield server, port
    finally:
        servicer.go_on.set()
        server.stop(grace=None).wait(5)
