"""Texts in windows without Triton: tokenize gives the windows of transformers, the last steps join what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import best_span_core
import numpy as np
import pytest
from aggregate_tokens_core import Entity, without_overlaps
from best_span_core import Answer, Places, answers, answers_of_windows
from tokenize_core import Settings, TextTokenizer

from tests.python_backends.adapters import Request, adapter
from tests.python_backends.text_tokenizers import KINDS, ODD_TEXTS

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "Who met?"


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of each kind as a file."""
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    KINDS[request.param]().save(str(file))
    return file


def windows_of(tokenizer: TextTokenizer, text: Any) -> dict[str, np.ndarray]:
    """The step's outputs for one text."""
    return tokenizer.pad(tokenizer.windows(text))


@pytest.mark.parametrize(("stride", "side"), [(0, "right"), (9, "right"), (9, "left")])
@pytest.mark.parametrize("pair", [False, True])
def test_windows_equal_those_of_transformers(path: Path, pair: bool, stride: int, side: str) -> None:
    """Ids, places and number of the windows of odd texts; a text that fits has one."""
    transformers = pytest.importorskip("transformers")
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), truncation_side=side)
    cut = "only_second" if pair else "longest_first"
    settings = Settings(
        32, (), 1 << 18, pair, "", cut, side, offsets=True, windows=True, stride=stride, max_windows=200
    )
    tokenizer = TextTokenizer(path, settings)
    several = 0
    for text in ODD_TEXTS.values():
        if pair and not text:  # transformers takes an empty text for no second text
            continue
        given = windows_of(tokenizer, (QUESTION, text) if pair else text)
        options = {"truncation": cut, "max_length": 32, "stride": stride, "return_overflowing_tokens": True}
        expected = own(*((QUESTION, text) if pair else (text,)), return_offsets_mapping=True, **options)
        assert len(given["input_ids"]) == len(expected["input_ids"]) >= 1
        for row, ids in enumerate(expected["input_ids"]):
            assert given["input_ids"][row, : len(ids)].tolist() == ids
            assert given["attention_mask"][row].sum() == len(ids)
            assert given["offsets"][row, : len(ids)].tolist() == [list(one) for one in expected["offset_mapping"][row]]
            places = [-1 if number is None else number for number in expected.sequence_ids(row)]
            assert given["sequence_ids"][row, : len(ids)].tolist() == places
        several += len(expected["input_ids"]) > 2
    assert several


def test_windows_are_counted_before_they_are_made(path: Path) -> None:
    """The largest number is taken, one more is refused, and the message says how many there would be."""
    text = ODD_TEXTS["long"]
    settings = {"max_length": 32, "windows": True, "stride": 9}
    number = len(TextTokenizer(path, Settings(**settings, max_windows=999)).windows(text))
    assert number > 5
    assert len(TextTokenizer(path, Settings(**settings, max_windows=number)).windows(text)) == number
    few = TextTokenizer(path, Settings(**settings, max_windows=number - 1))
    for _ in range(2):
        with pytest.raises(ValueError, match=f"take {number} windows of .*at most {number - 1} .parameter max_windows"):
            few.windows(text)
    assert len(few.windows("fox")) == 1


def test_a_text_that_leaves_no_room_is_refused(path: Path) -> None:
    """A window must hold more of the context than windows share; a short context needs no window."""
    settings = Settings(32, (), pair=True, truncation="only_second", windows=True, stride=20)
    tokenizer = TextTokenizer(path, settings)
    question = "fox, " * 4
    with pytest.raises(ValueError, match=r"'text' and special tokens leave room for .*the 20 that windows share"):
        tokenizer.windows((question, ODD_TEXTS["long"]))
    assert len(tokenizer.windows((question, "fox"))) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stride": 4}, "stride: found 4 without windows, wanted windows: true"),
        ({"windows": True, "max_windows": 0}, "max_windows: found 0, wanted at least 1"),
        ({"windows": True, "pair": True}, "truncation: found 'longest_first' with windows of a pair, wanted only_sec"),
        ({"windows": True, "prefix": "q: "}, "prefix: found one with windows of 'text'"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=f"parameter {message}"):
        Settings(**values)


def test_the_stride_follows_from_the_length(path: Path) -> None:
    """It is 128 by default, and half of a shorter window; one as long as a window is refused."""
    assert Settings(512, windows=True).overlap == 128
    assert Settings(32, windows=True).overlap == 16
    with pytest.raises(ValueError, match=r"stride: found 32, wanted less than the 3[0-2] tokens of a window"):
        TextTokenizer(path, Settings(32, windows=True, stride=32))


