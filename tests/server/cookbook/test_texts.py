"""Pages about texts, with small random checkpoints of the kinds that the pages name."""

from __future__ import annotations

import numpy as np

from bench.families.kitchen import Kitchen, Page
from bench.families.texts import RECIPES, spans_of
from tests.server.cookbook.conftest import Answer, assert_equal, batches_of_one

CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def test_a_reranker(place: Kitchen, answers: Answer) -> None:
    """Scores are those of sentence-transformers' cross-encoder, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("reranker"))


def test_embeddings(place: Kitchen, answers: Answer) -> None:
    """Vectors are those of sentence-transformers, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("embeddings"))


def test_two_towers(place: Kitchen, answers: Answer) -> None:
    """Scores of two towers are the similarities of sentence-transformers, for 16 callers at the same time."""
    assert_equal(place, answers, Page.read("two-towers"))


def test_entities(place: Kitchen, answers: Answer) -> None:
    """Names, scores and characters are those of transformers' pipeline, for 16 callers at the same time."""
    recipe = RECIPES["entities"]
    assert_equal(place, answers, Page.read("entities"))
    items = recipe.prepare(place, True)[:8]
    found = 0
    for item, reply in zip(items, answers(place, "names", batches_of_one(items)), strict=True):
        count = reply["count"].item()
        words, spans = reply["word"][0, :count], reply["span"][0, :count].tolist()
        assert [word.decode() for word in words] == [item["text"][start:end] for start, end in spans]
        found += count
    assert found


def test_question_answering(place: Kitchen, answers: Answer) -> None:
    """Answers are the likeliest spans of whole words in transformers' network, for 16 callers at the same time."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    items = RECIPES["question-answering"].prepare(place, True)
    place.cook(Page.read("question-answering"))
    tokenizer = AutoTokenizer.from_pretrained(place.folder / "squad")
    network = AutoModelForQuestionAnswering.from_pretrained(place.folder / "squad").eval()
    for item, reply in zip(items, answers(place, "answers", batches_of_one(items)), strict=True):
        question, context = item["text"], item["text_pair"]
        expected = spans_of(network, tokenizer(question, context, return_offsets_mapping=True), context)
        answer = reply["answer"].item().decode()
        start, end = reply["span"][0, 0]
        assert answer == context[start:end] != ""
        # Answers of nearly the same score may change places.
        np.testing.assert_allclose(reply["score"].item(), [expected[answer], max(expected.values())], **CLOSE)
