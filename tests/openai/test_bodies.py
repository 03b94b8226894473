"""Bodies of requests: what is taken, and what is refused by its name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.conftest import PROJECT
from tritonkit.openai.bodies import (
    _IGNORED,
    _REFUSED,
    ChatBody,
    ClassifyBody,
    CompletionBody,
    EmbeddingBody,
    RerankBody,
    read_body,
)
from tritonkit.openai.forms import _REFUSED as REFUSED_FIELDS
from tritonkit.openai.forms import TranscriptionBody
from tritonkit.openai.problems import Problem

HELLO = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(**more: Any) -> ChatBody:
    """A chat's body with these parameters."""
    return read_body(ChatBody, json.dumps({"model": "m", "messages": [HELLO]} | more).encode())


def called(call: dict[str, Any]) -> dict[str, Any]:
    """A message with a call."""
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CALLED = "messages.0.tool_calls.0.function.arguments"


def refused(body: dict[str, Any] | bytes, kind: Any = ChatBody) -> Problem:
    """The problem of a body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(Problem) as caught:
        read_body(kind, data)
    assert caught.value.status == 400
    return caught.value


def test_every_setting_reaches_the_model_under_its_name() -> None:
    """Settings are lists, because inputs have shape [1]."""
    settings = {
        "max_tokens": 3,
        "min_tokens": 1,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 4,
        "repetition_penalty": 1.1,
        "presence_penalty": -1,
        "frequency_penalty": 1.5,
        "ignore_eos": True,
    }
    expected = {name: [value] for name, value in settings.items()} | {"stop": ["a", "b"]}
    assert chat(**settings, stop=["a", "b"]).settings() == expected
    assert chat(stop="a").settings() == {"stop": ["a"]}
    assert chat(max_completion_tokens=7).settings() == {"max_tokens": [7]}
    assert chat().settings() == {}


def test_null_is_as_good_as_nothing() -> None:
    """OpenAI accepts null for every parameter, and so does this."""
    names = (*ChatBody.model_fields.keys() - {"model", "messages"}, "tools", "logit_bias", "audio")
    assert chat(**dict.fromkeys(names)) == chat()


def test_what_changes_no_answer_is_taken() -> None:
    """Names of a caller, and values that ask for nothing."""
    nothing = {"tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "logit_bias": {}}
    assert chat(user="me", metadata={"a": "b"}, store=False, top_logprobs=0, **nothing) == chat()


@pytest.mark.parametrize(
    "parameter",
    [
        {"logit_bias": {"1": 5}},
        {"functions": [{}]},
        {"audio": {"voice": "x"}},
        {"top_logprobs": 2},
        {"parallel_tool_calls": False, "tools": [TOOL]},
        {"response_format": {"type": "json_object"}, "tools": [TOOL]},
        {"top_logprobs": False},
        {"dimensions": 8},
        {"prediction": {}},
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused(parameter: dict[str, Any]) -> None:
    """And never left out without a word."""
    problem = refused({"model": "m", "messages": [HELLO]} | parameter)
    assert (problem.param, problem.code) == (next(iter(parameter)), "unsupported_parameter")


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": 129}, "n"),
        ({"stop": [""]}, "stop.0"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [HELLO] * 1025}, "messages"),
        ({"model": ""}, "model"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
        ({"messages": [{**HELLO, "tool_call_id": "x"}]}, "messages.0"),
        ({"messages": [{**HELLO, "tool_calls": [CALL]}]}, "messages.0"),
        ({"messages": [called(CALL | {"function": {"name": "f", "arguments": "["}})]}, CALLED),
        ({"messages": [called(CALL | {"function": {"name": "f", "arguments": "[]"}})]}, CALLED),
        ({"messages": [called(CALL | {"function": {"name": "f", "arguments": {}}})]}, CALLED),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [TOOL]}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
        ),
        ({"messages": [HELLO, {"role": "user"}]}, "messages.1.content"),
        ({"messages": [{**HELLO, "tool_calls": [{}]}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named(parameter: dict[str, Any], name: str) -> None:
    """The parameter, and where it is a list the place in it."""
    problem = refused({"model": "m", "messages": [HELLO]} | parameter)
    assert problem.param == name
    assert problem.message.startswith(f"{name}: ")


def test_unknown_and_missing_parameters_are_named() -> None:
    """A word that is misspelled does not do nothing."""
    unknown = refused({"model": "m", "messages": [HELLO], "temprature": 1})
    assert (unknown.param, unknown.code) == ("temprature", "unknown_parameter")
    without = refused({"model": "m", "messages": [HELLO], "response_format": {"type": "json_schema"}})
    assert (without.message, without.code) == (
        "response_format.json_schema: it is missing",
        "missing_required_parameter",
    )
    missing = refused({"messages": [HELLO]})
    assert (missing.param, missing.code) == ("model", "missing_required_parameter")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a": "\\ud800"}'],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """However deep it is nested."""
    assert refused(body).code == "invalid_json"


def test_parts_of_text_are_one_text() -> None:
    """And a message that a client sends back as it was answered is one, too."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    back = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None}
    body = chat(messages=[{"role": "user", "content": parts}, back])
    assert [message.content for message in body.messages] == ["ab", "x"]


