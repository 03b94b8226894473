"""ONNX Runtime's own profiler: it writes a trace, from which the time of each node is read."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tritonkit.export.onnx_file import run_session
from tritonkit.export.runner import OperatorTime
from tritonkit.export.samples import Batch
from tritonkit.extras import need

__all__ = ["trace_nodes"]

_KERNEL = "_kernel_time"
_RUN = "model_run"
_SPINNING = "session.intra_op.allow_spinning"
_WARM_RUNS = 2


def trace_nodes(session: Any, batch: Batch, repeats: int, where: str) -> list[OperatorTime]:
    """Mean time of each node of the optimized graph over `repeats` runs, in the order they ran.

    Tracing is decided when a session is made, so the file is opened once more with the same options.
    """
    with tempfile.TemporaryDirectory(prefix="tritonkit-trace-") as folder:
        traced = _open_again(session, Path(folder))
        for _ in range(_WARM_RUNS + repeats):
            run_session(traced, batch, where)
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


def _open_again(session: Any, folder: Path) -> Any:
    ort = need("onnxruntime", "build")
    before, options = session.get_session_options(), ort.SessionOptions()
    options.log_severity_level = before.log_severity_level
    options.intra_op_num_threads = before.intra_op_num_threads
    options.add_session_config_entry(_SPINNING, before.get_session_config_entry(_SPINNING))
    options.graph_optimization_level = before.graph_optimization_level
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "trace")
    # The file's path is known to the session alone.
    return ort.InferenceSession(session._model_path, options, providers=session.get_providers())
