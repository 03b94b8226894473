"""Lengths of prompts and answers: as they are written, drawn, and recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tritonkit.errors import UsageError
from tritonkit.perf.load.generation import parse_lengths, read_token_trace


def test_a_fixed_number() -> None:
    """Each has it."""
    assert parse_lengths("--prompt-tokens", "64").draw(5, 0).tolist() == [64] * 5


def test_uniform_lengths_have_both_ends() -> None:
    """And nothing beyond."""
    drawn = parse_lengths("--prompt-tokens", "3-6").draw(1000, 0)
    assert sorted(set(drawn.tolist())) == [3, 4, 5, 6]


@pytest.mark.parametrize(("option", "mean"), [("--prompt-tokens", 161.31), ("--output-tokens", 337.99)])
def test_sharegpt_has_the_stated_mean_and_median(option: str, mean: float) -> None:
    """The means of the paper; with sigma 1 the median is e^-0.5 of that."""
    drawn = parse_lengths(option, "sharegpt").draw(200_000, 0)
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert np.median(drawn) == pytest.approx(mean * np.exp(-0.5), rel=0.02)


def test_lognormal_lengths_have_their_mean() -> None:
    """None is below one token, however wide."""
    drawn = parse_lengths("--output-tokens", "lognormal:50,1.5").draw(400_000, 0)
    assert drawn.mean() == pytest.approx(50, rel=0.05)
    assert drawn.min() == 1


def test_a_seed_draws_the_same_again() -> None:
    """Another one others."""
    lengths = parse_lengths("--prompt-tokens", "sharegpt")
    assert lengths.draw(50, 7).tolist() == lengths.draw(50, 7).tolist()
    assert lengths.draw(50, 7).tolist() != lengths.draw(50, 8).tolist()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-5",
        "9-3",
        "3-",
        "a-b",
        "1.5",
        "1-2-3",
        "normal:5,1",
        "lognormal:5",
        "lognormal:0,1",
        "lognormal:9,0",
        "lognormal:nan,1",
        "lognormal:9,9",
        "99999999",
        "²",
    ],
)
def test_what_is_no_distribution(text: str) -> None:
    """One message that names the option."""
    with pytest.raises(UsageError, match="--prompt-tokens"):
        parse_lengths("--prompt-tokens", text)


def write(tmp_path: Path, text: str) -> Path:
    """A trace with this text."""
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return file


def test_a_trace_with_and_without_seconds(tmp_path: Path) -> None:
    """Columns by their names, others left alone."""
    text = "user,output_tokens, prompt_tokens\na,3,10\nb,4,20\n"
    trace = read_token_trace(write(tmp_path, text))
    assert (trace.prompt.tolist(), trace.output.tolist()) == ([10, 20], [3, 4])
    assert trace.seconds is None
    text = "prompt_tokens,output_tokens,seconds\n10,3,0\n20,4,0.5\n"
    trace = read_token_trace(write(tmp_path, text))
    assert trace.seconds is not None
    assert trace.seconds.tolist() == [0.0, 0.5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prompt_tokens\n3\n", "1: no column 'output_tokens'"),
        ("3,4\n", "no column 'prompt_tokens'"),
        ("prompt_tokens,output_tokens\n", "no line after the first"),
        ("prompt_tokens,output_tokens\n5,5\n0,5\n", "trace.csv:3: '0'"),
        ("prompt_tokens,output_tokens\n5\n", "trace.csv:2: ''"),
        ("prompt_tokens,output_tokens\n5,x\n", "trace.csv:2: 'x'"),
        ("prompt_tokens,output_tokens,seconds\n5,5,2\n5,5,1\n", "trace.csv:3: '1'"),
        ("prompt_tokens,output_tokens,seconds\n5,5,nan\n", "trace.csv:2: 'nan'"),
    ],
)
def test_a_trace_that_cannot_be_sent(tmp_path: Path, text: str, words: str) -> None:
    """File and line."""
    with pytest.raises(UsageError) as caught:
        read_token_trace(write(tmp_path, text))
    assert words in str(caught.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    """Read lengths like the option of the command line."""
    with pytest.raises(UsageError, match="cannot be read"):
        read_token_trace(tmp_path / "none.csv")
