"""An ensemble whose step says how many requests it was given together, and waits for a gate."""

from __future__ import annotations

from pathlib import Path

from tests.server.models import ModelText

BOUND = 2
_TENSORS = """max_batch_size: 16
input { name: "x" data_type: TYPE_UINT8 dims: [1] }
output { name: "y" data_type: TYPE_UINT8 dims: [1] }
output { name: "count" data_type: TYPE_UINT8 dims: [1] }
"""
_STEP = """import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # y is x. A request with the highest bit waits until the gate is there.
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        time.sleep(0.01)
        while any((x > 127).any() for x in given) and not os.path.exists("GATE"):
            time.sleep(0.01)
        count = pb_utils.Tensor("count", np.array([[len(requests)]], np.uint8))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x), count]) for x in given]
"""
_ENSEMBLE = """platform: "ensemble"
ensemble_scheduling { step {
  model_name: "counts" model_version: -1
  input_map { key: "x" value: "x" }
  output_map { key: "y" value: "y" } output_map { key: "count" value: "count" }
} }
"""


def bounded(limit: int) -> str:
    """Configuration of the ensemble with a bound, as the build writes it."""
    parameter = f'key: "tritonkit.max_inflight_requests" value {{ string_value: "{limit}" }}'
    return f"{_ENSEMBLE}{_TENSORS}parameters {{ {parameter} }}\n"


def counted(gate: Path) -> dict[str, ModelText]:
    """The ensemble with a bound of BOUND requests and without one, and the step of both."""
    config = f'backend: "python"\n{_TENSORS}dynamic_batching {{ }}\n'
    return {
        "counts": ModelText(config, _STEP.replace("GATE", str(gate))),
        "bounded": ModelText(bounded(BOUND), None),
        "unbounded": ModelText(_ENSEMBLE + _TENSORS, None),
    }
