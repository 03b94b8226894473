"""PyTriton: a Python function behind Triton, with its dynamic batcher."""

import json
import os

import numpy as np
from model import Model
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

NAME, BATCH = os.environ["MODEL"], int(os.environ["MAX_BATCH"])
ENDS = {
    "digits_network": (
        Tensor(name="pixels", dtype=np.float32, shape=(1, 8, 8)),
        [Tensor(name="logits", dtype=np.float32, shape=(10,))],
    ),
    "sentences": (
        Tensor(name="text", dtype=bytes, shape=(1,)),
        [Tensor(name="embedding", dtype=np.float32, shape=(384,))],
    ),
    "resnet50": (
        Tensor(name="image", dtype=bytes, shape=(1,)),
        [Tensor(name="label", dtype=bytes, shape=(5,)), Tensor(name="score", dtype=np.float32, shape=(5,))],
    ),
}


class Inference:
    """An instance."""

    def __init__(self) -> None:
        self.model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))

    @batch
    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """A batch."""
        [items] = inputs.values()
        if NAME == "digits_network":
            answers = self.model([item.tobytes() for item in items])
            return {"logits": np.array([np.frombuffer(answer, np.float32) for answer in answers])}
        answers = self.model([item[0] for item in items])
        if NAME == "sentences":
            return {"embedding": np.array([np.frombuffer(answer, np.float32) for answer in answers])}
        results = [json.loads(answer) for answer in answers]
        return {
            "label": np.array([[label.encode() for label in result["label"]] for result in results]),
            "score": np.array([result["score"] for result in results], np.float32),
        }


if __name__ == "__main__":
    ports = {name: int(os.environ[f"{name.upper()}_PORT"]) for name in ("http", "grpc", "metrics")}
    config = TritonConfig(
        **{f"{name}_port": port for name, port in ports.items()},
        **{f"{name}_address": "127.0.0.1" for name in ("http", "grpc", "metrics")},
    )
    model_input, outputs = ENDS[NAME]
    # The load is compared with Triton's statistics, which a token would lock.
    security = TritonSecurityConfig(restricted_endpoints=[])
    with Triton(config=config, security_config=security) as triton:
        delay_us = 1000 * int(os.environ["MAX_DELAY_MS"])
        triton.bind(
            model_name=NAME,
            infer_func=[Inference() for _ in range(int(os.environ["WORKERS"]))],
            inputs=[model_input],
            outputs=outputs,
            config=ModelConfig(max_batch_size=BATCH, batcher=DynamicBatcher(max_queue_delay_microseconds=delay_us)),
        )
        triton.serve()
