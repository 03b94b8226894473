"""Bodies of requests: what is taken, and what is refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tritonkit.openai.bodies import ChatBody, CompletionBody, EmbeddingBody, read_body
from tritonkit.openai.problems import Problem

HELLO = {"role": "user", "content": "hello"}


def chat(**more: Any) -> ChatBody:
    """A chat's body with these parameters."""
    return read_body(ChatBody, json.dumps({"model": "m", "messages": [HELLO]} | more).encode())


def refused(body: dict[str, Any] | bytes, kind: Any = ChatBody) -> Problem:
    """The problem of a body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(Problem) as caught:
        read_body(kind, data)
    assert caught.value.status == 400
    return caught.value


def test_every_setting_reaches_the_model_under_its_name() -> None:
    """As lists, which is how inputs of shape [1] are given."""
    given = {
        "max_tokens": 3, "min_tokens": 1, "temperature": 0, "top_p": 0.5, "top_k": 4,
        "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 1.5,
        "ignore_eos": True,
    }  # fmt: skip
    wanted = {name: [value] for name, value in given.items()} | {"stop": ["a", "b"]}
    assert chat(**given, stop=["a", "b"]).settings() == wanted
    assert chat(stop="a").settings() == {"stop": ["a"]}
    assert chat(max_completion_tokens=7).settings() == {"max_tokens": [7]}
    assert chat().settings() == {}


def test_null_is_as_good_as_nothing() -> None:
    """As OpenAI takes it, for every parameter."""
    names = (*ChatBody.model_fields.keys() - {"model", "messages"}, "tools", "logit_bias", "audio")
    assert chat(**dict.fromkeys(names)) == chat()


def test_what_changes_no_answer_is_taken() -> None:
    """Names of a caller, and values that ask for nothing."""
    nothing = {
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "logit_bias": {},
    }
    assert chat(user="me", metadata={"a": "b"}, store=False, top_logprobs=0, **nothing) == chat()


@pytest.mark.parametrize(
    "parameter",
    [
        {"tools": [{"type": "function"}]}, {"response_format": {"type": "json_object"}}, {"logit_bias": {"1": 5}},
        {"functions": [{}]}, {"audio": {"voice": "x"}}, {"top_logprobs": 2}, {"tool_choice": "required"},
        {"top_logprobs": False}, {"dimensions": 8}, {"prediction": {}},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(parameter: dict[str, Any]) -> None:
    """And never left out without a word."""
    problem = refused({"model": "m", "messages": [HELLO]} | parameter)
    assert (problem.param, problem.code) == (next(iter(parameter)), "unsupported_parameter")


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ({"temperature": 3}, "temperature"), ({"temperature": "1"}, "temperature"), ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"), ({"max_tokens": True}, "max_tokens"),
        ({"n": 17}, "n"), ({"stop": [""]}, "stop.0"), ({"stop": ["x"] * 17}, "stop"), ({"seed": 2**63}, "seed"),
        ({"stream": 1}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"), ({"messages": []}, "messages"),
        ({"messages": [HELLO] * 1025}, "messages"), ({"model": ""}, "model"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [HELLO, {"role": "user"}]}, "messages.1.content"),
        ({"messages": [{**HELLO, "tool_calls": [{}]}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_value_is_named(parameter: dict[str, Any], name: str) -> None:
    """The parameter, and where it is a list the place in it."""
    problem = refused({"model": "m", "messages": [HELLO]} | parameter)
    assert problem.param == name
    assert problem.message.startswith(f"{name}: ")


def test_unknown_and_missing_parameters_are_named() -> None:
    """A word that is misspelled does not do nothing."""
    unknown = refused({"model": "m", "messages": [HELLO], "temprature": 1})
    assert (unknown.param, unknown.code) == ("temprature", "unknown_parameter")
    missing = refused({"messages": [HELLO]})
    assert (missing.param, missing.code) == ("model", "missing_required_parameter")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a": "\\ud800"}'],
    ids=lambda body: repr(body[:12]),
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """However deep it is nested."""
    assert refused(body).code == "invalid_json"


def test_parts_of_text_are_one_text() -> None:
    """And a message that a client sends back as it was answered is one, too."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    back = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None}
    body = chat(messages=[{"role": "user", "content": parts}, back])
    assert [message.content for message in body.messages] == ["ab", "x"]


def test_prompts_and_answers_are_bounded_together() -> None:
    """Each answer is a sequence for the model."""
    body = {"model": "m", "prompt": ["a"] * 6, "n": 3}
    assert refused(body, CompletionBody).param == "n"
    assert read_body(CompletionBody, json.dumps(body | {"n": 2}).encode()).n == 2


@pytest.mark.parametrize(
    "text", [[1, 2], [[1]], "", [], ["a"] * 2049, [""]], ids=lambda t: str(t)[:9]
)
def test_texts_to_embed_are_texts(text: Any) -> None:
    """Not tokens, which a server of another model would read otherwise; not empty, and not too many."""
    assert str(refused({"model": "m", "input": text}, EmbeddingBody).param).startswith("input")