@pytest.mark.parametrize(("kind", "word"), [("image_url", "images"), ("input_audio", "sound"), ("video_url", "videos")])
def test_a_part_that_no_model_reads_is_named(kind: str, word: str) -> None:
    """The message says what the models take."""
    problem = refused({"model": "m", "messages": [{"role": "user", "content": [{"type": kind, kind: {}}]}]})
    assert (
        f"a part has the type {kind}; the language models behind this server read text, not {word}" in problem.message
    )


def test_prompts_and_answers_are_bounded_together() -> None:
    """Each answer is a sequence for the model."""
    body = {"model": "m", "prompt": ["a"] * 6, "n": 22}
    assert refused(body, CompletionBody).param == "n"
    assert read_body(CompletionBody, json.dumps(body | {"n": 21}).encode()).n == 21


@pytest.mark.parametrize(
    "text",
    ["", [], ["a"] * 2049, [""], [[]], [-1], [True], [1.0], [1, "a"], ["a", [1]], [[1, "a"]], [[1] * 2049], 5],
    ids=lambda t: str(t)[:9],
)
def test_texts_to_embed_are_texts(text: Any) -> None:
    """Or tokens; not both, not empty, and not too many."""
    assert str(refused({"model": "m", "input": text}, EmbeddingBody).param).startswith("input")


