"""Pages about texts, with small random checkpoints of the kinds that the pages name."""

from __future__ import annotations

import numpy as np

from tests.repository.scaffold.checkpoints import TEXTS, sentence_files, text_checkpoint
from tests.server.cookbook.conftest import Answer
from tests.server.kitchen import Kitchen, Page

MANY = TEXTS[:-1] * 8
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def test_a_text_classifier(place: Kitchen, answers: Answer) -> None:
    """Labels and probabilities are those of transformers' pipeline, for 16 callers at the same time."""
    from transformers import pipeline

    labels = {"id2label": {0: "NEGATIVE", 1: "POSITIVE"}, "label2id": {"NEGATIVE": 0, "POSITIVE": 1}}
    folder = text_checkpoint(place.folder / "sst2", "distilbert", "ForSequenceClassification", **labels)
    place.cook(Page.read("text-classifier"))
    reference = pipeline("text-classification", model=str(folder), top_k=None)
    replies = answers(place, "mood", [{"text": [text]} for text in MANY])
    for text, reply in zip(MANY, replies, strict=True):
        [expected] = reference([text], truncation=True, max_length=64)
        assert [label.decode() for label in reply["label"].ravel()] == [entry["label"] for entry in expected]
        np.testing.assert_allclose(reply["score"].ravel(), [entry["score"] for entry in expected], **CLOSE)


def test_a_reranker(place: Kitchen, answers: Answer) -> None:
    """Scores are those of sentence-transformers' cross-encoder, for 16 callers at the same time."""
    from sentence_transformers import CrossEncoder

    folder = text_checkpoint(place.folder / "ms-marco", "bert", "ForSequenceClassification", num_labels=1)
    place.cook(Page.read("reranker"))
    reference = CrossEncoder(str(folder), device="cpu", local_files_only=True, max_length=64)
    pairs = [(one, other) for one in TEXTS[:-1] for other in TEXTS[:-1]]
    replies = answers(place, "reranker", [{"text": [one], "text_pair": [other]} for one, other in pairs])
    scores = [reply["score"].item() for reply in replies]
    np.testing.assert_allclose(scores, reference.predict(pairs), **CLOSE)


def test_embeddings(place: Kitchen, answers: Answer) -> None:
    """Vectors are those of sentence-transformers, for 16 callers at the same time."""
    from sentence_transformers import SentenceTransformer

    folder = text_checkpoint(place.folder / "bge", "bert", "Model")
    sentence_files(folder, "cls", 32)
    place.cook(Page.read("embeddings"))
    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    replies = answers(place, "bge", [{"text": [text]} for text in MANY])
    vectors = np.concatenate([reply["embedding"] for reply in replies])
    np.testing.assert_allclose(vectors, reference.encode(list(MANY)), **CLOSE)
