"""Language models in a real Triton: many streams, callers who leave, mistakes among good requests."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import openvino
import openvino_genai
import pytest

from tests.python_backends.llm_network import CONTEXT, EOS, WORDS, write_model
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import DeadlineExceeded, InferenceError, InvalidInput
from tritonkit.serve import Endpoint, serve

CONFIG = """name: "%s"
backend: "llm"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [
  { name: "text" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "messages" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [1] optional: true },
  { name: "min_tokens" data_type: TYPE_INT32 dims: [1] optional: true },
  { name: "temperature" data_type: TYPE_FP32 dims: [1] optional: true },
  { name: "top_p" data_type: TYPE_FP32 dims: [1] optional: true },
  { name: "top_k" data_type: TYPE_INT32 dims: [1] optional: true },
  { name: "repetition_penalty" data_type: TYPE_FP32 dims: [1] optional: true },
  { name: "presence_penalty" data_type: TYPE_FP32 dims: [1] optional: true },
  { name: "frequency_penalty" data_type: TYPE_FP32 dims: [1] optional: true },
  { name: "seed" data_type: TYPE_INT64 dims: [1] optional: true },
  { name: "stop" data_type: TYPE_STRING dims: [-1] optional: true },
  { name: "ignore_eos" data_type: TYPE_BOOL dims: [1] optional: true },
  { name: "logprobs" data_type: TYPE_BOOL dims: [1] optional: true }
]
output [
  { name: "text" data_type: TYPE_STRING dims: [1] },
  { name: "tokens" data_type: TYPE_INT64 dims: [-1] },
  { name: "logprobs" data_type: TYPE_FP32 dims: [-1] },
  { name: "finish_reason" data_type: TYPE_STRING dims: [1] },
  { name: "prompt_tokens" data_type: TYPE_INT32 dims: [1] }
]
instance_group [ { kind: KIND_CPU count: 1 } ]
model_warmup [ { name: "first" batch_size: 1
  inputs { key: "text" value { data_type: TYPE_STRING dims: [1] input_data_file: "text" } }
  inputs { key: "max_tokens" value { data_type: TYPE_INT32 dims: [1] input_data_file: "max_tokens" } }
} ]
"""
LONG = 8000
"""Tokens of an answer that takes seconds."""
OUTCOMES = ("stop", "length", "cancelled", "deadline", "refused", "invalid", "failed")
PHASES = ("prefill", "decode")
LONG_ANSWER = {"text": "w5", "max_tokens": LONG, "ignore_eos": True}


def parameters(**values: str) -> str:
    """Parameters of a configuration."""
    entry = 'parameters { key: "%s" value { string_value: "%s" } }\n'
    return "".join(entry % pair for pair in values.items())


def write_served(folder: Path, **values: str) -> None:
    """A model's folder; its first request, at the start, asks for one token: Triton takes one response there."""
    write_model(folder / "1", context=int(values.get("context", CONTEXT)))
    (folder / "config.pbtxt").write_text(CONFIG % folder.name + parameters(**values))
    (folder / "warmup").mkdir()
    (folder / "warmup" / "text").write_bytes(struct.pack("<I", 2) + b"w5")
    (folder / "warmup" / "max_tokens").write_bytes(struct.pack("<i", 1))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model of eight places, one whose single place has no queue, and one for counting."""
    repository = tmp_path_factory.mktemp("llm") / "repository"
    write_served(repository / "tiny", cache_mib="1", threads="1", max_sequences="8")
    write_served(repository / "measured", cache_mib="1", threads="1")
    write_served(repository / "narrow", cache_mib="2", threads="1", max_sequences="1", max_waiting="0", context="8192")
    return repository


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Endpoint]:
    """A Triton with these."""
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0) as endpoint:
        yield endpoint


@pytest.fixture
def client(server: Endpoint) -> Iterator[Client]:
    """A client of it."""
    with Client(server.grpc, timeout_s=PATIENCE_S) as client:
        yield client


def prompt(number: int) -> str:
    """One of many prompts, all different."""
    return " ".join(WORDS[10 + (number * 7 + place) % 150] for place in range(3 + number % 9))


def answer(client: Client, model: str = "tiny", **inputs: Any) -> tuple[str, list[int], dict[str, Any]]:
    """The whole text and all tokens of an answer, and its last reply."""
    text, tokens, last = "", [], {}
    for reply in client.model(model).stream(inputs=inputs):
        text += reply["text"].item().decode()
        tokens += reply["tokens"].tolist()
        last = {name: reply[name] for name in reply}
    return text, tokens, last


def gauge(server: Endpoint, name: str, model: str = "tiny", **labels: str) -> float:
    """A metric's value; -1 where there is none."""
    with urlopen(f"http://{server.metrics}/metrics", timeout=PATIENCE_S) as page:
        text = page.read().decode()
    for written, value in re.findall(rf"^tritonkit_llm_{name}{{(.*?)}} (\S+)$", text, re.MULTILINE):
        has = dict(re.findall(r'(\w+)="(.*?)"', written))
        if all(has.get(key) == wanted for key, wanted in ({"model": model} | labels).items()):
            return float(value)
    return -1.0


