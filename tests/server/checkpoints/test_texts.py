"""Text models of `tritonkit new --hf`: their answers are those of transformers and sentence-transformers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.families.checkpoints import TEXT_FAMILIES, TEXTS, sentence_files, text_checkpoint
from tests.server.checkpoints.serving import served
from tritonkit import Client

CLASSIFIERS = ("bert", "roberta", "distilbert", "deberta", "deberta-v2", "modernbert")
PAIRS = ("bert", "roberta")
EMBEDDERS = {"mpnet": "mean", "xlm-roberta": "cls", "electra": "max", "albert": "sqrt"}
LABELS = {0: "no", 1: "may be", 2: "yes, é"}
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def ask(client: Client, model: str, **inputs: list[str]) -> list[Any]:
    """One call for each item, from several callers at a time, so that the server joins them."""
    called = client.model(model)
    items = [dict(zip(inputs, values, strict=True)) for values in zip(*inputs.values(), strict=True)]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda item: called.predict(**item), items))


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_classes_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    """Labels in their order, with the probabilities of transformers."""
    from transformers import pipeline

    labels = {"id2label": LABELS, "label2id": {label: number for number, label in LABELS.items()}}
    folder = text_checkpoint(tmp_path / "checkpoint", family, "ForSequenceClassification", **labels)
    reference = pipeline("text-classification", model=str(folder), top_k=None)
    with served(tmp_path, {"classes": folder}) as client:
        replies = ask(client, "classes", text=list(TEXTS))
    for text, reply in zip(TEXTS, replies, strict=True):
        [expected] = reference([text], truncation=True, max_length=64)
        assert [label.decode() for label in reply["label"][0]] == [entry["label"] for entry in expected]
        np.testing.assert_allclose(reply["score"][0], [entry["score"] for entry in expected], **CLOSE)


@pytest.mark.parametrize("family", PAIRS)
def test_scores_of_pairs_are_those_of_a_cross_encoder(tmp_path: Path, family: str) -> None:
    """A network with one label takes pairs, and gives the sigmoid of its logit."""
    from sentence_transformers import CrossEncoder

    folder = text_checkpoint(tmp_path / "checkpoint", family, "ForSequenceClassification", num_labels=1)
    reference = CrossEncoder(str(folder), device="cpu", local_files_only=True, max_length=64)
    # Without the empty text, which transformers takes for no second text.
    pairs = list(zip(TEXTS[:-1], TEXTS[4::-1], strict=True))
    with served(tmp_path, {"pairs": folder}) as client:
        replies = ask(client, "pairs", text=[a for a, _ in pairs], text_pair=[b for _, b in pairs])
    np.testing.assert_allclose([reply["score"][0, 0] for reply in replies], reference.predict(pairs), **CLOSE)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_entities_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    """Names, scores, characters and words, as transformers aggregates them."""
    from transformers import pipeline

    names = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    folder = text_checkpoint(tmp_path / "checkpoint", family, "ForTokenClassification", **labels)
    texts = [text for text in TEXTS if text and len(text) < 200]
    with served(tmp_path, {"entities": folder}) as client:
        replies = ask(client, "entities", text=texts)
    reference = pipeline("token-classification", model=str(folder), aggregation_strategy="simple")
    for text, reply in zip(texts, replies, strict=True):
        expected = reference(text)
        count = int(reply["count"][0, 0])
        assert [name.decode() for name in reply["entity"][0][:count]] == [entry["entity_group"] for entry in expected]
        assert reply["span"][0][:count].tolist() == [[entry["start"], entry["end"]] for entry in expected]
        np.testing.assert_allclose(reply["score"][0][:count], [entry["score"] for entry in expected], **CLOSE)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_answers_are_where_the_network_says(tmp_path: Path, family: str) -> None:
    """The span has the largest product of the probabilities of its start and its end in the context."""
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    folder = text_checkpoint(tmp_path / "checkpoint", family, "ForQuestionAnswering")
    contexts = [text for text in TEXTS if len(text.split()) > 3 and len(text) < 200]
    with served(tmp_path, {"answers": folder}) as client:
        replies = ask(client, "answers", text=["Where is it?"] * len(contexts), text_pair=contexts)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    for context, reply in zip(contexts, replies, strict=True):
        encoded = tokenizer("Where is it?", context, return_tensors="pt", return_offsets_mapping=True)
        places = encoded.pop("offset_mapping")[0].tolist()
        inside = np.array([number == 1 for number in encoded.sequence_ids(0)])
        with torch.no_grad():
            output = network(**encoded)
        starts, ends = (logits[0].numpy() for logits in (output.start_logits, output.end_logits))
        starts, ends = (np.where(inside, np.exp(x - x[inside].max()), 0) for x in (starts, ends))
        product = np.triu(np.outer(starts, ends)) - np.triu(np.outer(starts, ends), 15)
        first, last = np.unravel_index(product.argmax(), product.shape)
        start, end = reply["span"][0, 0]
        assert start <= places[first][0]  # whole words: the span may begin earlier and end later
        assert end >= places[last][1]
        assert reply["answer"][0, 0].decode() == context[start:end]


@pytest.mark.parametrize("family", EMBEDDERS)
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, family: str) -> None:
    """Pooling, length and truncation follow the checkpoint's files."""
    from sentence_transformers import SentenceTransformer

    folder = text_checkpoint(tmp_path / "checkpoint", family, "Model")
    sentence_files(folder, EMBEDDERS[family], 32, normalize=family != "albert")
    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    with served(tmp_path, {"vectors": folder}) as client:
        replies = ask(client, "vectors", text=list(TEXTS))
    for text, reply in zip(TEXTS, replies, strict=True):
        np.testing.assert_allclose(reply["embedding"][0], reference.encode(text), **CLOSE)


def test_every_family_is_asked() -> None:
    """No family of the table is left out here."""
    assert {*CLASSIFIERS, *EMBEDDERS} == set(TEXT_FAMILIES)
