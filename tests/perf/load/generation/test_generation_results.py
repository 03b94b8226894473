"""The report of a language model's load, from its sender's record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritonkit.perf.load.generation.judge import judge_generation
from tritonkit.perf.load.generation.page import generation_csv, generation_text, lengths_line
from tritonkit.perf.load.generation.records import GenerationRecord, StreamedAnswer, load_record, record_of, save_record
from tritonkit.perf.load.generation.requests import TextRequests
from tritonkit.perf.load.generation.results import GenerationReport, report_of
from tritonkit.perf.load.openloop import INTERRUPTED, page, parse_slo
from tritonkit.repository.report import Machine


def requests(count: int) -> TextRequests:
    """Requests of ten tokens and three, each with a text of its own; the last one was shortened."""
    clipped = np.arange(count) == count - 1
    ten, three = np.full(count, 10), np.full(count, 3)
    return TextRequests(np.arange(count), ten, (0, 0), ten, three, clipped)


def answer(index: int, due: float, words: str | None = "", **more: Any) -> StreamedAnswer:
    """An answer of three tokens: the first after 0.1 s, the others together 0.3 s later."""
    pieces = [due + 0.1, due + 0.4] if words == "" else []
    counts, tokens = ([1, 2], [7, 8, 9]) if pieces else ([], [])
    made = StreamedAnswer(index, due, due + 0.01, pieces, counts, tokens, due + 0.5, 11, words)
    return replace(made, **more)


def report(*answers: StreamedAnswer, ended: str = "", users: int = 0, **more: Any) -> GenerationReport:
    """Four seconds after one of warm-up."""
    facts: dict[str, Any] = {"warm_s": 1.0, "duration_s": 4.0, "window": 64, "repeatable": True}
    record = record_of(answers, 0.5, ended)
    slo = parse_slo(["p98=1s"])
    return report_of("chat", record, requests(20), users=users, slo=slo, **(facts | more))


def test_times_count_from_when_a_request_was_due() -> None:
    """First token, gaps between pieces, the mean of the other tokens, and the whole."""
    measured = report(answer(0, 1.0), answer(1, 2.0))
    assert measured.ttft
    assert measured.itl
    assert measured.tpot
    assert measured.latency
    assert measured.service
    assert measured.ttft.largest == pytest.approx(100)
    assert (measured.itl.count, measured.itl.largest) == (2, pytest.approx(300))
    assert measured.tpot.largest == pytest.approx(150)
    assert measured.latency.at(98) == pytest.approx(500)
    assert measured.service.mean == pytest.approx(490)
    assert measured.lag
    assert measured.lag.largest == pytest.approx(10)
    assert measured.tokens_per_s == pytest.approx(6 / 4)
    assert measured.prompt_tokens_per_s == pytest.approx(22 / 4)


def test_what_was_due_in_the_warm_up_does_not_count() -> None:
    """Nor do answers that were requested again after the run; tokens count where they came."""
    measured = report(answer(0, 0.8), answer(1, 2.0), answer(1, 4.9, again=True))
    assert (measured.requests, measured.right) == (1, 1)
    assert measured.tokens_per_s == pytest.approx(5 / 4)


def test_only_right_answers_have_times() -> None:
    """Others are counted by their words."""
    measured = report(answer(0, 1.0), answer(1, 2.0, "gone"), answer(2, 2.5, "gone"), answer(3, 3.0, "late"))
    assert (measured.right, measured.failures, dict(measured.words)) == (1, 3, {"gone": 2, "late": 1})
    assert measured.ttft
    assert measured.ttft.count == 1
    assert measured.error_rate == 0.75
    nothing = report(answer(0, 1.0, "gone"))
    assert nothing.ttft is None
    assert nothing.tail_ms(parse_slo(["p98=1s"])) is None
    assert judge_generation(nothing, parse_slo(["ttft_p99=1s,errors=100%"], language=True)) == (
        "chat: ttft_p99: no right answer",
    )


def test_answers_that_an_interrupt_left_do_not_count() -> None:
    """The run lasted until the last request was sent."""
    measured = report(answer(0, 1.0), answer(1, 2.99, None), ended=INTERRUPTED)
    assert (measured.requests, measured.right) == (1, 1)
    assert measured.duration_s == pytest.approx(2.0)
    assert measured.ended == INTERRUPTED


def test_two_answers_to_one_prompt_must_begin_alike() -> None:
    """Two answers are compared up to the shorter one's end; the model says whether they must be equal."""
    again = answer(0, 9.0, again=True, tokens=[7, 8], counts=[1, 1])
    other = answer(1, 9.5, again=True, tokens=[7, 1, 2])
    measured = report(answer(0, 1.0), answer(1, 2.0), again, other)
    assert (measured.compared, measured.differing) == (2, 1)
    slo = parse_slo(["p99=1s"])
    assert judge_generation(measured, slo) == (
        "chat: 1 of 2 prompts that were sent twice had answers that begin differently",
    )
    assert judge_generation(replace(measured, repeatable=False), slo) == ()


