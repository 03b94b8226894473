"""aggregate_tokens and best_span without Triton, on tokens that are written here."""

from __future__ import annotations

from typing import Any

import aggregate_tokens_core
import best_span_core
import numpy as np
import pytest
from aggregate_tokens_core import Aggregator, Entity, check_tokens
from best_span_core import Answer, Places, answers, check_span_logits
from step_texts import check_places, decode_texts

TAGS = ("O", "B-PER", "I-PER", "I-LOC")
TEXT = "𝔄nn Lee's 🦊 e\u0301lan"
# Token: its characters, its word, and the tag that it has for certain.
TOKENS = [(0, 1, 0), (1, 3, 0), (4, 7, 1), (7, 8, 2), (8, 9, 3), (10, 11, 4), (12, 14, 5), (14, 17, 5)]


def logits_of(*tags: tuple[str, float]) -> np.ndarray:
    """Logits of tokens, each with one tag of a given probability."""
    rows = np.full((len(tags), len(TAGS)), 0.0)
    for row, (tag, probability) in zip(rows, tags, strict=True):
        row[:] = np.log((1 - probability) / (len(TAGS) - 1))
        row[TAGS.index(tag)] = np.log(probability)
    return rows.astype(np.float32)


def join(strategy: str, *tags: tuple[str, float], words: str = "tokenizer") -> list[Entity]:
    """The entities of TEXT's tokens, between two special tokens and before padding, which have NaN."""
    labels = np.array([tag.encode() for tag in TAGS], dtype=object)
    aggregator = Aggregator(labels, aggregate_tokens_core.Settings(64, strategy, words))
    logits = np.full((len(TOKENS) + 4, len(TAGS)), np.nan, np.float32)
    logits[1 : len(TOKENS) + 1] = logits_of(*tags)
    offsets = np.zeros((len(logits), 2), np.int32)
    ids, numbers = np.full((2, len(logits)), -1, np.int32)
    for row, (start, stop, word) in enumerate(TOKENS, 1):
        offsets[row], ids[row], numbers[row] = (start, stop), 0, word
    check_tokens(logits[None], ids[None], len(TAGS))
    return aggregator.entities(logits, offsets, ids, numbers, TEXT)


def test_simple_joins_tokens_of_one_label() -> None:
    """B- begins another entity, also next to one of its kind; a part of a word may have another label."""
    tags = [("B-PER", 0.9), ("I-PER", 0.7), ("B-PER", 0.8), ("O", 0.9), ("I-LOC", 0.6), ("O", 1 - 1e-6)]
    given = join("simple", *tags, ("I-LOC", 0.9), ("I-PER", 0.5))
    assert [(one.label, TEXT[one.start : one.stop]) for one in given] == [
        ("PER", "𝔄nn"),
        ("PER", "Lee"),
        ("LOC", "s"),
        ("LOC", "e\u0301"),
        ("PER", "lan"),
    ]
    np.testing.assert_allclose([one.score for one in given], [0.8, 0.8, 0.6, 0.9, 0.5], rtol=1e-5)


@pytest.mark.parametrize(
    ("strategy", "label", "score"),
    [("first", "LOC", 0.6), ("max", "PER", 0.8), ("average", "PER", (0.4 / 3 + 0.8) / 2)],
)
def test_a_word_has_one_label(strategy: str, label: str, score: float) -> None:
    """The label of its first token, its surest token, or the mean; combining marks do not split it."""
    outside = [("O", 0.9)] * 6
    [one] = join(strategy, *outside, ("I-LOC", 0.6), ("I-PER", 0.8))
    assert (one.label, one.start, one.stop) == (label, 12, 17)
    assert one.score == pytest.approx(score, rel=1e-5)


def test_words_between_spaces() -> None:
    """Pieces without a space between them are one word, whatever the tokenizer says."""
    tags = [("O", 0.9), ("O", 0.9), ("B-PER", 0.9), ("O", 0.9), ("O", 0.9), ("O", 0.9), ("O", 0.9), ("O", 0.9)]
    assert [(one.start, one.stop) for one in join("first", *tags)] == [(4, 7)]
    assert [(one.start, one.stop) for one in join("first", *tags, words="spaces")] == [(4, 9)]


@pytest.mark.parametrize("strategy", aggregate_tokens_core.STRATEGIES)
def test_texts_without_tokens_have_no_entities(strategy: str) -> None:
    """Special tokens and padding alone give none."""
    aggregator = Aggregator(np.array([b"O"], dtype=object), aggregate_tokens_core.Settings(64, strategy))
    ids = np.full(3, -1, np.int32)
    assert aggregator.entities(np.zeros((3, 1), np.float32), np.zeros((3, 2), np.int32), ids, ids, "") == []


