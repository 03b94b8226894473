"""The engine's loop with OpenVINO GenAI's real pipeline: many sequences, a full cache, callers who leave, faults."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from llm_config import Settings, read_settings
from llm_engine import Engine, Failure, Overloaded, Sequence, Step, pipeline_maker
from llm_metrics import Counts
from llm_request import Task
from llm_sending import Sending
from llm_text import AnswerText
from llm_watch import Watch

from tests.python_backends.llm_network import EOS, WORDS, word_tokenizer, write_model
from tests.waiting import eventually

CONTEXT = 2048
LONG = 2000
"""Tokens of an answer that takes a while."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's files, which no test changes."""
    return write_model(tmp_path_factory.mktemp("llm") / "1", context=CONTEXT)


def settings(folder: Path, **parameters: str) -> Settings:
    """Settings with one thread and a small cache: a MiB is 128 blocks, which are 4096 tokens."""
    values = {"cache_mib": "1", "threads": "1", "max_sequences": "8"} | parameters
    texts = {key: {"string_value": value} for key, value in values.items()}
    return read_settings({"parameters": texts, "model_transaction_policy": {"decoupled": True}}, folder)


class Answers:
    """An engine, and what it delivered."""

    def __init__(self, settings: Settings, make: Callable[[], Any]) -> None:
        self.tokens: dict[Sequence, list[int]] = defaultdict(list)
        self.ends: dict[Sequence, list[Any]] = defaultdict(list)
        self.order: list[Sequence] = []
        self.counts = Counts()
        self._lock = Lock()
        self.engine = Engine(settings, make, self._take, self.counts)

    def _take(self, steps: list[Step]) -> None:
        with self._lock:
            for step in steps:
                self.order.append(step.sequence)
                self.tokens[step.sequence] += step.tokens
                if step.end is not None:
                    self.ends[step.sequence].append(step.end)

    def ask(self, *prompt: int, tokens: int = 20, ignore_eos: bool = True, **more: Any) -> Sequence:
        """Submit a sequence."""
        sequence = Sequence(task_of(list(prompt), tokens, ignore_eos=ignore_eos, **more), time.monotonic())
        self.engine.submit(sequence)
        return sequence

    def end(self, sequence: Sequence) -> Any:
        """Its one end, when it has come."""
        eventually(lambda: self.ends[sequence], "a sequence ends")
        (end,) = self.ends[sequence]
        return end


def task_of(prompt: list[int], tokens: int, **more: Any) -> Task:
    """A request with defaults."""
    values = {
        "min_tokens": 0,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": None,
        "stop": (),
        "ignore_eos": False,
        "logprobs": False,
    } | more
    return Task(prompt, tokens, **values)


