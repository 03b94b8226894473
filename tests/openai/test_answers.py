"""Answers, whole and in chunks; choices and their seeds; vectors; events."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from starlette.requests import ClientDisconnect

from tritonkit.client.wire.signature import ModelSignature, TensorSpec
from tritonkit.openai.answers import Completion
from tritonkit.openai.bodies import ChatBody, CompletionBody
from tritonkit.openai.catalog import tasks_of
from tritonkit.openai.embeddings import encoded
from tritonkit.openai.events import Events, attended, event
from tritonkit.openai.generation import choices
from tritonkit.openai.piece import Piece
from tritonkit.openai.problems import Problem

PIECES = [
    Piece(1, "b", (5,), (-0.5,)),
    Piece(0, "", ()),
    Piece(0, "a", (6, 7), (-1.0, -2.0)),
    Piece(0, "", (), (), "stop", 9),
    Piece(1, "c", (8,), (-0.25,), "length", 9),
]


def signature(inputs: dict[str, str], **outputs: str) -> ModelSignature:
    """A model's, by datatypes."""
    specs = {name: TensorSpec(name, datatype, (1,), optional=True) for name, datatype in inputs.items()}
    made = {name: TensorSpec(name, datatype, (-1,)) for name, datatype in outputs.items()}
    return ModelSignature("m", ("1",), 0, specs, made)


def test_a_whole_answer_has_its_choices_apart() -> None:
    """However their pieces were mixed; the prompt that they share is counted once."""
    answer = Completion("m", chat=True, choices=2, per_prompt=2, logprobs=True)
    for piece in PIECES:
        answer.add(piece)
    whole = answer.whole()
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["a", "bc"]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]
    assert whole["usage"] == {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    second = whole["choices"][1]["logprobs"]["content"]
    assert [(token["token"], token["logprob"]) for token in second] == [("token_id:5", -0.5), ("token_id:8", -0.25)]


def test_prompts_of_their_own_are_counted_each() -> None:
    """A completion of two prompts."""
    answer = Completion("m", chat=False, choices=2, keep=False)
    for piece in PIECES:
        answer.add(piece)
    assert answer.usage()["prompt_tokens"] == 18


def test_chunks_begin_with_the_role() -> None:
    """Each choice's first one only; the last event has the usage and no choice."""
    answer = Completion("m", chat=True, choices=2, per_prompt=2, keep=False)
    chunks = []
    for piece in PIECES:
        answer.add(piece)
        chunks.append(answer.chunk(piece, with_usage=True))
    assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks] == [
        "assistant",
        "assistant",
        None,
        None,
        None,
    ]
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert len({chunk["id"] for chunk in chunks} | {answer.last()["id"]}) == 1
    assert (answer.last()["choices"], answer.last()["usage"]["completion_tokens"]) == ([], 4)


def chat(**more: Any) -> ChatBody:
    """A chat's body."""
    return ChatBody.model_validate({"model": "m", "messages": [{"role": "developer", "content": "x"}]} | more)


def test_seeds_of_choices_differ() -> None:
    """The first seed is the caller's, none leaves INT64, and without one they are drawn again each time."""
    takes = signature({"messages": "BYTES", "seed": "INT64"})
    seeds = [choice["seed"][0] for choice in choices(chat(n=3, seed=2**63 - 2), takes)]
    assert seeds == [2**63 - 2, 2**63 - 1, 0]
    assert choices(chat(seed=-5), takes)[0]["seed"] == [-5]
    assert "seed" not in choices(chat(), takes)[0]
    one, two = ([choice["seed"][0] for choice in choices(chat(n=2), takes)] for _ in range(2))
    assert len({*one, *two}) == 4


def test_a_developer_is_the_system_for_templates() -> None:
    """Templates know no other name for a developer."""
    made = choices(chat(), signature({"messages": "BYTES"}))
    assert json.loads(made[0]["messages"][0]) == [{"role": "system", "content": "x"}]


@pytest.mark.parametrize(
    ("more", "param"),
    [({"top_k": 1}, "top_k"), ({"n": 2}, "n"), ({"seed": 1}, "seed"), ({"logprobs": True}, "logprobs")],
)
def test_a_setting_that_the_model_lacks_is_refused(more: dict[str, Any], param: str) -> None:
    """`n` where the model takes no seed, without which all answers might be the same."""
    with pytest.raises(Problem) as caught:
        choices(chat(**more), signature({"messages": "BYTES"}))
    assert caught.value.param == param


def test_prompts_come_one_after_the_other() -> None:
    """Each with its choices, as OpenAI numbers them."""
    body = CompletionBody.model_validate({"model": "m", "prompt": ["a", "b"], "n": 2, "seed": 1})
    made = choices(body, signature({"text": "BYTES", "seed": "INT64"}))
    assert [(call["text"], call["seed"]) for call in made] == [(["a"], [1]), (["a"], [2]), (["b"], [1]), (["b"], [2])]


def test_tasks_are_read_from_a_model_s_tensors() -> None:
    """Names and types of tensors decide; a model of pictures has no task."""
    made = {"text": "BYTES", "tokens": "INT64", "finish_reason": "BYTES", "prompt_tokens": "INT32"}
    assert tasks_of(signature({"text": "BYTES", "messages": "BYTES"}, **made)) == {"chat", "completion"}
    assert tasks_of(signature({"text": "BYTES"}, **made)) == {"completion"}
    assert tasks_of(signature({"image": "BYTES"}, label="BYTES")) == set()
    text = {"text": TensorSpec("text", "BYTES", (1,))}
    vector = {"embedding": TensorSpec("embedding", "FP32", (384,))}
    assert tasks_of(ModelSignature("m", ("1",), 8, text, vector)) == {"embedding"}


def test_a_vector_is_the_same_in_both_forms() -> None:
    """Base64 is of float32, the lowest byte first."""
    vector = np.array([1 / 3, -2.5, 1e-20], np.float32)
    text = encoded(vector, "base64")
    assert isinstance(text, str)
    assert np.frombuffer(base64.b64decode(text), "<f4").tolist() == encoded(vector, "float")


def test_an_event_is_one_line() -> None:
    """Whatever its text holds."""
    text = "a\nb\r\n\u2028\u00fc\x00"
    framed = event({"text": text})
    assert framed.startswith(b"data: {")
    assert framed.endswith(b"}\n\n")
    assert framed.decode().splitlines()[1:] == [""]
    assert json.loads(framed.removeprefix(b"data: ")) == {"text": text}


def test_a_response_begins_with_its_first_event() -> None:
    """An error before the first event can thus have a status."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def program() -> None:
        events = Events(send)
        assert not events.begun
        await events.write(b"one")
        await events.write(b"two")
        await events.end()

    asyncio.run(program())
    assert [part.get("status", part.get("body")) for part in sent] == [200, b"one", b"two", b""]


def test_work_ends_with_its_caller() -> None:
    """It is cancelled, and waited for."""
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def program() -> None:
        with pytest.raises(ClientDisconnect):
            await attended(receive, work())
        assert ended == [True]

    asyncio.run(program())
