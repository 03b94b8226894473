"""A server that opens shared memory as Triton does, in this process."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tritonkit.client.shm import system
from tritonkit.client.shm.system import FOLDER
from tritonkit.client.wire.messages import schema
from tritonkit.errors import DeadlineExceeded, InferenceError, ModelNotFound


class FakeTriton:
    """A blocking transport to a server whose one model copies x to y, with Triton 2.51's answers.

    `give_up` makes an inference time out and stay under way until `finish`. A function in `answers`, by method,
    answers in place of the server; it may call `answer` for the server's own.
    """

    def __init__(self, address: str = "here:8001", local: bool = True) -> None:
        self.address = address
        self.local = local
        self.regions: dict[str, mmap.mmap] = {}
        self.keys: list[str] = []
        self.calls: list[str] = []
        self.give_up = False
        self.unreachable: Exception | None = None
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self._under_way: list[Any] = []
        self._lock = threading.Lock()

    def send(self, method: str, body: Any, timeout_s: float, headers: Any = ()) -> memoryview:
        """Answer one message."""
        assert timeout_s > 0
        if self.unreachable is not None:
            raise self.unreachable
        with self._lock:
            self.calls.append(method)
            request = getattr(schema(), f"{method}Request").FromString(b"".join(body))
            answer = self.answers[method](request) if method in self.answers else self.answer(method, request)
            return memoryview(answer.SerializeToString())

    def answer(self, method: str, request: Any) -> Any:
        """The server's own answer."""
        return getattr(self, f"_{method}")(request)

    def restart(self) -> None:
        """Forget every region, as a new process does."""
        self.regions.clear()
        self._under_way.clear()

    def finish(self) -> None:
        """End the calls that were given up: their outputs are written now."""
        for request in self._under_way:
            self._copy(request)
        self._under_way.clear()

    def _SystemSharedMemoryRegister(self, request: Any) -> Any:  # noqa: N802
        self.keys.append(request.key)
        path = Path(f"{FOLDER}{request.key}")
        if not self.local or not path.exists():
            raise self._error("INTERNAL: Unable to open shared memory region: '%s'", request.key)
        assert path.stat().st_mode & 0o777 == 0o600
        assert request.name not in self.regions
        descriptor = os.open(path, os.O_RDWR)
        self.regions[request.name] = mmap.mmap(descriptor, request.byte_size)
        os.close(descriptor)
        return schema().SystemSharedMemoryRegisterResponse()

    def _CudaSharedMemoryRegister(self, request: Any) -> Any:  # noqa: N802
        """The handle of tests/client/shm/fake_gpu.py: the path of a file."""
        if not self.local:
            raise self._error("INTERNAL: failed to register shared memory region '%s'", request.name)
        descriptor = os.open(request.raw_handle.rstrip(bytes(1)), os.O_RDWR)
        self.regions[request.name] = mmap.mmap(descriptor, request.byte_size)
        os.close(descriptor)
        return schema().CudaSharedMemoryRegisterResponse()

    def _CudaSharedMemoryUnregister(self, request: Any) -> Any:  # noqa: N802
        self._SystemSharedMemoryUnregister(request)
        return schema().CudaSharedMemoryUnregisterResponse()

    def _CudaSharedMemoryStatus(self, request: Any) -> Any:  # noqa: N802
        answer = schema().CudaSharedMemoryStatusResponse()
        for name in self.regions:
            answer.regions[name].name = name
        return answer

    def _SystemSharedMemoryUnregister(self, request: Any) -> Any:  # noqa: N802
        used = {request.inputs[0].parameters["shared_memory_region"].string_param for request in self._under_way}
        if request.name in used:
            raise self._error("INTERNAL: Cannot unregister '%s', it is in use.", request.name)
        self.regions.pop(request.name, None)
        return schema().SystemSharedMemoryUnregisterResponse()

    def _SystemSharedMemoryStatus(self, request: Any) -> Any:  # noqa: N802
        answer = schema().SystemSharedMemoryStatusResponse()
        for name in self.regions:
            answer.regions[name].name = name
        return answer

    def _ModelInfer(self, request: Any) -> Any:  # noqa: N802
        for tensor in (*request.inputs, *request.outputs):
            name = tensor.parameters["shared_memory_region"].string_param
            if name and name not in self.regions:
                raise ModelNotFound(self.address, found=f"NOT_FOUND: Unable to find shared memory region: '{name}'")
        if self.give_up:
            self._under_way.append(request)
            raise DeadlineExceeded(self.address, found="no answer within 0.1 s")
        return self._copy(request)

    def _copy(self, request: Any) -> Any:
        tensor = request.inputs[0]
        raw = self._bytes(tensor) or b"".join(request.raw_input_contents)
        answer = schema().ModelInferResponse(model_name="copy", model_version="1")
        answer.outputs.add(name="y", datatype=tensor.datatype, shape=tensor.shape)
        if request.outputs and self._bytes(request.outputs[0]):
            name, start, _ = self._place(request.outputs[0])
            self.regions[name][start : start + len(raw)] = raw
            answer.raw_output_contents.append(b"")
        else:
            answer.raw_output_contents.append(raw)
        return answer

    def _bytes(self, tensor: Any) -> bytes:
        name, start, size = self._place(tensor)
        return self.regions[name][start : start + size] if name else b""

    def _place(self, tensor: Any) -> tuple[str, int, int]:
        parameters = tensor.parameters
        if "shared_memory_region" not in parameters:
            return "", 0, 0
        start = parameters["shared_memory_offset"].int64_param if "shared_memory_offset" in parameters else 0
        size = parameters["shared_memory_byte_size"].int64_param
        return parameters["shared_memory_region"].string_param, start, size

    def _error(self, text: str, name: str) -> InferenceError:
        return InferenceError(self.address, found=text % name)


class AsyncTriton:
    """The same server for tasks."""

    def __init__(self, server: FakeTriton) -> None:
        self.server = server
        self.address = server.address

    async def send(self, method: str, body: Any, timeout_s: float, headers: Any = ()) -> memoryview:
        """Answer one message."""
        return self.server.send(method, body, timeout_s, headers)


def left_behind() -> list[str]:
    """The files of this process's clients in shared memory."""
    return sorted(path.name for path in FOLDER.glob(f"{system._PREFIX}*"))


def vector(size: int, start: float = 0.0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """`[1, size]` float32 that counts up."""
    return np.arange(start, start + size, dtype=np.float32).reshape(1, size)
