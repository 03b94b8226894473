"""BentoML: a service with adaptive batching."""

import base64
import os

import bentoml
from model import Model


@bentoml.service(workers=int(os.environ["WORKERS"]), traffic={"timeout": 60})
class Inference:
    """A worker process."""

    def __init__(self) -> None:
        self.model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))

    @bentoml.api(batchable=True, max_batch_size=int(os.environ["MAX_BATCH"]), max_latency_ms=60_000)
    def predict(self, contents: list[str]) -> list[str]:
        """Answer a batch of base64 strings in JSON."""
        answers = self.model([base64.b64decode(content) for content in contents])
        return [base64.b64encode(answer).decode() for answer in answers]
