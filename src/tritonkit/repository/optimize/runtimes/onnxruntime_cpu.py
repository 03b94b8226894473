"""ONNX Runtime on the CPU, with the options its stand-in serves with, and its own profiler."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import open_session, run_session, session_options
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.optimize.runner import OperatorTime

__all__ = ["OnnxRuntimeRunner", "idle_workers", "open_runner"]

_KERNEL = "_kernel_time"
_RUN = "model_run"
_WARM_RUNS = 2


class OnnxRuntimeRunner:
    """A session of an ONNX file."""

    def __init__(self, file: Path, threads: int, where: str) -> None:
        self._file = file
        self._threads = threads
        self._where = where
        self._session = self._open()

    def _open(self, trace: Path | None = None) -> Any:
        ort = need("onnxruntime", "build")
        options = session_options()
        options.intra_op_num_threads = self._threads
        for key, value in idle_workers(ort.__version__).items():
            options.add_session_config_entry(key, value)
        if trace is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(trace)
        return open_session(self._file, self._where, options=options)

    def run(self, batch: Batch) -> Batch:
        """Outputs by name."""
        return run_session(self._session, batch, self._where)

    def output_shapes(self) -> dict[str, tuple[int | str | None, ...]]:
        """Output name -> its sizes as ONNX Runtime has inferred them; None or a name for a free size.

        The sizes are empty both for a scalar and for an output of unknown rank.
        """
        return {output.name: tuple(output.shape) for output in self._session.get_outputs()}

    def reopened(self) -> OnnxRuntimeRunner:
        """The same file opened again, after it has changed."""
        return OnnxRuntimeRunner(self._file, self._threads, self._where)

    def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
        """Mean time of each node of the optimized graph, in the order they ran.

        Tracing is decided when a session is made, so the file is opened once more.
        """
        with tempfile.TemporaryDirectory(prefix="tritonkit-trace-") as folder:
            traced = self._open(Path(folder) / "trace")
            for _ in range(_WARM_RUNS + repeats):
                run_session(traced, batch, self._where)
            events = json.loads(Path(traced.end_profiling()).read_text(encoding="utf-8"))
        runs, kinds, sums = 0, dict[str, str](), dict[str, int]()
        for event in events:
            name = event["name"].removesuffix(_KERNEL)
            # A run's own event follows those of its nodes.
            runs += event["name"] == _RUN
            if event["cat"] == "Node" and name != event["name"] and runs >= _WARM_RUNS:
                kinds[name] = event["args"]["op_name"]
                sums[name] = sums.get(name, 0) + event["dur"]  # microseconds
        return [OperatorTime(name, kinds[name], us / repeats / 1000) for name, us in sums.items()]


def open_runner(folder: Path, threads: int, where: str) -> OnnxRuntimeRunner:
    """The model.onnx in `folder`."""
    return OnnxRuntimeRunner(folder / "model.onnx", threads, where)


def idle_workers(version: str) -> dict[str, str]:
    """Settings for idle worker threads: the same as when the variant is served."""
    if tuple(int(part) for part in version.split(".")[:2]) < (1, 26):
        return {"session.intra_op.allow_spinning": "0"}
    return {"session.intra_op.spin_duration_us": "50", "session.force_spinning_stop": "1"}
