"""mosec: workers behind its Rust front end, with dynamic batching."""

import os

from model import Model
from mosec import Server, Worker

BATCH, WAIT_MS = int(os.environ["MAX_BATCH"]), int(os.environ["MAX_DELAY_MS"])


class Inference(Worker):
    """A worker process."""

    def __init__(self) -> None:
        self.model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))

    def deserialize(self, data: bytes) -> bytes:
        """Pass the body on unchanged."""
        return data

    def serialize(self, data: bytes) -> bytes:
        """Pass the answer on unchanged."""
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        """A batch."""
        return self.model(data)


if __name__ == "__main__":
    server = Server()
    workers = int(os.environ["WORKERS"])
    server.append_worker(Inference, num=workers, max_batch_size=BATCH, max_wait_time=WAIT_MS)
    server.run()