Start = Callable[..., Answers]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start engines, which end with the test."""
    started: list[Answers] = []

    def begin(make: Callable[[], Any] | None = None, **parameters: str) -> Answers:
        chosen = settings(folder, **parameters)
        started.append(Answers(chosen, make or pipeline_maker(chosen, str(folder))))
        return started[-1]

    yield begin
    for one in started:
        one.engine.close()


def test_batches_answer_as_each_alone(start: Start) -> None:
    """Sequences that run together have the tokens that they have alone; none comes twice, none is lost."""
    answers = start()
    prompts = [[5 + n, 9, 30 + n] * (1 + n % 5) for n in range(20)]
    together = [answers.ask(*prompt, tokens=10 + n) for n, prompt in enumerate(prompts)]
    assert [answers.end(one) for one in together] == ["length"] * 20
    for n, prompt in enumerate(prompts):
        alone = answers.ask(*prompt, tokens=10 + n)
        assert answers.end(alone) == "length"
        assert answers.tokens[alone] == answers.tokens[together[n]]
        assert len(answers.tokens[alone]) == 10 + n
    assert answers.counts.tokens == 2 * sum(10 + n for n in range(20))
    assert not answers.engine.open


@pytest.mark.slow
def test_a_full_cache_delays_and_loses_nothing(start: Start) -> None:
    """Eight sequences of a quarter of the cache each: some are computed twice, and all are whole."""
    answers = start(prefix_cache="false")
    running = [answers.ask(5 + n, tokens=1000) for n in range(8)]
    assert [answers.end(one) for one in running] == ["length"] * 8
    for number in (0, 7):
        alone = answers.ask(5 + number, tokens=1000)
        assert answers.end(alone) == "length"
        assert answers.tokens[running[number]] == answers.tokens[alone]
    assert [len(answers.tokens[one]) for one in running] == [1000] * 8


def test_sequences_that_pause_are_counted(start: Start) -> None:
    """In a full cache sequences pause, and the last step leaves some out; with room none ever pauses."""
    for mib, pauses in (("1", True), ("4", False)):
        answers = start(prefix_cache="false", cache_mib=mib)
        stalled: list[int] = []
        write = answers.counts.now

        def now(
            running: int, waiting: int, left_out: int, cache: float, write: Any = write, stalled: list[int] = stalled
        ) -> None:
            stalled.append(left_out)
            write(running, waiting, left_out, cache)

        answers.counts.now = now  # type: ignore[method-assign]
        for one in [answers.ask(5 + n, tokens=1000) for n in range(8)]:
            assert answers.end(one) == "length"
        assert (answers.counts.preemptions > 0) == pauses
        assert (max(stalled) > 0) == pauses
        eventually(lambda: answers.counts.running == 0, "nothing runs")  # noqa: B023
        assert answers.counts.stalled == 0


def test_steps_are_counted_by_their_phase(start: Start) -> None:
    """700 tokens of a prompt in steps of 256 are three of prefill; each of the 9 tokens after the first is a decode."""
    answers = start(max_batched_tokens="256")
    assert answers.end(answers.ask(*([7, 9, 11, 13] * 175), tokens=10)) == "length"
    eventually(lambda: answers.counts.running == 0, "nothing runs")
    assert answers.counts.steps == {"prefill": 3, "decode": 9}
    assert all(seconds > 0 for seconds in answers.counts.step_seconds.values())


def test_an_answer_in_the_prefix_cache_needs_one_step_of_prefill(start: Start) -> None:
    """When a prompt comes again, only the rest of a block is computed."""
    answers = start(max_batched_tokens="256")
    for _ in range(2):
        answers.end(answers.ask(*([7, 9, 11, 13] * 175), tokens=10))
    assert answers.counts.steps == {"prefill": 4, "decode": 18}


def test_the_stop_token_ends_an_answer(start: Start, folder: Path) -> None:
    """The stop token is the last one; the same request continues if it ignores that token."""
    answers = start()
    for first in range(5, 60):
        whole = answers.ask(first, tokens=60)
        answers.end(whole)
        if EOS in answers.tokens[whole]:
            break
    sequence = answers.ask(first, tokens=60, ignore_eos=False)
    assert answers.end(sequence) == "stop"
    tokens = answers.tokens[whole]
    assert answers.tokens[sequence] == tokens[: tokens.index(EOS) + 1]


def test_a_model_without_a_stop_token(tmp_path: Path) -> None:
    """Its answers end by their length, whatever their least length."""
    folder = write_model(tmp_path / "1", eos=None, context=CONTEXT)
    chosen = settings(folder)
    answers = Answers(chosen, pipeline_maker(chosen, str(folder)))
    one = answers.ask(5, tokens=60, ignore_eos=False, min_tokens=20)
    assert answers.end(one) == "length"
    assert len(answers.tokens[one]) == 60
    answers.engine.close()


def test_the_least_number_of_tokens(start: Start) -> None:
    """The stop token is not drawn before the least number; it may be if it is ignored."""
    answers = start()
    for first in range(5, 60):
        whole = answers.ask(first, tokens=60, min_tokens=50)
        answers.end(whole)
        if EOS in answers.tokens[whole][:50]:
            break
    assert EOS in answers.tokens[whole][:50]
    one = answers.ask(first, tokens=60, min_tokens=50, ignore_eos=False)
    answers.end(one)
    assert EOS not in answers.tokens[one][:50]
    assert len(answers.tokens[one]) >= 50


def test_a_dropped_sequence_frees_its_blocks(start: Start) -> None:
    """Running and waiting sequences can be dropped; each ends once, and the cache is empty afterwards."""
    answers = start(max_sequences="2")
    sequences = [answers.ask(5 + n, tokens=LONG) for n in range(6)]
    eventually(lambda: answers.tokens[sequences[0]], "it runs")
    gone = Failure("CANCELLED", "gone")
    for sequence in [*sequences, *sequences]:
        answers.engine.drop(sequence, gone)
    assert [answers.end(one) for one in sequences] == [gone] * 6
    assert len(answers.tokens[sequences[0]]) < LONG
    eventually(lambda: (answers.counts.running, answers.counts.cache) == (0, 0), "nothing runs")
    assert answers.end(answers.ask(5, tokens=LONG)) == "length"


def test_more_than_may_wait_are_refused(start: Start) -> None:
    """Two run and one waits; the fourth is refused, and gets its place when the others have ended."""
    answers = start(max_sequences="2", max_waiting="1")
    three = [answers.ask(5 + n, tokens=500) for n in range(3)]
    with pytest.raises(Overloaded, match="1 requests wait already"):
        answers.ask(9)
    assert [answers.end(one) for one in three] == ["length"] * 3
    assert answers.end(answers.ask(9)) == "length"


def test_static_batches_wait_for_their_last(start: Start) -> None:
    """The next batch begins when the last sequence of this one has ended."""
    answers = start(max_sequences="2", batching="static")
    long, short = answers.ask(5, tokens=300), answers.ask(6, tokens=200)
    late = answers.ask(7, tokens=5)
    assert [answers.end(one) for one in (long, short, late)] == ["length"] * 3
    order = answers.order
    assert order.index(late) > max(n for n, one in enumerate(order) if one in (long, short))


class Failing:
    """A real pipeline whose nth step fails."""

    def __init__(self, pipeline: Any, at: int) -> None:
        self._pipeline = pipeline
        self._left = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def step(self) -> None:
        """The real one's, or an error."""
        self._left -= 1
        if not self._left:
            raise RuntimeError("out of luck")
        self._pipeline.step()


