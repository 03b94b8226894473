"""Embeddings of texts and of tokens, by models that take one of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from tritonkit.client import AsyncClient
from tritonkit.openai.bodies import EmbeddingBody, read_body
from tritonkit.openai.catalog import Catalog
from tritonkit.openai.embeddings import embed
from tritonkit.openai.problems import Problem
from tritonkit.testing import AsyncMemoryTransport, FakeModel


def of_tokens(inputs: Any) -> Any:
    """A vector of the first token, the last, and how many there are."""
    tokens = inputs["tokens"]
    count = np.full(len(tokens), tokens.shape[1])
    return {"embedding": np.stack([tokens[:, 0], tokens[:, -1], count], 1).astype("f4")}


def of_texts(inputs: Any) -> Any:
    """A vector of a text's length."""
    return {"embedding": [[len(text), 0, 0] for text in inputs["text"].ravel()]}


MODELS = {
    "tokens": FakeModel({"tokens": ("INT64", [-1])}, {"embedding": ("FP32", [3])}, of_tokens),
    "texts": FakeModel({"text": ("BYTES", [1])}, {"embedding": ("FP32", [3])}, of_texts),
}


def embedded(model: str, value: Any, matryoshka: bool = False, **more: Any) -> dict[str, Any]:
    """The answer to a request."""
    body = read_body(EmbeddingBody, json.dumps({"model": model, "input": value} | more).encode())

    async def main() -> dict[str, Any]:
        async with AsyncClient(transport=AsyncMemoryTransport(MODELS)) as client:
            handle, signature = await Catalog(client).find(model, "embedding")
            return await embed(handle, signature, body, 10.0, matryoshka=matryoshka)

    return asyncio.run(main())


def test_lists_of_tokens_are_inputs_of_their_own() -> None:
    """In their order, whatever their lengths; and they are counted."""
    made = embedded("tokens", [[5, 6], [7], [8, 9, 10]], dimensions=3)
    assert [item["embedding"] for item in made["data"]] == [[5, 6, 2], [7, 7, 1], [8, 10, 3]]
    assert made["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert embedded("tokens", [5, 6])["data"][0]["embedding"] == [5, 6, 2]
    assert embedded("texts", "abc")["data"][0]["embedding"] == [3, 0, 0]


@pytest.mark.parametrize(
    ("model", "value", "more", "param"),
    [("texts", [5, 6], {}, "input"), ("tokens", "abc", {}, "input"), ("texts", "abc", {"dimensions": 2}, "dimensions")],
)
def test_what_a_model_does_not_take_is_refused(model: str, value: Any, more: dict[str, Any], param: str) -> None:
    """Tokens of nobody knows which tokenizer are not turned into texts, and vectors are not cut."""
    with pytest.raises(Problem) as caught:
        embedded(model, value, **more)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_vectors_of_a_matryoshka_model_are_cut() -> None:
    """The beginning keeps the length of the whole; the size of the model's own vectors is the largest."""
    (item,) = embedded("tokens", [3, 4], matryoshka=True, dimensions=2)["data"]
    length = (3**2 + 4**2 + 2**2) ** 0.5
    np.testing.assert_allclose(item["embedding"], [3 / 5 * length, 4 / 5 * length], rtol=1e-6)
    assert embedded("tokens", [3, 4], matryoshka=True, dimensions=3)["data"][0]["embedding"] == [3, 4, 2]
    assert embedded("tokens", [0, 4], matryoshka=True, dimensions=1)["data"][0]["embedding"] == [0]
    with pytest.raises(Problem, match="have 3"):
        embedded("tokens", [3, 4], matryoshka=True, dimensions=4)
