"""Run an ONNX file on ONNX Runtime's CUDA provider, for a build whose own environment has none.

`python cuda_session.py` runs in the server's environment, so the library that judges a network is the one that serves
it. It reads requests from standard input and writes answers to standard output. A message is the lengths of two parts
and the parts: a header as JSON, and its arrays as an .npz file.

    open   file, options, entries, libraries, operators, graphs -> version, graphs
    run    arrays -> arrays
    times  arrays, warm, least, most, seconds -> times_ms
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import IO, Any

import numpy as np

Arrays = dict[str, Any]
_LENGTHS = struct.Struct("=QQ")
_PROVIDER = "CUDAExecutionProvider"
_NO_GRAPH = "-1"
"""The value of `gpu_graph_id` for a run that neither captures nor replays a graph."""


def send(stream: IO[bytes], header: dict[str, Any], arrays: Arrays) -> None:
    """Write a message."""
    body = io.BytesIO()
    np.savez(body, *arrays.values())
    head = json.dumps({**header, "arrays": list(arrays)}).encode()
    stream.write(_LENGTHS.pack(len(head), body.tell()) + head)
    stream.write(body.getbuffer())
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], Arrays] | None:
    """Read a message; None at the end of the stream, also where a process ended in the middle of a message."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head_size, body_size = _LENGTHS.unpack(lengths)
    head, body = stream.read(head_size), stream.read(body_size)
    if len(body) < body_size:
        return None
    header = json.loads(head)
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        arrays = [file[name] for name in file.files]
    return header, dict(zip(header.pop("arrays"), arrays, strict=True))


class CudaSession:
    """An opened network: every node that the CUDA provider has a kernel for runs there."""

    def __init__(
        self,
        file: str,
        options: dict[str, str],
        entries: dict[str, str],
        libraries: list[str],
        operators: list[str],
        graphs: bool,
    ) -> None:
        for library in libraries:
            ctypes.CDLL(library)
        import onnxruntime

        self._ort = onnxruntime
        self.version = onnxruntime.__version__
        self.graphs = graphs
        self._entries, self._operators = entries, operators
        try:
            self._session = self._opened(file, options)
        except Exception:
            if not graphs:
                raise
            # A network with nodes that CUDA lacks takes no graph.
            self.graphs = False
            self._session = self._opened(file, options)
        self._captured = 0

    def _opened(self, file: str, options: dict[str, str]) -> Any:
        ort = self._ort
        if _PROVIDER not in ort.get_available_providers():
            raise RuntimeError(f"onnxruntime {ort.__version__} has no CUDA provider")
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        for name, value in self._entries.items():
            settings.add_session_config_entry(name, value)
        for library in self._operators:
            settings.register_custom_ops_library(library)
        graph = {"enable_cuda_graph": "1"} if self.graphs else {}
        providers = [(_PROVIDER, {**options, **graph}), "CPUExecutionProvider"]
        session = ort.InferenceSession(file, settings, providers=providers)
        # Without its libraries the provider is left out, and the network runs on the CPU.
        if session.get_providers()[0] != _PROVIDER:
            raise RuntimeError("the CUDA provider could not be loaded: the log has the reason")
        session.disable_fallback()
        return session

    def run(self, arrays: Arrays) -> Arrays:
        """Outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, arrays, self._run_options(_NO_GRAPH)), strict=True))

    def times(self, arrays: Arrays, warm: int, least: int, most: int, seconds: float) -> list[float]:
        """Milliseconds of runs, with the copies of inputs and outputs."""
        run = self._graph_of(arrays) if self.graphs else lambda: self.run(arrays)
        for _ in range(warm):
            run()
        times: list[float] = []
        deadline = time.perf_counter() + seconds
        while len(times) < least or (time.perf_counter() < deadline and len(times) < most):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1000)
        return times

    def _graph_of(self, arrays: Arrays) -> Callable[[], object]:
        """A function that runs a batch by a graph, whose inputs and outputs keep their places on the GPU."""
        on_gpu = self._ort.OrtValue.ortvalue_from_numpy
        inputs = {name: on_gpu(array, "cuda", 0) for name, array in arrays.items()}
        outputs = {name: on_gpu(array, "cuda", 0) for name, array in self.run(arrays).items()}
        binding = self._session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in outputs.items():
            binding.bind_ortvalue_output(name, value)
        self._captured += 1
        options = self._run_options(str(self._captured))

        def run() -> None:
            for name, value in inputs.items():
                value.update_inplace(arrays[name])
            self._session.run_with_iobinding(binding, options)
            for value in outputs.values():
                value.numpy()

        return run

    def _run_options(self, graph: str) -> Any:
        options = self._ort.RunOptions()
        if self.graphs:
            options.add_run_config_entry("gpu_graph_id", graph)
        return options


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's own lines must not mix with the answers
    session: list[CudaSession] = []
    while (message := receive(sys.stdin.buffer)) is not None:
        try:
            answer, outputs = _answer(session, *message)
        except Exception as error:  # ONNX Runtime's errors have no common root
            answer, outputs = {"error": next(iter(str(error).strip().splitlines()), repr(error))}, {}
        send(answers, answer, outputs)


def _answer(session: list[CudaSession], header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The answer to a request; `session` has the network after it was opened."""
    kind = header.pop("kind")
    if kind == "open":
        session[:] = [CudaSession(**header)]
        return {"version": session[0].version, "graphs": session[0].graphs}, {}
    if kind == "run":
        return {}, session[0].run(arrays)
    return {"times_ms": session[0].times(arrays, **header)}, {}


if __name__ == "__main__":
    main()
