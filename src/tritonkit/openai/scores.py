"""Scores of texts: documents for a query, and labels of a text, by concurrent calls that the server may batch."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from tritonkit.openai.bodies import ClassifyBody, RerankBody
from tritonkit.openai.problems import Problem, within

if TYPE_CHECKING:
    from tritonkit.client import AsyncModel
    from tritonkit.client.reply import Reply
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["classify", "each_reply", "rerank", "score_of"]

_CONCURRENCY = 16
"""Most concurrent calls of one request."""
_SCORES = ("score", "scores")


async def each_reply(
    model: AsyncModel, items: Sequence[dict[str, Any]], timeout_s: float
) -> AsyncGenerator[Reply, None]:
    """The replies to these items, in their order.

    Raises:
        ClientError: a call failed; the others are cancelled.
        Problem: it takes too long.
    """
    replies = model.predict_many(items, concurrency=_CONCURRENCY, timeout_s=timeout_s)
    async with within(timeout_s), contextlib.aclosing(replies):
        async for reply in replies:
            yield reply


def score_of(signature: ModelSignature) -> str | None:
    """The output with one score of a text; None if there is no such output."""
    return next(
        (
            name
            for name in _SCORES
            if name in signature.outputs
            and signature.outputs[name].datatype == "FP32"
            and signature.outputs[name].dims[-1:] in ((1,), (-1,))
        ),
        None,
    )


async def rerank(model: AsyncModel, signature: ModelSignature, body: RerankBody, timeout_s: float) -> dict[str, Any]:
    """The documents by their score for the query, best first; equal ones in the order given.

    Raises:
        ClientError: a call failed.
        Problem: the model gives no single number for a pair, or is too slow.
    """
    output = score_of(signature)
    scores: list[float] = []
    tokens = 0
    pairs = [{"text": [body.query], "text_pair": [document]} for document in body.documents]
    async with contextlib.aclosing(each_reply(model, pairs, timeout_s)) as replies:
        async for reply in replies:
            values: list[float] = reply[output].ravel().tolist() if output else []
            if len(values) != 1 or not math.isfinite(values[0]):
                raise Problem(500, "the model gave no score for a document", code="model_failed")
            scores += values
            tokens += _tokens(reply)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "model": body.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": [
            {
                "index": index,
                **({"document": {"text": body.documents[index]}} if body.return_documents else {}),
                "relevance_score": scores[index],
            }
            for index in order
        ],
    }


async def classify(model: AsyncModel, body: ClassifyBody, timeout_s: float, created: int) -> dict[str, Any]:
    """The labels of each text with their scores, best first, as many as the model gives.

    Raises:
        ClientError: a call failed.
        Problem: the model is too slow.
    """
    data: list[dict[str, Any]] = []
    tokens = 0
    texts = [{"text": [text]} for text in body.input]
    async with contextlib.aclosing(each_reply(model, texts, timeout_s)) as replies:
        async for reply in replies:
            data.append({"index": len(data), **_labeled(reply)})
            tokens += _tokens(reply)
    return {
        "id": f"classify-{uuid.uuid4().hex}",
        "object": "list",
        "created": created,
        "model": body.model,
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
    }


def _labeled(reply: Reply) -> dict[str, Any]:
    labels = [label.decode("utf-8", "replace") for label in reply["label"].ravel()]
    scores = reply["score"].ravel().tolist()
    if "count" in reply.outputs:  # the rest fills up the batch
        count = int(reply["count"].ravel()[0])
        labels, scores = labels[:count], scores[:count]
    if len(labels) != len(scores) or not all(map(math.isfinite, scores)):
        raise Problem(500, "the model gave no score for a label", code="model_failed")
    return {
        "label": labels[0] if labels else None,
        "labels": labels,
        "probs": scores,
        "num_classes": len(labels),
    }


def _tokens(reply: Reply) -> int:
    return int(reply["prompt_tokens"].sum()) if "prompt_tokens" in reply.outputs else 0
