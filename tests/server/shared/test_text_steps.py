"""The steps for text inside a real Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from tests.python_backends.text_tokenizers import wordpiece
from tests.server.onnx_models import step, tensors
from tests.server.raw import Running, ask, ask_together, items

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.sharing import SharedBackends

NUMBERS = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), "INT64 [-1]")
PLACES = {"offsets": "INT32 [-1, 2]", "sequence_ids": "INT32 [-1]", "word_ids": "INT32 [-1]"}
PAIR_IO = tensors("input", text="STRING [1]", text_pair="STRING [1]") + tensors("output", **NUMBERS, **PLACES)
LOGITS = tensors("input", logits="FP32 [-1]")
LABELS_IO = LOGITS + tensors("output", label="STRING [3]", score="FP32 [3]", count="INT32 [1]")
POOL_IO = tensors("input", last_hidden_state="FP32 [-1, 4]", attention_mask="INT64 [-1]")
VECTOR = tensors("output", embedding="FP32 [3]")
PLACES_IN = tensors("input", **PLACES)
ENTITIES_IO = (
    tensors("input", logits="FP32 [-1, -1]", text="STRING [1]")
    + PLACES_IN
    + tensors(
        "output", entity="STRING [2]", score="FP32 [2]", span="INT32 [2, 2]", word="STRING [2]", count="INT32 [1]"
    )
)
SPAN_IO = (
    tensors("input", start_logits="FP32 [-1]", end_logits="FP32 [-1]", text_pair="STRING [1]")
    + PLACES_IN
    + tensors("output", answer="STRING [2]", score="FP32 [2]", span="INT32 [2, 2]", count="INT32 [1]")
)


def write_steps(root: Path) -> None:
    """Each step, as it is published."""
    pairs = {"pair": "true", "truncation": "only_second", "token_type_ids": "true", "offsets": "true"}
    version = step(
        root / "pairs", "tokenize", PAIR_IO, tokenizer="t.json", max_length="24", buckets="12", prefix="q: ", **pairs
    )
    wordpiece().save(str(version / "t.json"))
    version = step(
        root / "labels", "labels", LABELS_IO, k="3", labels="labels.txt", function="sigmoid", threshold="0.5"
    )
    (version.parent / "labels.txt").write_text("a\nä\nc\n")
    step(root / "activation", "activation", LOGITS + tensors("output", scores="FP32 [-1]"), temperature="2")
    version = step(root / "entities", "aggregate_tokens", ENTITIES_IO, labels="labels.txt", k="2")
    (version.parent / "labels.txt").write_text("O\nB-PER\nI-PER\n")
    step(root / "spans", "best_span", SPAN_IO, k="2", align="false")
    step(root / "pool", "pool", POOL_IO + VECTOR, dimension="4", mode="last", truncate_to="3")
    step(
        root / "normalize", "normalize", tensors("input", embedding="FP32 [4]") + VECTOR, dimension="4", truncate_to="3"
    )


@pytest.fixture(scope="module")
def triton(stand_in_server: SharedBackends) -> Iterator[Running]:
    """A server with the steps."""
    with stand_in_server.serving(write_steps) as running:
        yield running


@pytest.fixture(scope="module")
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw Triton client."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


def test_pairs_have_their_places(client: grpc.InferenceServerClient) -> None:
    """Each text's tokens lie in it, in characters; the prefix and the special tokens belong to none."""
    texts, others = ("fox 🦊 dog", "Who?"), ("élodie jumps", "The quick brown fox jumps over the lazy dog. " * 3)
    both = {"text": items(*map(str.encode, texts)), "text_pair": items(*map(str.encode, others))}
    given = ask(client, "pairs", **both)
    assert given["input_ids"].shape == (2, 24)
    for row, pair in enumerate(zip(texts, others, strict=True)):
        for number, text in enumerate(pair):
            own = given["sequence_ids"][row] == number
            assert (given["token_type_ids"][row][own] == number).all()
            start, stop = given["offsets"][row][own].T
            assert text[start[0] :].startswith(text.split()[0])
            assert (stop <= len(text)).all()
    assert given["word_ids"][0].max() >= 3


def test_pairs_of_two_lengths_are_refused(client: grpc.InferenceServerClient) -> None:
    """The server's batch is that of the first input; a second one of another length has its own error."""
    with pytest.raises(InferenceServerException, match="batch"):
        ask(client, "pairs", text=items(b"one", b"two"), text_pair=items(b"one"))


def test_a_pair_that_does_not_fit_fails_alone(client: grpc.InferenceServerClient) -> None:
    """Requests that come together are answered next to one whose first text is too long, and one that is not UTF-8."""
    pairs = [(b"fox", b"dog"), (b"fox " * 40, b"dog"), (b"", b""), (b"dog", b"\xff")]
    given = ask_together(client, "pairs", [{"text": items(a), "text_pair": items(b)} for a, b in pairs])
    assert isinstance(given[0], dict)
    assert isinstance(given[2], dict)
    assert given[2]["input_ids"].shape == (1, 12)
    assert "input 'text', item 0: the tokenizer refuses it: " in str(given[1])
    assert "input 'text_pair', item 0: not valid UTF-8 at byte 0" in str(given[3])
    np.testing.assert_array_equal(given[0]["sequence_ids"][0, [0, -1]], [-1, -1])