# Entities ---------------------------------------------------------------------------------------


def test_entities_of_overlapping_windows_stand_once(random: np.random.Generator) -> None:
    """The same entities as transformers keeps of any, in the order of the text."""
    pipelines = pytest.importorskip("transformers.pipelines.token_classification")
    reference = pipelines.TokenClassificationPipeline.aggregate_overlapping_entities
    for _ in range(50):
        windows = []
        for first in range(0, 60, 20):
            edges = np.sort(random.choice(np.arange(first, first + 30), 8, replace=False)).tolist()
            pairs = zip(edges[::2], edges[1::2], strict=True)
            windows.append([Entity("PER", float(random.integers(3)), start, stop) for start, stop in pairs])
        given = without_overlaps(windows)
        expected = reference(None, [{**one._asdict(), "end": one.stop} for window in windows for one in window])
        assert [(one.start, one.stop, one.score) for one in given] == [
            (one["start"], one["end"], one["score"]) for one in expected
        ]
    assert without_overlaps([[]]) == without_overlaps([[], []]) == []


# Answers ----------------------------------------------------------------------------------------


def window(start: dict[int, float], first: int) -> tuple[np.ndarray, np.ndarray, Places]:
    """A window of three letters from `first` on, after a special token; answers of one letter have these logits."""
    logits = np.zeros(4, np.float32)
    for letter, value in start.items():
        logits[letter - first + 1 if letter >= 0 else 0] = value
    offsets = np.array([[0, 0], *([place, place + 1] for place in range(first, first + 3))], np.int32)
    ids = np.array([-1, 1, 1, 1], np.int32)
    return logits, logits, Places(offsets, ids, np.array([-1, 0, 1, 2], np.int32))


def test_the_best_answer_may_stand_in_any_window() -> None:
    """Characters are those of the context, and the scores of an answer that two windows have are added up."""
    context = "abcde"
    settings = best_span_core.Settings(2, max_answer_length=1)
    first, last = window({1: 1.0, 2: 3.0}, 0), window({3: 9.0, 2: 8.9}, 2)
    given = answers_of_windows([first, last], context, settings)
    assert [(one.text, one.start, one.stop) for one in given] == [("c", 2, 3), ("d", 3, 4)]
    several = best_span_core.Settings(5, max_answer_length=1)
    alone = [{one.text: one.score for one in answers(*part, context, several)} for part in (first, last)]
    assert given[0].score == pytest.approx(alone[0]["c"] + alone[1]["c"])
    assert given[1].score == pytest.approx(alone[1]["d"])
    assert alone[1]["d"] > alone[1]["c"]


def test_no_answer_has_the_lowest_score_of_the_windows() -> None:
    """A window that has an answer speaks against the empty one."""
    settings = best_span_core.Settings(9, max_answer_length=1, impossible=True)
    windows = [window({-1: 9.0}, 0), window({3: 9.0}, 2)]
    [none] = [one for one in answers_of_windows(windows, "abcde", settings) if not one.text]
    [expected] = [one for one in answers(*windows[1], "abcde", settings) if not one.text]
    assert none == Answer("", pytest.approx(expected.score), 0, 0)


# Adapters ---------------------------------------------------------------------------------------


def test_windows_need_a_request_without_a_batch_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose configuration has a batch axis does not load."""
    with pytest.raises(RuntimeError, match="parameter windows: found true with a batch axis, wanted max_batch_size: 0"):
        adapter("best_span", monkeypatch, windows="true")


def test_a_step_joins_the_windows_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a batch axis, the windows of one context give its answer."""
    model = adapter("best_span", monkeypatch, max_batch_size=0, windows="true", max_answer_length="1", align="false")
    windows = [window({1: 1.0}, 0), window({3: 9.0}, 2)]
    start, end, places = zip(*windows, strict=True)
    names = {name: np.stack([getattr(place, name) for place in places]) for name in Places._fields}
    logits = {"start_logits": np.stack(start), "end_logits": np.stack(end)}
    [answer] = model.execute([Request(**logits, **names, text_pair=np.array([b"abcde"], object))])
    assert answer.tolist() == [b"d"]
    short = {**logits, "end_logits": np.stack(end)[:1]}
    [refused] = model.execute([Request(**short, **names, text_pair=np.array([b"abcde"], object))])
    assert (refused.kind, "input 'end_logits': found shape [1, 4], wanted [2, 4]" in refused.text) == ("invalid", True)
