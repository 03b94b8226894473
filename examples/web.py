"""A web handler: one asynchronous client for all requests, and an HTTP status for each way to fail.

tritonkit serve &
TRITON=127.0.0.1:8001 uvicorn --app-dir examples web:app
curl --data-binary @models/digits/examples/seven.png localhost:8000/digits
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tritonkit.client import Adaptive, AsyncClient, Limit
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError, InvalidInput, Overloaded, ServerUnavailable

STATUS: dict[type, int] = {
    InvalidInput: 422,  # refused before it was sent
    InferenceError: 400,  # the model could not read it
    Overloaded: 503,
    ServerUnavailable: 503,
    DeadlineExceeded: 504,
    ClientError: 500,
}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one client, and so its connection, while the program runs."""
    address = os.environ.get("TRITON", "127.0.0.1:8001")
    limit = Limit(in_flight=64, waiting=256)  # further requests are refused immediately
    async with AsyncClient(address, timeout_s=5.0, batching=Adaptive(), limit=limit) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(ClientError)
async def failed(request: Request, error: ClientError) -> JSONResponse:
    """Report an error with the status of its nearest kind."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return JSONResponse(error.to_dict(), status)


@app.post("/digits")
async def digits(request: Request) -> dict[str, Any]:
    """The three best labels for the picture in the body, and the size of its batch."""
    model = await request.app.state.client.model("digits")
    reply = await model.predict(image=await request.body())
    return {
        "labels": [label.decode() for label in reply["label"][0]],
        "scores": reply["score"][0].tolist(),
        "batch_size": reply.batch_size,
    }