def test_tokens_to_embed() -> None:
    """One list is one input; texts stay texts."""
    for value, expected in (([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ("a", ["a"]), (["a", "b"], ["a", "b"])):
        body = read_body(EmbeddingBody, json.dumps({"model": "m", "input": value}).encode())
        assert body.input == expected


@pytest.mark.parametrize("name", ["bob", "", None])
def test_the_name_of_an_author_is_taken(name: Any) -> None:
    """Frameworks with several agents send it; it changes nothing."""
    assert chat(messages=[{**HELLO, "name": name}]) == chat()
    problem = refused({"model": "m", "messages": [{**HELLO, "name": 3}]})
    assert problem.param == "messages.0"


def test_tools_and_formats_reach_the_model() -> None:
    """They are JSON there; a null within a schema is a value, and a tool that is not offered is left out."""
    schema = {"type": "object", "properties": {"a": {"const": None, "description": "null"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": None}}
    [sent] = chat(response_format=form).settings()["response_format"]
    assert json.loads(sent) == {"type": "json_schema", "json_schema": {"schema": schema}}
    tool = {"type": "function", "function": {"name": "f", "description": None, "parameters": schema, "strict": True}}
    choice = {"type": "function", "function": {"name": "f"}}
    forced = chat(tools=[tool], tool_choice=choice)
    assert [tool.shown()["function"] for tool in forced.offered] == [{"name": "f", "parameters": schema}]
    assert json.loads(forced.settings()["tool_choice"][0]) == choice
    none = chat(tools=[tool], tool_choice="none", response_format={"type": "json_object"})
    assert (none.offered, none.forced) == ([], False)
    assert none.settings() == {"response_format": ['{"type": "json_object"}']}


def test_strict_arguments_need_a_demanded_call() -> None:
    """The model's own calls are not held to a schema."""
    strict = {"type": "function", "function": {"name": "f", "strict": True}}
    problem = refused({"model": "m", "messages": [HELLO], "tools": [strict]})
    assert (problem.param, problem.code) == ("tools.0.function.strict", "unsupported_parameter")


def test_a_history_of_calls_is_the_template_s() -> None:
    """Arguments are an object there, and no content is an empty one."""
    history = [HELLO, called(CALL), {"role": "tool", "tool_call_id": "1", "content": "sun"}]
    shown = [message.shown() for message in chat(messages=history).messages]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}
    assert shown[0] == HELLO
    assert shown[1]["tool_calls"][0]["function"] == call["function"]
    assert (shown[1]["content"], shown[2]) == ("", {"role": "tool", "content": "sun", "tool_call_id": "1"})


def test_null_is_nothing_at_any_depth() -> None:
    """In options, messages and parts."""
    part = {"type": "text", "text": "hello", "annotations": None}
    deep = chat(
        stream=True,
        stream_options={"include_usage": None},
        response_format={"type": "text", "json_schema": None},
        messages=[{"role": "user", "name": None, "content": [part]}],
    )
    assert deep == chat(stream=True, stream_options={})
    assert refused({"model": None, "messages": [HELLO]}).code == "missing_required_parameter"


def test_nothing_of_top_p_is_the_likeliest_token() -> None:
    """OpenAI takes 0, and engines do not."""
    assert 0 < chat(top_p=0).settings()["top_p"][0] < 1e-5
    assert chat(top_p=1).settings()["top_p"] == [1]


def test_answers_of_which_the_best_are_wanted() -> None:
    """`best_of` is fine where all are given."""
    body = {"model": "m", "prompt": "a", "n": 3}
    assert read_body(CompletionBody, json.dumps(body | {"best_of": 3}).encode()).n == 3
    for more in ({"best_of": 4}, {"logprobs": 1}, {"logprobs": 5}, {"echo": True}, {"suffix": "x"}):
        assert refused(body | more, CompletionBody).code == "unsupported_parameter"
    assert refused(body | {"logprobs": 6}, CompletionBody).code == "invalid_value"


RANGES: dict[str, tuple[Any, Any]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "n": (1, 128),
    "seed": (-(2**63), 2**63 - 1),
}
"""The bounds are those that OpenAI publishes; both ends are allowed."""
PUBLISHED = {
    ChatBody: "messages model audio frequency_penalty function_call functions logit_bias logprobs "
    "max_completion_tokens max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty "
    "prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop "
    "store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options",
    CompletionBody: "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty "
    "seed stop stream stream_options suffix temperature top_p user",
    EmbeddingBody: "input model dimensions encoding_format user",
    RerankBody: "model query documents top_n return_documents",
    ClassifyBody: "model input user",
    TranscriptionBody: "model chunking_strategy include known_speaker_names known_speaker_references language prompt "
    "response_format stream temperature timestamp_granularities",
}
"""The parameters of OpenAI's reference, of each of its paths; those of reranking and classification are Jina's and
vLLM's."""


@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_the_published_ones(name: str) -> None:
    """Both ends are taken, and nothing beyond them."""
    low, high = RANGES[name]
    step = 1 if isinstance(high, int) and name in ("n", "seed") else 1e-6
    for value in (low, high):
        assert getattr(chat(**{name: value}), name) == value
    for value in (low - step, high + step):
        problem = refused({"model": "m", "messages": [HELLO], name: value})
        assert problem.param == name


def test_the_page_has_a_line_for_each_parameter() -> None:
    """docs/openai.md says honored, ignored or refused as the code does, and has all that OpenAI publishes."""
    page = (PROJECT / "docs" / "openai.md").read_text().split("## Parameters")[1].split("## Tools")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    of = {
        ChatBody: "chats",
        CompletionBody: "completions",
        EmbeddingBody: "embeddings",
        RerankBody: "reranking",
        ClassifyBody: "classification",
        TranscriptionBody: "transcription",
    }
    others = {path: set(REFUSED_FIELDS if path == "transcription" else ()) for path in of.values()}
    for kind, path in of.items():
        treatment = {
            name: what
            for names, paths, what, _ in rows
            for name in re.findall("`([a-z_]+)`", names)
            if path in paths or (paths == "all" and name not in {*kind.model_fields, *others[path]}) or name == "model"
        }
        honored = {name for name, what in treatment.items() if what == "honored"}
        assert honored == set(kind.model_fields)
        assert {name for name, what in treatment.items() if what == "ignored"} == set(_IGNORED)
        refused_names = {name for name, what in treatment.items() if what == "refused"}
        assert refused_names == (set(_REFUSED) - {"best_of", "dimensions"} - set(kind.model_fields)) | others[path]
        assert set(PUBLISHED[kind].split()) <= set(treatment)