def test_every_missed_target_is_a_line() -> None:
    """With what was found."""
    measured = report(answer(0, 1.0), answer(1, 2.0, "gone"), answer(2, 2.0))
    slo = parse_slo(["ttft_p99=50ms,itl_p50=10ms,p50=1ms,p99=1s"], language=True)
    assert judge_generation(measured, slo, min_rate=3) == (
        "chat: 33.333% of the requests failed, at most 0.000% (1 of 3; first: gone)",
        "chat: ttft_p99 100.00 ms, at most 50 ms",
        "chat: itl_p50 300.00 ms, at most 10 ms",
        "chat: p50 500.00 ms, at most 1 ms",
        "chat: 0.50 right answers/s, at least 3",
    )


def test_an_answer_of_one_token_has_no_gap() -> None:
    """A target for gaps says so."""
    one = replace(answer(0, 1.0), pieces=[1.1], counts=[1], tokens=[7])
    measured = report(one)
    assert measured.itl is None
    assert measured.tpot is None
    slo = parse_slo(["itl_p99=1s"], language=True)
    assert judge_generation(measured, slo) == ("chat: itl_p99: no answer of two tokens",)


def test_a_busy_or_late_generator_is_said() -> None:
    """In a closed loop nothing is due, so nothing is late."""
    late = replace(answer(0, 1.0), sent=1.09)
    (line,) = report(late).invalid
    assert "sent 90.00 ms late" in line
    assert report(late, users=3).invalid == ()
    assert report(late, users=3).lag is None
    record = record_of([answer(0, 1.0)], 5.0, "")
    busy = report_of("chat", record, requests(2), users=1, warm_s=0, duration_s=4, window=9, repeatable=True, slo=None)
    assert "of a core: send from another machine" in busy.invalid[0]


def test_seconds() -> None:
    """Seconds hold the requests due in them, and the tokens that came in them."""
    seconds = report(answer(0, 1.0), answer(1, 1.8), answer(2, 4.2, "gone")).seconds
    assert [(s.due, s.right, s.failed, s.tokens) for s in seconds] == [
        (2, 2, 0, 4),
        (0, 0, 0, 2),
        (0, 0, 0, 0),
        (1, 0, 1, 0),
    ]
    assert seconds[0].ttft_p99_ms == pytest.approx(100)
    assert seconds[1].itl_p50_ms == pytest.approx(300)
    assert seconds[2].ttft_p50_ms is None


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Without pickles."""
    record = record_of([answer(0, 1.0), answer(1, 2.0, "gone"), answer(2, 3.0, None)], 0.5, "why")
    save_record(record, tmp_path / "record.npz")
    loaded = load_record(tmp_path / "record.npz")
    for name, value in vars(record).items():
        assert np.array_equal(getattr(loaded, name), value, equal_nan=name == "ended"), name
    assert loaded.outcome.tolist() == [0, 1, -1]
    assert isinstance(loaded, GenerationRecord)


def test_the_report_in_json_and_on_a_page() -> None:
    """Figures, targets, lengths and what failed; nothing from outside is markup."""
    slo = parse_slo(["ttft_p99=50ms"], language=True)
    answers = [answer(k, 1.0 + k / 5) for k in range(19)] + [answer(19, 4.9, "<b>gone</b>")]
    measured = report(*answers)
    measured = replace(measured, missed=judge_generation(measured, slo))
    facts = measured.to_dict()
    assert facts["ttft_ms"]["p99"]["value"] == pytest.approx(100)
    assert facts["prompt_found"]["mean"] == 11
    assert (facts["holds"], facts["valid"], facts["clipped"]) == (False, True, 1)
    assert "1 of 20 requests were shortened to the model's 64 tokens" in lengths_line(measured)
    machine = Machine("a processor", 2, "Linux")
    text = page(
        measured, generation_text(measured, slo), machine, "today", title="chat", slo=slo, command="tritonkit load"
    )
    assert "Missed: chat: ttft_p99 100.00 ms, at most 50 ms" in text
    assert text.count("<svg") == 4
    assert "p99 target 50 ms" in text
    assert "1 × &lt;b&gt;gone&lt;/b&gt;" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    closed = report(answer(0, 1.0), users=2)
    assert "followed by the next" in page(closed, generation_text(closed, slo), machine, "today", title="x", slo=slo)
    assert len(generation_csv(measured).splitlines()) == 5
