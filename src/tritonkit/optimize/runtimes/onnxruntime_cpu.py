"""ONNX Runtime on the CPU, with the options its stand-in serves with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.export.onnx_file import run_session
from tritonkit.export.runner import OperatorTime
from tritonkit.export.samples import Batch
from tritonkit.extras import need
from tritonkit.optimize.runtimes.onnxruntime_trace import trace_nodes

__all__ = ["open_runner"]


class _Session:
    def __init__(self, session: Any, where: str) -> None:
        self._session = session
        self._where = where

    def run(self, batch: Batch) -> Batch:
        """Outputs by name."""
        return run_session(self._session, batch, self._where)

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """Mean time of each node."""
        return trace_nodes(self._session, batch, repeats, self._where)


def open_runner(folder: Path, threads: int, where: str) -> _Session:
    """The model.onnx in `folder`."""
    ort = need("onnxruntime", "build")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(
            folder / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise BuildError(where, found=f"ONNX Runtime refuses model.onnx: {error}") from error
    return _Session(session, where)