def outcomes(server: Endpoint, model: str) -> dict[str, float]:
    """Requests that have ended, by their outcome."""
    return {outcome: gauge(server, "requests_total", model, outcome=outcome) for outcome in OUTCOMES}


def test_a_stream_of_one_answer(client: Client) -> None:
    """Text and tokens come in parts that belong together; the last says why it ended."""
    text, tokens, last = answer(client, text=prompt(1), max_tokens=20, ignore_eos=True, logprobs=True)
    assert len(tokens) == 20
    assert text.split() == [WORDS[token] for token in tokens if token != EOS]
    assert last["finish_reason"].item() == b"length"
    assert last["prompt_tokens"].item() == len(prompt(1).split())
    assert len(last["logprobs"]) == len(last["tokens"])
    assert (last["logprobs"] < 0).all()


def test_many_streams_at_once_are_unmixed(repository: Path, client: Client) -> None:
    """100, more than there are places: each is what the engine in this process says to its prompt alone."""
    inputs = [{"text": prompt(n), "max_tokens": 20 + n % 40, "ignore_eos": True} for n in range(100)]
    with ThreadPoolExecutor(len(inputs)) as pool:
        answers = list(pool.map(lambda request: answer(client, **request), inputs))
    expected = greedy(repository / "tiny" / "1", [(prompt(n), 20 + n % 40) for n in range(100)])
    assert [tokens for _, tokens, _ in answers] == expected
    assert [text.split() for text, _, _ in answers] == [
        [WORDS[token] for token in tokens if token != EOS] for tokens in expected
    ]
    assert len({text for text, _, _ in answers}) == len(inputs)


