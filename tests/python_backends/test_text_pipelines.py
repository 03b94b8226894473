"""Classification, entities and answers, against transformers' own pipelines over small random networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from aggregate_tokens_core import STRATEGIES, Aggregator
from aggregate_tokens_core import Settings as EntitySettings
from best_span_core import Places, answers
from best_span_core import Settings as SpanSettings
from labels_core import Settings as LabelSettings
from labels_core import label_logits
from tokenize_core import Settings, TextTokenizer

from tests.python_backends.text_tokenizers import CORPUS, KINDS, ODD_TEXTS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # transformers' pipelines take long to import

LENGTH = 64
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "B-GEO-POL", "I-GEO-POL"]
UNKNOWN = {"wordpiece": "[UNK]", "byte_level": None, "sentencepiece": "<unk>"}
FIRST = {"wordpiece": "[CLS]", "byte_level": "<s>", "sentencepiece": "<s>"}
TEXTS = [*CORPUS, *ODD_TEXTS.values(), "Angela  Merkel's brown-fox in New York,Paris"]


class Reference(NamedTuple):
    """A tokenizer of one kind as our step has it, and as transformers has it."""

    kind: str
    path: Path
    own: Any

    def network(self, name: str, labels: list[str]) -> Any:
        """A random BERT whose answers differ from token to token."""
        import torch
        import transformers

        torch.manual_seed(len(labels))
        config = transformers.BertConfig(
            vocab_size=self.own.vocab_size + 8,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=LENGTH,
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
        )
        network = getattr(transformers, f"BertFor{name}")(config).eval()
        with torch.no_grad():
            for layer in (network.bert.embeddings.word_embeddings, list(network.children())[-1]):
                layer.weight.mul_(30)
        return network

    def outputs(self, network: Any, texts: list[Any], **settings: Any) -> tuple[Any, dict[str, np.ndarray]]:
        """The network's outputs for our tokens, and the tokens' places."""
        import torch

        tokenizer = TextTokenizer(self.path, Settings(LENGTH, (), offsets=True, token_type_ids=True, **settings))
        given = tokenizer.pad(tokenizer.encode(texts))
        names = ("input_ids", "attention_mask", "token_type_ids")
        with torch.no_grad():
            outputs = network(**{name: torch.from_numpy(given[name]) for name in names})
        return outputs, {name: given[name] for name in ("offsets", "sequence_ids", "word_ids")}


@pytest.fixture(scope="module", params=KINDS)
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Each kind of tokenizer."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    kind = request.param
    path = tmp_path_factory.mktemp(kind) / "tokenizer.json"
    KINDS[kind]().save(str(path))
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(path),
        unk_token=UNKNOWN[kind],
        cls_token=FIRST[kind],
        pad_token="[PAD]" if kind == "wordpiece" else "<pad>",
        model_max_length=LENGTH,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    return Reference(kind, path, own)


def pipeline(task: str, network: Any, reference: Reference, **options: Any) -> Any:
    """transformers' pipeline of a task."""
    import transformers

    return transformers.pipeline(task, model=network, tokenizer=reference.own, **options)