def test_a_step_that_fails_ends_what_ran(start: Start, folder: Path) -> None:
    """Waiting sequences are answered by a new pipeline, and so are later ones."""
    make = pipeline_maker(settings(folder, max_sequences="2"), str(folder))
    made: list[Any] = []

    def failing() -> Any:
        made.append(Failing(make(), 5 if not made else -1))
        return made[-1]

    answers = start(failing, max_sequences="2")
    sequences = [answers.ask(5 + n, tokens=50) for n in range(4)]
    ends = [answers.end(one) for one in sequences]
    assert ends[:2] == [Failure("INTERNAL", "a step of the engine failed: out of luck")] * 2
    assert ends[2:] == ["length"] * 2
    assert len(made) == 2


def test_nothing_that_fails_ends_the_thread(start: Start, folder: Path) -> None:
    """A failure anywhere, not only in a step, ends running sequences with an error, and the next one is answered."""
    make = pipeline_maker(settings(folder), str(folder))
    made: list[Any] = []

    class Broken(Failing):
        def get_metrics(self) -> Any:
            raise RuntimeError("no metrics")

    def failing() -> Any:
        made.append(make() if made else Broken(make(), -1))
        return made[-1]

    answers = start(failing)
    assert answers.end(answers.ask(5)) == Failure("INTERNAL", "a step of the engine failed: no metrics")
    eventually(lambda: answers.counts.running == 0, "nothing is said to run")
    assert answers.end(answers.ask(5)) == "length"


def test_dropped_before_it_is_heard_of(start: Start) -> None:
    """A watcher may drop a sequence before the thread knows of it: nothing is lost."""
    answers = start()
    early = Sequence(task_of([5], 20, ignore_eos=True), time.monotonic())
    answers.engine.open.add(early)
    answers.engine.drop(early, Failure("CANCELLED", "gone"))
    assert answers.end(answers.ask(6)) == "length"
    answers.engine.submit(early)
    answers.engine.drop(early, Failure("CANCELLED", "gone"))
    assert answers.end(early) == Failure("CANCELLED", "gone")


def test_a_request_the_engine_refuses(start: Start) -> None:
    """Only this request gets an error."""
    answers = start()
    good = answers.ask(5, tokens=200)
    bad = answers.ask(5, tokens=4, min_tokens=9, ignore_eos=False)
    assert answers.end(bad).code == "INTERNAL"
    assert answers.end(good) == "length"


def test_closing_ends_everything(folder: Path) -> None:
    """Running and waiting sequences get an error immediately."""
    chosen = settings(folder, max_sequences="1")
    answers = Answers(chosen, pipeline_maker(chosen, str(folder)))
    sequences = [answers.ask(5 + n, tokens=LONG) for n in range(3)]
    answers.engine.close()
    assert [answers.end(one).code for one in sequences] == ["UNAVAILABLE"] * 3


