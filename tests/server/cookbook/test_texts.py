"""Pages about texts, with small random checkpoints of the kinds that the pages name."""

from __future__ import annotations

from typing import Any

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


def test_entities(place: Kitchen, answers: Answer) -> None:
    """Names, scores and characters are those of transformers' pipeline, for 16 callers at the same time."""
    from transformers import pipeline

    names = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    folder = text_checkpoint(place.folder / "ner", "distilbert", "ForTokenClassification", **labels)
    place.cook(Page.read("entities"))
    texts = [text for text in MANY if len(text) < 200]  # longer ones are cut, which the pipeline does not do
    reference = pipeline("token-classification", model=str(folder), aggregation_strategy="simple")
    replies = answers(place, "names", [{"text": [text]} for text in texts])
    found = 0
    for text, reply in zip(texts, replies, strict=True):
        expected = reference(text)
        count = reply["count"].item()
        spans = reply["span"][0, :count].tolist()
        assert [name.decode() for name in reply["entity"][0, :count]] == [entry["entity_group"] for entry in expected]
        assert spans == [[entry["start"], entry["end"]] for entry in expected]
        assert [word.decode() for word in reply["word"][0, :count]] == [text[start:end] for start, end in spans]
        np.testing.assert_allclose(reply["score"][0, :count], [entry["score"] for entry in expected], **CLOSE)
        found += count
    assert found


def spans_of(network: Any, encoded: Any, context: str) -> dict[str, float]:
    """The answers that a network finds likely, each with the sum of its scores, by a plain loop over all spans.

    transformers 5 has no pipeline for this task; until then its pipeline read the network in this way.
    """
    import torch

    with torch.inference_mode():
        output = network(**{name: torch.tensor([encoded[name]]) for name in ("input_ids", "attention_mask")})
    inside = [place for place, number in enumerate(encoded.sequence_ids()) if number == 1]
    read = [0, *inside]
    starts, ends = (
        dict(zip(read, logits[0, read].softmax(0).tolist(), strict=True))
        for logits in (output.start_logits, output.end_logits)
    )
    spans = [(starts[one] * ends[other], one, other) for one in inside for other in inside if one <= other < one + 15]
    words = encoded.word_ids()
    answers: dict[str, float] = {}
    for score, one, other in sorted(spans, reverse=True)[:12]:
        first = min(place for place in inside if words[place] == words[one])
        last = max(place for place in inside if words[place] == words[other])
        text = context[encoded["offset_mapping"][first][0] : encoded["offset_mapping"][last][1]]
        answers[text] = answers.get(text, 0.0) + score
    return answers


def test_question_answering(place: Kitchen, answers: Answer) -> None:
    """Answers are the likeliest spans of whole words in transformers' network, for 16 callers at the same time."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    folder = text_checkpoint(place.folder / "squad", "distilbert", "ForQuestionAnswering")
    place.cook(Page.read("question-answering"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    pairs = [(one, other) for one in TEXTS[:2] for other in MANY if len(other) < 200]
    replies = answers(place, "answers", [{"text": [one], "text_pair": [other]} for one, other in pairs])
    for (question, context), reply in zip(pairs, replies, strict=True):
        expected = spans_of(network, tokenizer(question, context, return_offsets_mapping=True), context)
        answer = reply["answer"].item().decode()
        start, end = reply["span"][0, 0]
        assert answer == context[start:end] != ""
        # Answers of nearly the same score may change places.
        np.testing.assert_allclose(reply["score"].item(), [expected[answer], max(expected.values())], **CLOSE)
