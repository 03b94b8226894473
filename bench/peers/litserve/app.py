"""LitServe: an API whose workers get batches."""

import base64
import os

import litserve
from fastapi import Response
from model import Model


class Inference(litserve.LitAPI):
    """A worker process."""

    def setup(self, device: str) -> None:
        """Load the model."""
        self.model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))

    def decode_request(self, request: dict[str, str]) -> bytes:
        """JSON, as its documentation has binary data."""
        return base64.b64decode(request["content"])

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        """Requests are passed on unchanged."""
        return inputs

    def predict(self, bodies: list[bytes]) -> list[bytes]:
        """A batch."""
        return self.model(bodies)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        """Answers are passed on unchanged."""
        return output

    def encode_response(self, output: bytes) -> Response:
        """Bytes."""
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    api = Inference(max_batch_size=int(os.environ["MAX_BATCH"]), batch_timeout=int(os.environ["MAX_DELAY_MS"]) / 1000)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=int(os.environ["WORKERS"]), fast_queue=True)
    server.run(host="127.0.0.1", port=int(os.environ["PORT"]), generate_client_file=False)