def test_closing_ends_everything_where_the_engine_fails(folder: Path) -> None:
    """Every caller still gets the error."""
    chosen = settings(folder, max_sequences="1")
    make = pipeline_maker(chosen, str(folder))

    class Unstoppable(Failing):
        def has_non_finished_requests(self) -> bool:
            raise RuntimeError("out of luck")

    answers = Answers(chosen, lambda: Unstoppable(make(), -1))
    sequences = [answers.ask(5 + n, tokens=LONG) for n in range(3)]
    eventually(lambda: answers.tokens[sequences[0]], "it runs")
    answers.engine.close()
    assert [answers.end(one).code for one in sequences] == ["UNAVAILABLE"] * 3


class Collected:
    """A reply that keeps what was sent, and may fail or be given up by its caller."""

    def __init__(self, stop: tuple[str, ...] = (), fails: bool = False) -> None:
        self.text = AnswerText(word_tokenizer(), (), stop)
        self.deadline: float | None = None
        self.cancelled = False
        self.sent: list[Any] = []
        self._fails = fails

    def send(self, text: str, tokens: list[int], logprobs: list[float], end: str | None) -> None:
        """Keep what is sent."""
        if self._fails:
            raise RuntimeError("no way to send")
        self.sent.append((text, tokens, end))

    def fail(self, failure: Failure) -> None:
        """Keep the error."""
        self.sent.append(failure)

    def is_cancelled(self) -> bool:
        """Whether the test has cancelled it."""
        return self.cancelled

    def last(self) -> Any:
        """The error that ended it."""
        eventually(lambda: self.sent and self._ended(), "an answer ends")
        return self.sent[-1]

    def _ended(self) -> bool:
        last = self.sent[-1]
        return isinstance(last, Failure) or last[2] is not None


Send = Callable[..., Collected]


@pytest.fixture
def send(folder: Path) -> Iterator[Send]:
    """Ask an engine whose answers are sent as the backend sends them."""
    chosen = settings(folder, max_sequences="4")
    sending = Sending(lambda line: None)
    engine = Engine(chosen, pipeline_maker(chosen, str(folder)), sending.put, Counts())
    sending.start(engine)
    watch = Watch(engine, lambda: False, lambda line: None)

    def ask(tokens: int, deadline_s: float | None = None, **more: Any) -> Collected:
        reply = Collected(**more)
        now = time.monotonic()
        reply.deadline = None if deadline_s is None else now + deadline_s
        engine.submit(Sequence(task_of([5, 6], tokens, ignore_eos=True), now, reply))
        watch.wake()
        return reply

    yield ask
    watch.close()
    engine.close()
    sending.close()
    assert not engine.open


def test_replies_are_whole(send: Send) -> None:
    """Every token is sent once, in order, with its text."""
    reply = send(100)
    assert reply.last()[2] == "length"
    tokens = [token for _, part, _ in reply.sent for token in part]
    assert len(tokens) == 100
    assert "".join(text for text, _, _ in reply.sent).split() == [WORDS[token] for token in tokens if token != EOS]


def test_a_stop_string_stops_the_engine(send: Send) -> None:
    """The reply ends with the stop string, once; the engine gives the place to others."""
    whole = send(100)
    whole.last()
    words = "".join(text for text, _, _ in whole.sent).split()
    replies = [send(LONG, stop=(words[7],)) for _ in range(8)]
    for reply in replies:
        assert reply.last()[2] == "stop"
        text = "".join(text for text, _, _ in reply.sent)
        assert text.split() == words[: words.index(words[7])]


def test_callers_who_left_and_time_that_is_over(send: Send) -> None:
    """Sequences of callers who left end long before their last token."""
    gone, late, good = send(LONG), send(LONG, deadline_s=0.0), send(300)
    gone.cancelled = True
    assert (gone.last().code, gone.last().outcome) == ("CANCELLED", "cancelled")
    assert (late.last().code, late.last().outcome) == ("UNAVAILABLE", "deadline")
    assert good.last()[2] == "length"


def test_a_reply_that_cannot_be_sent(send: Send) -> None:
    """The reply is sent as an error instead, and no other is harmed."""
    bad, good = send(LONG, fails=True), send(200)
    assert bad.last().code == "INTERNAL"
    assert good.last()[2] == "length"