def test_labels_above_a_threshold(client: grpc.InferenceServerClient) -> None:
    """Requests that come together have their own labels; one with NaN fails alone, and another width is refused."""
    rows = ([5, 1, -1], [-1, -2, -3], [0, np.nan, 1], [1, 2])
    given = ask_together(client, "labels", [{"logits": np.array([row], np.float32)} for row in rows])
    assert isinstance(given[0], dict)
    assert isinstance(given[1], dict)
    assert given[0]["label"].tolist() == [[b"a", "ä".encode(), b""]]
    assert given[0]["count"].tolist() == [[2]]
    np.testing.assert_allclose(given[0]["score"], [[1 / (1 + np.exp(-5)), 1 / (1 + np.exp(-1)), 0]], rtol=1e-6)
    assert (given[1]["label"].tolist(), given[1]["count"].tolist()) == ([[b"", b"", b""]], [[0]])
    assert "input 'logits': item 0: the largest logit is nan" in str(given[2])
    assert "input 'logits': found 2 logits, wanted 3, one per label" in str(given[3])


def test_activation_scores_rows_of_any_width(client: grpc.InferenceServerClient) -> None:
    """The width is the request's own."""
    for width in (1, 5):
        given = ask(client, "activation", logits=np.zeros((2, width), np.float32))
        np.testing.assert_allclose(given["scores"], np.full((2, width), 1 / width), rtol=1e-6)
    with pytest.raises(
        InferenceServerException, match="'activation': input 'logits': item 1: the largest logit is nan"
    ):
        ask(client, "activation", logits=np.array([[1], [np.nan]], np.float32))


def test_vectors_are_cut_and_scaled(client: grpc.InferenceServerClient) -> None:
    """pool takes the last token that counts; both steps keep three numbers of length 1."""
    hidden = np.array([[[9, 9, 9, 9], [3, 0, 4, 7], [8, 8, 8, 8]]], np.float32)
    given = ask(client, "pool", last_hidden_state=hidden, attention_mask=np.array([[1, 1, 0]]))
    np.testing.assert_allclose(given["embedding"], [[0.6, 0, 0.8]], rtol=1e-6)
    given = ask(client, "normalize", embedding=hidden[:, 1])
    np.testing.assert_allclose(given["embedding"], [[0.6, 0, 0.8]], rtol=1e-6)
    with pytest.raises(InferenceServerException, match="input 'embedding': item 0: it has numbers that are not finite"):
        ask(client, "normalize", embedding=np.full_like(hidden[:, 1], np.inf))


def places(*tokens: tuple[int, int], text: int = 0) -> dict[str, np.ndarray]:
    """Places of one item's tokens, between two special ones."""
    of_text = [-1, *[text] * len(tokens), -1]
    words = [-1, *range(len(tokens)), -1]
    offsets = [(0, 0), *tokens, (0, 0)]
    return {name: np.array([row], np.int32) for name, row in zip(PLACES, (offsets, of_text, words), strict=True)}


def test_entities_of_requests_that_come_together(client: grpc.InferenceServerClient) -> None:
    """A text has its own entities, or none; one with NaN, and one with another's places, fail alone."""
    three = places((0, 1), (2, 3), (4, 5))
    logits = 9 * np.eye(3, dtype=np.float32)[[[0, 1, 2, 0, 0]]]
    good = {"logits": logits, "text": items("É 🦊 b".encode()), **three}
    without = {**good, "logits": np.zeros_like(logits)}
    bad = {**good, "logits": np.full_like(logits, np.nan)}
    other = {**good, "text": items(b"a")}
    given = ask_together(client, "entities", [good, without, bad, other, good])
    for answer in (given[0], given[4]):
        assert isinstance(answer, dict)
        assert answer["entity"].tolist() == [[b"PER", b""]]
        assert answer["word"].tolist() == [["É 🦊".encode(), b""]]
        assert answer["span"].tolist() == [[[0, 3], [0, 0]]]
    assert isinstance(given[1], dict)
    assert (given[1]["count"].tolist(), given[1]["entity"].tolist()) == ([[0]], [[b"", b""]])
    assert "input 'logits': item 0, token 1: the largest logit is nan" in str(given[2])
    assert "input 'offsets', item 0: found characters 0 to 5, wanted those of its text of 1 characters" in str(given[3])


def test_answers_of_requests_that_come_together(client: grpc.InferenceServerClient) -> None:
    """Each has the best of its own context; infinite logits fail alone."""
    three = places((0, 1), (2, 3), (4, 5), text=1)
    logits = np.array([[0, 1, 9, 2, np.nan]], np.float32)
    good = {"start_logits": logits, "end_logits": logits, "text_pair": items("a 🦊 é".encode()), **three}
    given = ask_together(client, "spans", [good, {**good, "end_logits": np.full_like(logits, -np.inf)}, good])
    for answer in (given[0], given[2]):
        assert isinstance(answer, dict)
        assert answer["answer"].tolist() == [["🦊".encode(), "🦊 é".encode()]]
        assert answer["span"].tolist() == [[[2, 3], [2, 5]]]
        assert answer["count"].tolist() == [[2]]
    assert "input 'end_logits', item 0, token 0: found -inf, wanted a finite number" in str(given[1])
