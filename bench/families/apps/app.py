"""FastAPI over ONNX Runtime, as its documentation shows: each request is one run, in the thread pool."""

import os
from importlib import import_module

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

app = FastAPI()
module, name = os.environ["APP"].split(":")
model = getattr(import_module(module), name)(os.environ["FOLDER"], os.environ["NETWORK"], int(os.environ["THREADS"]))
in_pool = os.environ["IN_POOL"] == "1"


@app.post("/predict")
async def predict(request: Request) -> Response:
    """Bytes in, bytes out."""
    body = await request.body()
    answer = await run_in_threadpool(model, body) if in_pool else model(body)
    return Response(answer, media_type="application/octet-stream")