def greedy(folder: Path, prompts: list[tuple[str, int]]) -> list[list[int]]:
    """The engine's tokens for one prompt after another, a given number for each."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = 32
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        str(folder), scheduler, "CPU", {"KV_CACHE_PRECISION": "f16", "INFERENCE_PRECISION_HINT": "f32"}
    )
    answers = []
    for number, (text, count) in enumerate(prompts):
        ids = np.array([[WORDS.index(word) for word in text.split()]], np.int64)
        options = openvino_genai.GenerationConfig(max_new_tokens=count, ignore_eos=True)
        handle = pipeline.add_request(number, openvino.Tensor(ids), options)
        tokens: list[int] = []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            tokens += [token for output in handle.read().values() for token in output.generated_ids]
        answers.append(tokens)
    return answers


def test_tokens_leave_as_they_come(client: Client) -> None:
    """One by one, also where many sequences run: none waits until the server gets round to it."""

    def sizes(number: int) -> list[int]:
        inputs = {"text": prompt(number), "max_tokens": 40, "ignore_eos": True}
        replies = client.model("tiny").stream(inputs=inputs)
        return [len(reply["tokens"]) for reply in replies]

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(sizes, range(16))) == [[1] * 40] * 16


def test_sampling_is_repeatable(client: Client) -> None:
    """The same seed gives the same text; another seed, or none, gives another."""
    inputs = {"text": prompt(2), "max_tokens": 30, "temperature": 2.0, "ignore_eos": True}
    first = answer(client, **inputs, seed=7)[1]
    assert answer(client, **inputs, seed=7)[1] == first
    others = [answer(client, **inputs, seed=8)[1], *(answer(client, **inputs)[1] for _ in range(2))]
    assert len({tuple(tokens) for tokens in [first, *others]}) == 4


def test_a_stop_string_ends_the_text(client: Client) -> None:
    """Before it, also where it is longer than one token."""
    text, tokens, _ = answer(client, text=prompt(3), max_tokens=40, ignore_eos=True)
    words = text.split()
    stop = f" {words[9]} {words[10]}"
    found, seen, last = answer(client, text=prompt(3), max_tokens=40, ignore_eos=True, stop=["never", stop])
    assert found == text[: text.index(stop)]
    assert last["finish_reason"].item() == b"stop"
    assert seen == tokens[: len(seen)]
    assert len(seen) < 40


def test_messages(client: Client) -> None:
    """They are put into the template."""
    messages = json.dumps([{"role": "user", "content": "w5 w6"}])
    assert (
        answer(client, messages=messages, max_tokens=5)[0] == answer(client, text="<user> w5 w6 <bot>", max_tokens=5)[0]
    )


def test_mistakes_among_good_requests(client: Client) -> None:
    """Each has its own error, and the others their answers."""
    expected = answer(client, text=prompt(4), max_tokens=50, ignore_eos=True)[1]

    def ask(number: int) -> Any:
        good = {"text": prompt(4), "max_tokens": 50, "ignore_eos": True}
        bad: list[dict[str, Any]] = [
            {"max_tokens": 0},
            {"max_tokens": CONTEXT},
            {"temperature": float("nan")},
            {"top_p": 0.0},
            {"text": b"\xff"},
            {"text": "w9 " * CONTEXT},
            {"messages": "[]"},
            {"stop": [""]},
        ]
        if number % 2:
            return answer(client, **good)[1]
        with pytest.raises((InferenceError, InvalidInput), match="found") as refused:
            answer(client, **(good | bad[number // 2]))
        return refused.value

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(ask, range(16)))
    assert results[1::2] == [expected] * 8


def leave(client: Client) -> None:
    """Read the beginning of a long answer, and go."""
    with client.model("narrow").stream(inputs=LONG_ANSWER) as replies:
        next(replies)


def be_late(client: Client) -> None:
    """Wait for a long answer, but not for long."""
    with pytest.raises(DeadlineExceeded):
        list(client.model("narrow").stream(inputs=LONG_ANSWER, timeout_s=1.5))


@pytest.mark.parametrize("go", [leave, be_late])
def test_leaving_frees_the_place(server: Endpoint, client: Client, go: Callable[[Client], None]) -> None:
    """The one place of a model is free for the next, long before the answer would have ended."""

    def tokens() -> float:
        return gauge(server, "tokens_total", "narrow")

    # A caller that is late also leaves: either may be seen first.
    which = ("cancelled",) if go is leave else ("cancelled", "deadline")

    def gone() -> float:
        return sum(gauge(server, "requests_total", "narrow", outcome=outcome) for outcome in which)

    before, gone_before = tokens(), gone()
    go(client)
    eventually(lambda: tokens() > before and not gauge(server, "running", "narrow"), "it is gone")
    assert tokens() < before + LONG
    # Metrics come one by one.
    eventually(lambda: gauge(server, "cache_usage", "narrow") == 0, "its pages are free")
    eventually(lambda: gone() == gone_before + 1, "it is counted")
    assert len(answer(client, "narrow", text="w5", max_tokens=9, ignore_eos=True)[1]) == 9
    eventually(lambda: not gauge(server, "running", "narrow"), "the place is free")


def test_more_than_may_wait(server: Endpoint, client: Client) -> None:
    """They are refused immediately; the first caller gets the whole answer."""
    refused = gauge(server, "requests_total", "narrow", outcome="refused")
    with client.model("narrow").stream(inputs=LONG_ANSWER) as replies:
        tokens = next(replies)["tokens"].tolist()
        for _ in range(5):
            with pytest.raises(InferenceError, match="0 requests wait already"):
                answer(client, "narrow", text="w5")
        tokens += [token for reply in replies for token in reply["tokens"].tolist()]
    assert len(tokens) == LONG
    eventually(lambda: gauge(server, "requests_total", "narrow", outcome="refused") == refused + 5, "they are counted")


def test_what_is_measured(server: Endpoint, client: Client) -> None:
    """Tokens are counted, and both times have as many values as they should."""
    histograms = ("first_token_seconds_count", "between_tokens_seconds_count")
    names = ("tokens_total", "prompt_tokens_total", *histograms)
    answer(client, "measured", text="w5 w6 w7", max_tokens=11, ignore_eos=True)
    # Two requests of one token, before Triton is ready and by `serve`, are the others.
    counts = [13, 5, 3, 10]
    eventually(lambda: [gauge(server, name, "measured") for name in names] == counts, "the counters rise")
    wanted_ends = dict.fromkeys(OUTCOMES, 0.0) | {"length": 3.0}
    eventually(lambda: outcomes(server, "measured") == wanted_ends, "the ends are counted")
    with pytest.raises(InferenceError, match="top_p"):
        answer(client, "measured", text="w5", top_p=0.0)
    wanted_ends["invalid"] = 1.0
    eventually(lambda: outcomes(server, "measured") == wanted_ends, "the caller's mistake is counted")
    steps = {phase: gauge(server, "steps_total", "measured", phase=phase) for phase in PHASES}
    assert steps == {"prefill": 3, "decode": 10}
    assert gauge(server, "step_seconds_total", "measured", phase="decode") > 0
    assert gauge(server, "preemptions_total", "measured") == 0
    assert gauge(server, "stalled", "measured") == 0
    assert gauge(server, "waiting", "measured") == 0
    eventually(lambda: gauge(server, "running", "measured") == 0, "nothing runs")
