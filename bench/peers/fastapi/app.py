"""FastAPI over ONNX Runtime, as its documentation shows: each request is one run, in the thread pool."""

import os

import numpy as np
from fastapi import FastAPI, Request, Response
from model import Model
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

app = FastAPI()
model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))
in_pool = os.environ["IN_POOL"] == "1"


@app.post("/predict")
async def predict(request: Request) -> Response:
    """Bytes in, bytes out."""
    bodies = [await request.body()]
    [answer] = await run_in_threadpool(model, bodies) if in_pool else model(bodies)
    return Response(answer, media_type="application/octet-stream")


class Pixels(BaseModel):
    """The body of a JSON request."""

    pixels: list[list[list[float]]]


@app.post("/json")
async def predict_json(item: Pixels) -> dict[str, list[float]]:
    """The same with JSON in both directions."""
    [answer] = model([np.array(item.pixels, np.float32).tobytes()])
    return {"logits": np.frombuffer(answer, np.float32).tolist()}
