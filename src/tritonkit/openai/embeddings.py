"""Concurrent calls of a model that embeds texts, which its server may join into batches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any

from tritonkit.openai.bodies import EmbeddingBody
from tritonkit.openai.problems import Problem, invalid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tritonkit.client import AsyncModel
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["embed", "encoded"]

_AT_ONCE = 16
"""Most concurrent calls of one request."""


async def embed(model: AsyncModel, signature: ModelSignature, body: EmbeddingBody, timeout_s: float) -> dict[str, Any]:
    """The answer to a request, one vector for each text, or list of tokens, in the order given.

    Raises:
        ClientError: a call failed; the others are cancelled.
        Problem: the model does not take tokens, makes vectors of another size, or is too slow.
    """
    given_tokens = isinstance(body.input[0], list)
    _check_model(signature, body, given_tokens)
    items = [{"tokens": entry} if given_tokens else {"text": [entry]} for entry in body.input]
    made: list[dict[str, Any]] = []
    tokens = 0
    replies = model.predict_many(items, concurrency=_AT_ONCE, timeout_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s), contextlib.aclosing(replies):
            async for reply in replies:
                if body.dimensions not in (None, reply["embedding"].size):  # of an open size
                    raise invalid(
                        f"dimensions: this vector has {reply['embedding'].size}", "dimensions", "unsupported_parameter"
                    )
                vector = encoded(reply["embedding"].ravel(), body.encoding_format)
                made.append({"object": "embedding", "index": len(made), "embedding": vector})
                if "prompt_tokens" in reply.outputs:
                    tokens += int(reply["prompt_tokens"].sum())
    except TimeoutError:
        raise Problem(504, "no answer within the time allowed", kind="timeout", code="deadline_exceeded") from None
    if given_tokens and not tokens:
        tokens = sum(map(len, body.input))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": made, "model": body.model, "usage": usage}


def _check_model(signature: ModelSignature, body: EmbeddingBody, given_tokens: bool) -> None:
    name = "tokens" if given_tokens else "text"
    if name not in signature.inputs:
        other = "texts, not tokens" if given_tokens else "tokens, not texts"
        raise invalid(f"input: the model {body.model!r} takes {other}", "input", "unsupported_parameter")
    size = signature.outputs["embedding"].dims[-1:]
    if body.dimensions is not None and size not in ((body.dimensions,), (-1,)):
        raise invalid(
            f"dimensions: the vectors of the model {body.model!r} have {', '.join(map(str, size))}",
            "dimensions",
            "unsupported_parameter",
        )


def encoded(vector: NDArray[np.float32], form: str) -> list[float] | str:
    """A vector, float32 [n], as numbers or as base64 of its bytes, the lowest first."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    numbers: list[float] = vector.tolist()
    return numbers
