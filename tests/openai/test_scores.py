"""Rerankers and classifiers behind the paths that Jina, Cohere and vLLM have for them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from tritonkit.client import AsyncClient
from tritonkit.openai.bodies import ClassifyBody, RerankBody, read_body
from tritonkit.openai.catalog import Catalog
from tritonkit.openai.problems import Problem
from tritonkit.openai.scores import classify, rerank
from tritonkit.testing import AsyncMemoryTransport, FakeModel

PAIR = {"text": ("BYTES", [1]), "text_pair": ("BYTES", [1])}


def length(inputs: Any) -> Any:
    """The score of a pair: the document's length, less that of the query."""
    lengths = [[len(text) for text in inputs[name].ravel()] for name in ("text_pair", "text")]
    return {"scores": np.subtract(*lengths).astype("f4")[:, None]}


def labeled(inputs: Any) -> Any:
    """Two labels, the second of which only fills up for short texts."""
    texts = inputs["text"].ravel()
    return {
        "label": [["größer", "kleiner" if len(text) > 2 else ""] for text in texts],
        "score": np.array([[0.75, 0.25]] * len(texts), "f4"),
        "count": np.array([[1 + (len(text) > 2)] for text in texts], "i4"),
    }


MODELS = {
    "reranker": FakeModel(PAIR, {"scores": ("FP32", [1])}, length),
    "broken": FakeModel(PAIR, {"score": ("FP32", [-1])}, lambda inputs: {"score": np.full((1, 1), np.nan, "f4")}),
    "several": FakeModel(PAIR, {"score": ("FP32", [-1])}, lambda inputs: {"score": np.zeros((1, 3), "f4")}),
    "classes": FakeModel(PAIR, {"score": ("FP32", [3])}, lambda inputs: {"score": np.zeros((1, 3), "f4")}),
    "no numbers": FakeModel(
        {"text": ("BYTES", [1])},
        {"label": ("BYTES", [1]), "score": ("FP32", [1])},
        lambda inputs: {
            "label": [["a"]] * len(inputs["text"]),
            "score": np.full((len(inputs["text"]), 1), np.nan, "f4"),
        },
    ),
    "classifier": FakeModel(
        {"text": ("BYTES", [1])}, {"label": ("BYTES", [2]), "score": ("FP32", [2]), "count": ("INT32", [1])}, labeled
    ),
}


def ranked(model: str, documents: Any, **more: Any) -> dict[str, Any]:
    """The answer to a request with the query `ab`."""
    body = read_body(RerankBody, json.dumps({"model": model, "query": "ab", "documents": documents} | more).encode())

    async def main() -> dict[str, Any]:
        async with AsyncClient(transport=AsyncMemoryTransport(MODELS)) as client:
            handle, signature = await Catalog(client).find(model, "rerank")
            return await rerank(handle, signature, body, 10.0)

    return asyncio.run(main())


def test_documents_come_by_their_score() -> None:
    """Equal ones keep their order; each has its place in the request."""
    made = ranked("reranker", ["abc", "x", {"text": "abcd"}, "xyz"])
    assert [(row["index"], row["relevance_score"]) for row in made["results"]] == [(2, 2), (0, 1), (3, 1), (1, -1)]
    assert [row["document"]["text"] for row in made["results"]] == ["abcd", "abc", "xyz", "x"]
    assert made["model"] == "reranker"


def test_the_best_documents_are_enough() -> None:
    """`top_n` above their number gives all; documents are left out on request."""
    best = ranked("reranker", ["abc", "x", "abcd"], top_n=2, return_documents=False)["results"]
    assert best == [{"index": 2, "relevance_score": 2}, {"index": 0, "relevance_score": 1}]
    assert len(ranked("reranker", ["abc"], top_n=9)["results"]) == 1


@pytest.mark.parametrize("model", ["broken", "several"])
def test_a_score_that_is_none_is_the_models_fault(model: str) -> None:
    """NaN, and several numbers for a pair."""
    with pytest.raises(Problem) as caught:
        ranked(model, ["x"])
    assert (caught.value.status, caught.value.code) == (500, "model_failed")


@pytest.mark.parametrize("model", ["classes", "classifier"])
def test_models_of_other_kinds_rank_nothing(model: str) -> None:
    """Several classes are no score, and a classifier reads no pairs."""
    with pytest.raises(Problem, match="cannot be used for this: rerank"):
        ranked(model, ["x"])


def classified(model: str, texts: list[str]) -> dict[str, Any]:
    """The answer to a request."""
    body = read_body(ClassifyBody, json.dumps({"model": model, "input": texts}).encode())

    async def main() -> dict[str, Any]:
        async with AsyncClient(transport=AsyncMemoryTransport(MODELS)) as client:
            handle, _ = await Catalog(client).find(model, "classify")
            return await classify(handle, body, 10.0, 7)

    return asyncio.run(main())


def test_a_label_without_a_score_is_the_models_fault() -> None:
    """JSON has no NaN."""
    with pytest.raises(Problem) as caught:
        classified("no numbers", ["x"])
    assert (caught.value.status, caught.value.code) == (500, "model_failed")


def test_texts_get_their_labels() -> None:
    """Labels come best first, without those that only fill up the batch."""
    made = classified("classifier", ["long", "ab"])
    assert made["created"] == 7
    assert made["data"] == [
        {"index": 0, "label": "größer", "labels": ["größer", "kleiner"], "probs": [0.75, 0.25], "num_classes": 2},
        {"index": 1, "label": "größer", "labels": ["größer"], "probs": [0.75], "num_classes": 1},
    ]


@pytest.mark.parametrize(
    ("kind", "more", "param"),
    [
        (RerankBody, {"documents": []}, "documents"),
        (RerankBody, {"documents": ["a"] * 2049}, "documents"),
        (RerankBody, {"documents": "a"}, "documents"),
        (RerankBody, {"documents": [{"text": "a", "id": 1}]}, "documents.0"),
        (RerankBody, {"documents": [3]}, "documents.0"),
        (RerankBody, {"query": ""}, "query"),
        (RerankBody, {"top_n": 0}, "top_n"),
        (RerankBody, {"max_chunks_per_doc": 1}, "max_chunks_per_doc"),
        (ClassifyBody, {"input": []}, "input"),
        (ClassifyBody, {"input": [5]}, "input.0"),
        (ClassifyBody, {"input": ["a"] * 2049}, "input"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_wrong_value_is_named(kind: Any, more: dict[str, Any], param: str) -> None:
    """The parameter, and its place in a list."""
    right = {"model": "m", "query": "q", "documents": ["d"]} if kind is RerankBody else {"model": "m", "input": "x"}
    with pytest.raises(Problem) as caught:
        read_body(kind, json.dumps(right | more).encode())
    assert (caught.value.status, caught.value.param) == (400, param)
