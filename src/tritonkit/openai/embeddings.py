"""Concurrent calls of a model that embeds texts, which its server may join into batches."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any

from tritonkit.openai.bodies import EmbeddingBody
from tritonkit.openai.problems import invalid
from tritonkit.openai.scores import each_reply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tritonkit.client import AsyncModel
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["embed", "encoded"]


async def embed(
    model: AsyncModel, signature: ModelSignature, body: EmbeddingBody, timeout_s: float, *, matryoshka: bool = False
) -> dict[str, Any]:
    """The answer to a request, one vector for each text, or list of tokens, in the order given.

    Args:
        model, signature, body: the model, its tensors, the request.
        timeout_s: seconds for all vectors.
        matryoshka: whether the beginning of a vector is a vector, too, so that `dimensions` may shorten it.

    Raises:
        ClientError: a call failed; the others are cancelled.
        Problem: the model does not take tokens, makes vectors of another size, or is too slow.
    """
    given_tokens = isinstance(body.input[0], list)
    _check_model(signature, body, given_tokens, matryoshka)
    items = [{"tokens": entry} if given_tokens else {"text": [entry]} for entry in body.input]
    made: list[dict[str, Any]] = []
    tokens = 0
    async with contextlib.aclosing(each_reply(model, items, timeout_s)) as replies:
        async for reply in replies:
            vector = _shortened(reply["embedding"].ravel(), body.dimensions, matryoshka)
            made.append({"object": "embedding", "index": len(made), "embedding": encoded(vector, body.encoding_format)})
            if "prompt_tokens" in reply.outputs:
                tokens += int(reply["prompt_tokens"].sum())
    if given_tokens and not tokens:
        tokens = sum(map(len, body.input))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": made, "model": body.model, "usage": usage}


def _shortened(vector: NDArray[np.float32], size: int | None, matryoshka: bool) -> NDArray[np.float32]:
    """The first `size` numbers, scaled to the length that the whole vector had."""
    if size in (None, vector.size):
        return vector
    if not matryoshka or size > vector.size:  # of an open size
        raise invalid(f"dimensions: this vector has {vector.size}", "dimensions", "unsupported_parameter")
    cut = vector[:size]
    # A beginning of zeros has no direction, and stays as it is.
    whole, part = (float(one @ one) ** 0.5 for one in (vector, cut))
    return cut * (whole / part) if part else cut


def _check_model(signature: ModelSignature, body: EmbeddingBody, given_tokens: bool, matryoshka: bool) -> None:
    name = "tokens" if given_tokens else "text"
    if name not in signature.inputs:
        other = "texts, not tokens" if given_tokens else "tokens, not texts"
        raise invalid(f"input: the model {body.model!r} takes {other}", "input", "unsupported_parameter")
    size = signature.outputs["embedding"].dims[-1:]
    shorter = matryoshka and body.dimensions is not None and body.dimensions <= size[0]
    if body.dimensions is not None and size not in ((body.dimensions,), (-1,)) and not shorter:
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
