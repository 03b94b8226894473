"""Recipes of the pages about texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.families.checkpoints import TEXTS, sentence_files, text_checkpoint
from bench.families.recipes import Answer, Item, Recipe, from_floats, from_json, items_of

if TYPE_CHECKING:
    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["RECIPES", "spans_of"]

MANY = TEXTS[:-1] * 8
SHORT = tuple(text for text in TEXTS[:-1] if len(text) < 200)
"""Texts that no page cuts, which transformers' pipeline would not do."""
DISTILBERT: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "hidden_dim": 3072,
    "spread": 2,
}
MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "spread": 2,
}
BGE = MINILM | {"num_hidden_layers": 12}


def mood(place: Kitchen, small: bool) -> list[Item]:
    """A classifier of two labels."""
    labels = {"id2label": {0: "NEGATIVE", 1: "POSITIVE"}, "label2id": {"NEGATIVE": 0, "POSITIVE": 1}}
    sizes = {} if small else DISTILBERT
    text_checkpoint(place.folder / "sst2", "distilbert", "ForSequenceClassification", **labels, **sizes)
    return items_of("text", MANY)


def moods(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """transformers' probabilities, best label first."""
    from transformers import pipeline

    reference = pipeline("text-classification", model=str(folder / "sst2"), top_k=None)
    entries = [reference([item["text"]], truncation=True, max_length=64)[0] for item in items]
    return [Answer([e["score"] for e in entry], [e["label"] for e in entry]) for entry in entries]


def labels(reply: Reply) -> Answer:
    """Labels and their probabilities."""
    return Answer(reply["score"].ravel(), [label.decode() for label in reply["label"].ravel()])


def reranker(place: Kitchen, small: bool) -> list[Item]:
    """A cross-encoder, and each pair of texts."""
    sizes = {} if small else MINILM
    text_checkpoint(place.folder / "ms-marco", "bert", "ForSequenceClassification", num_labels=1, **sizes)
    return [{"text": one, "text_pair": other} for one in TEXTS[:-1] for other in TEXTS[:-1]]


def relevances(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """sentence-transformers' scores."""
    from sentence_transformers import CrossEncoder

    reference = CrossEncoder(str(folder / "ms-marco"), device="cpu", local_files_only=True, max_length=64)
    return [Answer([score]) for score in reference.predict([(item["text"], item["text_pair"]) for item in items])]


def embedder(place: Kitchen, small: bool) -> list[Item]:
    """A sentence encoder that takes the first token's vector."""
    folder = text_checkpoint(place.folder / "bge", "bert", "Model", **({} if small else BGE))
    sentence_files(folder, "cls", 32 if small else 384)
    return items_of("text", MANY)


def embeddings(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """sentence-transformers' vectors."""
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(folder / "bge"), device="cpu", local_files_only=True)
    return [Answer(vector) for vector in reference.encode([item["text"] for item in items])]


def towers(place: Kitchen, small: bool) -> list[Item]:
    """The same encoder, and pairs of a query and a candidate."""
    embedder(place, small)
    return [{"query": one, "candidate": other} for one in TEXTS[:-1] for other in TEXTS[:-1]]


def cosines(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """sentence-transformers' similarities."""
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(folder / "bge"), device="cpu", local_files_only=True)
    vectors = {text: reference.encode(text) for text in TEXTS}
    return [Answer([vectors[str(item["query"])] @ vectors[str(item["candidate"])]]) for item in items]


def tagger(place: Kitchen, small: bool) -> list[Item]:
    """A token classifier of people and places."""
    names = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    sizes = {} if small else DISTILBERT
    text_checkpoint(place.folder / "ner", "distilbert", "ForTokenClassification", **labels, **sizes)
    return items_of("text", SHORT * 8)


def entities(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """transformers' entities: label, first and last character."""
    from transformers import pipeline

    reference = pipeline("token-classification", model=str(folder / "ner"), aggregation_strategy="simple")
    found = [reference(item["text"]) for item in items]
    return [
        Answer([e["score"] for e in entries], [(e["entity_group"], e["start"], e["end"]) for e in entries])
        for entries in found
    ]


def tagged(reply: Reply) -> Answer:
    """The entities of a reply."""
    count = reply["count"].item()
    kinds, spans = reply["entity"][0, :count], reply["span"][0, :count].tolist()
    names = [(kind.decode(), *span) for kind, span in zip(kinds, spans, strict=True)]
    return Answer(reply["score"][0, :count], names)


def reader(place: Kitchen, small: bool) -> list[Item]:
    """A network that finds answers, with questions and contexts."""
    sizes = {} if small else DISTILBERT
    text_checkpoint(place.folder / "squad", "distilbert", "ForQuestionAnswering", **sizes)
    return [{"text": one, "text_pair": other} for one in TEXTS[:2] for other in SHORT * 8]


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


def answers(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The likeliest span of whole words."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "squad")
    network = AutoModelForQuestionAnswering.from_pretrained(folder / "squad").eval()
    best = []
    for item in items:
        encoded = tokenizer(item["text"], item["text_pair"], return_offsets_mapping=True)
        found = spans_of(network, encoded, str(item["text_pair"]))
        text = max(found, key=found.__getitem__)
        best.append(Answer([found[text]], [text]))
    return best


def scored(reply: Reply) -> Answer:
    """The score of a pair."""
    return Answer(reply["score"].ravel())


def embedded(reply: Reply) -> Answer:
    """The vector of a text."""
    return Answer(reply["embedding"].ravel())


def answered(reply: Reply) -> Answer:
    """The best answer and its score."""
    return Answer(reply["score"].ravel(), [answer.decode() for answer in reply["answer"].ravel()])


RECIPES = {
    "text-classifier": Recipe("mood", "sst2", "texts:Classifier", mood, moods, labels, from_json),
    "reranker": Recipe("reranker", "ms-marco", "texts:Reranker", reranker, relevances, scored, from_json),
    "embeddings": Recipe("bge", "bge", "texts:Embedder", embedder, embeddings, embedded, from_floats),
    "two-towers": Recipe("match", "bge", "texts:Matcher", towers, cosines, scored, from_json, spec="bge"),
    "entities": Recipe("names", "ner", "texts:Tagger", tagger, entities, tagged, from_json),
    "question-answering": Recipe("answers", "squad", "texts:Reader", reader, answers, answered, from_json),
}