def test_entities_are_padded_to_their_largest_number() -> None:
    """The rest is empty, and `count` says how many a text has, also where they are more."""
    batch = [
        [Entity("PER", 0.5, 0, 1), Entity("LOC", 0.25, 2, 4), Entity("LOC", 1.0, 0, 4)],
        [],
        [Entity("É", 1.0, 1, 2)],
    ]
    given = aggregate_tokens_core.padded(batch, ["a é!", "", "x🦊"], 2)
    assert given["entity"].tolist() == [[b"PER", b"LOC"], [b"", b""], ["É".encode(), b""]]
    assert given["word"].tolist() == [[b"a", "é!".encode()], [b"", b""], ["🦊".encode(), b""]]
    assert given["span"].tolist() == [[[0, 1], [2, 4]], [[0, 0], [0, 0]], [[1, 2], [0, 0]]]
    assert given["score"].tolist() == [[0.5, 0.25], [0, 0], [1, 0]]
    assert given["count"].tolist() == [[3], [0], [1]]


def test_nan_of_a_token_of_the_text_is_refused() -> None:
    """Item and token are named; padding may be anything."""
    logits = np.zeros((2, 4, 3), np.float32)
    ids = np.array([[-1, 0, 0, -1]] * 2)
    logits[:, 3] = np.nan
    check_tokens(logits, ids, 3)
    logits[1, 2, 0] = np.nan
    with pytest.raises(ValueError, match="item 1, token 2: the largest logit is nan"):
        check_tokens(logits, ids, 3)
    with pytest.raises(ValueError, match="found 3 logits, wanted 4, one per label"):
        check_tokens(logits, ids, 4)


# Answers ---------------------------------------------------------------------------------------

CONTEXT = "Ann Lee met 🦊 Bo, ann."
WORDS = [(0, 3, 0), (4, 6, 1), (6, 7, 1), (8, 11, 2), (12, 13, 3), (14, 16, 4), (16, 17, 5), (18, 21, 6), (21, 22, 7)]


def find(start: dict[int, float], end: dict[int, float], settings: best_span_core.Settings) -> list[Answer]:
    """Answers in CONTEXT, whose tokens come after [CLS], two of a question, and [SEP]; the others have the logit 0."""
    first = 4
    length = first + len(WORDS) + 2
    offsets = np.zeros((length, 2), np.int32)
    ids, numbers = np.full((2, length), -1, np.int32)
    ids[1:3], numbers[1:3], offsets[1:3] = 0, [0, 1], [[0, 3], [4, 6]]
    for row, (begin, stop, word) in enumerate(WORDS, first):
        offsets[row], ids[row], numbers[row] = (begin, stop), 1, word
    logits = np.zeros((2, length), np.float32)
    logits[:, 1:3] = 50  # the question is no answer
    logits[:, length - 2 :] = np.nan  # nor is padding
    for row, given in zip(logits, (start, end), strict=True):
        for token, value in given.items():
            row[token + first if token >= 0 else 0] = value
    check_span_logits(logits, np.stack([ids, ids]))
    return answers(logits[0], logits[1], Places(offsets, ids, numbers), CONTEXT, settings)


def test_the_best_answer_has_whole_words() -> None:
    """A piece of a word stands for the word, unless `align` is off."""
    [one] = find({2: 20}, {3: 20}, best_span_core.Settings())
    assert (one.text, one.start, one.stop) == ("Lee met", 4, 11)
    assert one.score == pytest.approx(1, abs=1e-6)
    [one] = find({2: 20}, {3: 20}, best_span_core.Settings(align=False))
    assert (one.text, one.start, one.stop) == ("e met", 6, 11)


def test_equal_answers_are_joined() -> None:
    """Upper and lower case count as equal; the first place stays, and scores add up."""
    both = {0: 20.0, 7: 19.0}
    given = find(both, both, best_span_core.Settings(2, max_answer_length=1))
    assert (given[0].text, given[0].start) == ("Ann", 0)
    share = np.exp([20, 19]) / np.exp([20, 19]).sum()
    assert given[0].score == pytest.approx((share**2).sum(), rel=1e-4)


def test_an_answer_does_not_end_before_it_begins_and_is_not_too_long() -> None:
    """The likeliest pair that is allowed comes first."""
    [one] = find({5: 20}, {0: 20, 8: 15}, best_span_core.Settings(max_answer_length=4, align=False))
    assert (one.start, one.stop) == (14, 22)
    [one] = find({5: 20}, {0: 20, 8: 15, 6: 10}, best_span_core.Settings(max_answer_length=3, align=False))
    assert (one.start, one.stop) == (14, 17)


