"""Ray Serve: a deployment whose replicas gather batches."""

import os
import signal

from model import Model
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

BATCH, WAIT_S = int(os.environ["MAX_BATCH"]), int(os.environ["MAX_DELAY_MS"]) / 1000


@serve.deployment(
    num_replicas=int(os.environ["WORKERS"]), max_ongoing_requests=4 * BATCH, ray_actor_options={"num_cpus": 0.5}
)
class Inference:
    """A replica."""

    def __init__(self) -> None:
        self.model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT_S)
    async def predict(self, bodies: list[bytes]) -> list[bytes]:
        """A batch."""
        return self.model(bodies)

    async def __call__(self, request: Request) -> Response:
        """Bytes in, bytes out."""
        answer = await self.predict(await request.body())
        return Response(answer, media_type="application/octet-stream")


if __name__ == "__main__":
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["PORT"])})
    serve.run(Inference.bind(), route_prefix="/predict")
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    serve.shutdown()
