"""Pixels in, logits out, in batches: float32 [1, 8, 8] as bytes to float32 [10] as bytes."""

import numpy as np
import onnxruntime


class Model:
    """The network, on as many threads as it is given."""

    def __init__(self, folder: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])

    def __call__(self, bodies: list[bytes]) -> list[bytes]:
        """One answer for each body."""
        pixels = np.frombuffer(b"".join(bodies), np.float32).reshape(-1, 1, 8, 8)
        return [row.tobytes() for row in self.session.run(None, {"pixels": pixels})[0]]
