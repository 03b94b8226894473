"""Text from tokens: whole characters, and stop strings, however the tokens come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_text import AnswerText, Characters, StopStrings
from tokenizers import Tokenizer

from tests.python_backends.llm_network import EOS, byte_tokenizer, fallback_tokenizer, word_tokenizer

BYTES, FALLBACK, WORDS = byte_tokenizer(), fallback_tokenizer(), word_tokenizer()
LETTERS = st.text(st.sampled_from("ab é€😀ÿ\n"), max_size=30)


def pieces(tokens: list[int], cuts: list[int]) -> list[list[int]]:
    """The tokens in parts of these lengths, over and over."""
    parts, at, number = [], 0, 0
    while at < len(tokens):
        size = cuts[number % len(cuts)]
        parts.append(tokens[at : at + size])
        at, number = at + size, number + 1
    return parts


@pytest.mark.parametrize("tokenizer", [BYTES, FALLBACK], ids=["bytes", "fallback"])
@given(text=LETTERS, cuts=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_the_parts_are_the_whole(tokenizer: Tokenizer, text: str, cuts: list[int]) -> None:
    """The pieces together are the tokenizer's text of all tokens, and none has half a character."""
    tokens = tokenizer.encode(text).ids
    characters = Characters(tokenizer)
    parts = [characters.add(part) for part in pieces(tokens, cuts)]
    assert all("\N{REPLACEMENT CHARACTER}" not in part for part in parts)
    assert "".join([*parts, characters.end()]) == tokenizer.decode(tokens)


@given(st.lists(st.integers(0, 255), max_size=40))
def test_any_bytes_become_valid_text(tokens: list[int]) -> None:
    """A model's output need not be UTF-8; letters in it come through."""
    characters = Characters(BYTES)
    text = "".join([*(characters.add([token]) for token in tokens), characters.end()])
    text.encode()
    plain = [letter for letter in BYTES.decode(tokens) if letter.isascii()]
    assert [letter for letter in text if letter.isascii()] == plain


def test_a_character_waits_for_its_last_byte() -> None:
    """A euro sign is three bytes, here three tokens."""
    characters = Characters(BYTES)
    assert [characters.add([token]) for token in BYTES.encode("€a").ids] == ["", "", "€", "a"]


def test_an_unfinished_character_ends_as_a_replacement() -> None:
    """At the end nothing can complete it."""
    characters = Characters(BYTES)
    assert characters.add(BYTES.encode("€").ids[:2]) == ""
    assert characters.end() == "\N{REPLACEMENT CHARACTER}"


def test_tokens_that_end_an_answer_are_no_text() -> None:
    """Neither are special tokens that a tokenizer leaves out, regardless of their number."""
    assert Characters(WORDS, {9}).add([7, 9, 8]) == "w7 w8"
    characters = Characters(WORDS)
    assert "".join(characters.add([token]) for token in [7, *[EOS] * 20, 8]) == "w7 w8"


@given(
    text=st.text("abc", max_size=20),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_the_text_ends_before_the_first_stop_string(text: str, stops: list[str], cuts: list[int]) -> None:
    """The text ends before the string that is complete first, whatever the parts; without one, all text leaves."""
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(ends)[1]] if ends else text
    for letters in (pieces(list(range(len(text))), cuts), [[at] for at in range(len(text))]):
        stopping = StopStrings(stops)
        left = "".join(stopping.add("".join(text[at] for at in part)) for part in letters)
        assert left + stopping.end() == expected
        assert stopping.is_complete == bool(ends)


def test_what_may_begin_a_stop_string_waits() -> None:
    """The text leaves as soon as it cannot begin a stop string."""
    stop = StopStrings(["END"])
    assert [stop.add(part) for part in ("a E", "N", "d E", "ND b", "c")] == ["a ", "", "ENd ", "", ""]
    assert stop.is_complete
    assert stop.end() == ""


def test_a_stop_string_in_the_last_characters() -> None:
    """A stop string is found even if the last characters leave only at the end."""
    text = AnswerText(BYTES, stop=["\N{REPLACEMENT CHARACTER}"])
    assert text.add(BYTES.encode("a€").ids[:3]) == "a"
    assert text.end() == ""
    assert text.stopped