@pytest.mark.parametrize("function", ["softmax", "sigmoid", "none"])
def test_labels_equal_text_classification(reference: Reference, function: str) -> None:
    """All labels and scores of odd texts, best first."""
    names = [f"class {number} é" for number in range(5)]
    network = reference.network("SequenceClassification", names)
    outputs, _ = reference.outputs(network, TEXTS)
    labels = np.array([name.encode() for name in names], dtype=object)
    given = label_logits(outputs.logits.numpy(), labels, LabelSettings(5, function))
    classify = pipeline("text-classification", network, reference)
    for row, text in enumerate(TEXTS):
        expected = classify(text, top_k=None, function_to_apply=function, truncation=True)
        assert [name.decode() for name in given["label"][row]] == [one["label"] for one in expected]
        np.testing.assert_allclose(given["score"][row], [one["score"] for one in expected], rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_entities_equal_token_classification(reference: Reference, strategy: str) -> None:
    """Kind, score and characters of every entity, with words split into pieces, and texts that are cut."""
    network = reference.network("TokenClassification", TAGS)
    words = "tokenizer" if reference.kind == "wordpiece" else "spaces"
    labels = np.array([tag.encode() for tag in TAGS], dtype=object)
    aggregator = Aggregator(labels, EntitySettings(64, strategy, words))
    recognize = pipeline("token-classification", network, reference, aggregation_strategy=strategy)
    texts = [text for text in TEXTS if strategy == "simple" or words_agree(reference, text)]
    assert len(texts) >= 8
    outputs, places = reference.outputs(network, texts)
    several = 0
    for row, text in enumerate(texts):
        given = aggregator.entities(outputs.logits[row].numpy(), *(array[row] for array in places.values()), text)
        expected = recognize(text)
        assert [(one.label, one.start, one.stop) for one in given] == [
            (one["entity_group"], one["start"], one["end"]) for one in expected
        ]
        np.testing.assert_allclose([one.score for one in given], [one["score"] for one in expected], rtol=1e-4)
        several += len(given) > 1
    assert several >= 5


def words_agree(reference: Reference, text: str) -> bool:
    """Whether transformers sees the words that we see.

    It takes a token for a part of a word where normalization changed the token's length, and an unknown one for a word.
    """
    encoding = reference.own(text, truncation=True, return_offsets_mapping=True)
    if reference.kind == "wordpiece":
        tokens = zip(encoding.tokens(), encoding["offset_mapping"], strict=True)
        return all(token[0] == "[" or len(token.removeprefix("##")) == stop - start for token, (start, stop) in tokens)
    return reference.own.unk_token_id not in encoding["input_ids"] and not {"\t", "\n"} & set(text)


def ask(reference: Reference, network: Any, pair: tuple[str, str], settings: SpanSettings) -> list[Any]:
    """The answers of our steps to one question."""
    outputs, places = reference.outputs(network, [pair], pair=True, truncation="only_second")
    logits = (array[0].numpy() for array in (outputs.start_logits, outputs.end_logits))
    return answers(*logits, Places(*(array[0] for array in places.values())), pair[1], settings)


def their_answers(reference: Reference, network: Any, pair: tuple[str, str], settings: SpanSettings) -> list[Any]:
    """Question answering as transformers 4 has it: its choice of spans, which transformers 5 still has for documents,
    and its joining of equal answers."""
    import torch
    from transformers.pipelines.document_question_answering import select_starts_ends

    encoding = reference.own(*pair, truncation="only_second", max_length=LENGTH, return_tensors="pt")
    tokens = encoding.encodings[0]
    names = ("input_ids", "attention_mask", "token_type_ids")
    with torch.no_grad():
        outputs = network(**{name: encoding[name] for name in names})
    hidden = np.array([[number != 1 for number in tokens.sequence_ids]])
    hidden[encoding["input_ids"].numpy() == reference.own.cls_token_id] = False
    starts, ends, scores, none = select_starts_ends(
        outputs.start_logits.numpy(),
        outputs.end_logits.numpy(),
        hidden.astype(int),
        encoding["attention_mask"].numpy(),
        top_k=settings.k * 2 + 10 if settings.align else settings.k,
        handle_impossible_answer=settings.impossible,
        max_answer_len=settings.max_answer_length,
    )
    joined: list[list[Any]] = []
    for first, last, score in zip(starts.tolist(), ends.tolist(), scores.tolist(), strict=True):
        if not score:  # the special first token, where there are few others
            continue
        begin, stop = tokens.offsets[first][0], tokens.offsets[last][1]
        if settings.align:
            begin = tokens.word_to_chars(tokens.token_to_word(first), 1)[0]
            stop = tokens.word_to_chars(tokens.token_to_word(last), 1)[1]
        text = pair[1][begin:stop]
        same = next((answer for answer in joined if answer[0].lower() == text.lower()), None)
        if same:
            same[1] += score
        else:
            joined.append([text, score, begin, stop])
    if settings.impossible:
        joined.append(["", none, 0, 0])
    return sorted(joined, key=lambda answer: -answer[1])[: settings.k]


@pytest.mark.parametrize(
    "settings",
    [
        SpanSettings(),
        SpanSettings(align=False),
        SpanSettings(4, 3),
        SpanSettings(5, 15, True),
        SpanSettings(3, 1, True, False),
        SpanSettings(3, 200),
    ],
)
def test_answers_equal_question_answering(reference: Reference, settings: SpanSettings) -> None:
    """Text, score and characters of the k best answers, in contexts that are cut, too."""
    network = reference.network("QuestionAnswering", ["start", "end"])
    compared = 0
    for question in ("Who met Emmanuel Macron?", "fox 🦊", ""):
        for context in TEXTS:
            expected = their_answers(reference, network, (question, context), settings) if context.strip() else []
            if not expected or len({round(answer[1], 6) for answer in expected}) < len(expected):
                continue  # where scores are equal, its order is left to a partial sort
            given = ask(reference, network, (question, context), settings)
            assert [(one.text, one.start, one.stop) for one in given] == [(one[0], *one[2:]) for one in expected]
            np.testing.assert_allclose([one.score for one in given], [one[1] for one in expected], rtol=1e-4)
            compared += 1
    assert compared > 30