def test_no_answer_is_an_answer_where_it_is_possible() -> None:
    """The score of the special first token; without `impossible` the best of the context is given."""
    none = find({-1: 20}, {-1: 20}, best_span_core.Settings(2, impossible=True))
    assert none[0] == Answer("", pytest.approx(1, abs=1e-4), 0, 0)
    assert none[1].score < 1e-6
    assert find({-1: 20, 5: 3}, {-1: 20, 5: 3}, best_span_core.Settings())[0].text == "Bo"


@pytest.mark.parametrize(("impossible", "expected"), [(False, []), (True, [Answer("", 1.0, 0, 0)])])
def test_a_context_without_tokens_has_no_answer(impossible: bool, expected: list[Answer]) -> None:
    """Only the empty one, with all the probability."""
    ids = np.array([-1, 0, -1], np.int32)
    places = Places(np.zeros((3, 2), np.int32), ids, ids)
    logits = np.array([3, 9, 5], np.float32)
    assert answers(logits, logits, places, "", best_span_core.Settings(3, impossible=impossible)) == expected
    given = best_span_core.padded([expected], 3)
    assert (given["count"].tolist(), given["answer"].tolist()) == ([[len(expected)]], [[b"", b"", b""]])
    none = places._replace(offsets=np.zeros((0, 2)), sequence_ids=ids[:0], word_ids=ids[:0])
    assert answers(logits[:0], logits[:0], none, "", best_span_core.Settings()) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(value: float) -> None:
    """Logits of the context and of the first special token count; those of the question and of padding do not."""
    ids = np.array([[-1, 0, -1, 1, 1, -1]] * 2)
    for token, fails in ((0, True), (1, False), (3, True), (5, False)):
        logits = np.zeros((2, 6), np.float32)
        logits[1, token] = value
        if fails:
            with pytest.raises(ValueError, match=f"item 1, token {token}: found {value}, wanted a finite number"):
                check_span_logits(logits, ids)
        else:
            check_span_logits(logits, ids)


# What both take ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"offsets": np.zeros((1, 3, 2), np.int32)}, r"input 'offsets': found shape \[1, 3, 2\], wanted \[1, 2, 2\]"),
        ({"word_ids": np.zeros((1, 3), np.int32)}, r"input 'word_ids': found shape \[1, 3\], wanted \[1, 2\]"),
        ({"offsets": np.array([[[0, 1], [1, 4]]])}, "input 'offsets', item 0: found characters 0 to 4, wanted those"),
        ({"offsets": np.array([[[-1, 1], [1, 2]]])}, "input 'offsets', item 0: found characters -1 to 2"),
        ({"offsets": np.array([[[2, 1], [1, 2]]])}, "input 'offsets', item 0"),
    ],
)
def test_places_of_another_text_are_refused(changed: dict[str, np.ndarray], message: str) -> None:
    """A character outside of the text is not read, and lengths must agree."""
    places = {"offsets": np.array([[[0, 1], [1, 2]]]), "sequence_ids": np.zeros((1, 2)), "word_ids": np.zeros((1, 2))}
    check_places(places, (1, 2), ["abc"], 0)
    with pytest.raises(ValueError, match=message):
        check_places({**places, **changed}, (1, 2), ["abc"], 0)
    with pytest.raises(ValueError, match="found 2 texts, wanted 1"):
        check_places(places, (1, 2), ["abc", ""], 0)


def test_texts_are_utf8() -> None:
    """The item is named, as by tokenize."""
    assert decode_texts(["🦊 e\u0301".encode(), b""]) == ["🦊 e\u0301", ""]
    with pytest.raises(ValueError, match="item 0: not valid UTF-8 at byte 1"):
        decode_texts([b"a\xff"])


@pytest.mark.parametrize(
    ("core", "values", "message"),
    [
        (aggregate_tokens_core, {"k": 0}, "k: found 0, wanted at least 1"),
        (aggregate_tokens_core, {"strategy": "none"}, "strategy: found 'none', wanted one of simple, first"),
        (aggregate_tokens_core, {"words": "lines"}, "words: found 'lines', wanted tokenizer or spaces"),
        (best_span_core, {"k": 0}, "k: found 0, wanted at least 1"),
        (best_span_core, {"max_answer_length": 0}, "max_answer_length: found 0, wanted at least 1"),
    ],
)
def test_unfit_parameters_are_refused(core: Any, values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        core.Settings(**values)
