"""Eager PyTorch in FP32, served by Triton's Python backend: the way in which many begin, as the tables' bar."""

import sys
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).resolve().parent))
from network import build


class TritonPythonModel:
    """ResNet-50 of models/resnet50, whose file lies next to this one."""

    def initialize(self, args: dict[str, str]) -> None:
        """Make the network with seeded weights on the instance's GPU."""
        torch.manual_seed(50)
        self.device = f"cuda:{args['model_instance_device_id']}"
        self.network = build().eval().to(self.device)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself."""
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "pixels").as_numpy()) for request in requests]

    def answer(self, pixels: Any) -> Any:
        """uint8 [batch, 3, 224, 224] -> logits."""
        with torch.inference_mode():
            logits = self.network(torch.from_numpy(pixels).to(self.device)).cpu().numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("logits", logits)])
