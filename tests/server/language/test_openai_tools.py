"""`tools` and `response_format` by the openai package, before the shipped engine in a real Triton.

The network is one of random weights that reads and writes bytes: what its answers are held to is the engine's doing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.openai.running import running
from tests.python_backends.llm_network import write_byte_model
from tests.python_backends.tool_templates import HERMES, LLAMA, MISTRAL
from tests.server.language.test_llm import CONFIG, write_served
from tests.waiting import PATIENCE_S
from tritonkit.serve import serve

INPUTS = "".join(
    f'input [ {{ name: "{name}" data_type: TYPE_STRING dims: [1] optional: true }} ]\n'
    for name in ("response_format", "tools", "tool_choice")
)
MODELS = {"tags": HERMES, "list": MISTRAL, "json": LLAMA}
PLACE = {"type": "object", "properties": {"place": {"enum": ["Rome", "Oslo"]}}, "required": ["place"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Of a place", "parameters": PLACE}},
    {"type": "function", "function": {"name": "stop"}},
]
HELLO: Any = [{"role": "user", "content": "hello"}]


class Person(BaseModel):
    """An answer as the package parses it."""

    adult: bool
    level: int | None
    kind: list[bool]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """The package, before a server with models whose templates write calls in three ways, and one of words."""
    root = tmp_path_factory.mktemp("tools")
    for name, template in MODELS.items():
        folder = root / "repository" / name
        write_byte_model(folder / "1", template, 4096)
        (folder / "config.pbtxt").write_text(CONFIG % name + INPUTS)
        (folder / "warmup").mkdir()
        (folder / "warmup" / "text").write_bytes(struct.pack("<I", 2) + b"w5")
        (folder / "warmup" / "max_tokens").write_bytes(struct.pack("<i", 1))
    write_served(root / "repository" / "words")
    with (root / "repository" / "words" / "config.pbtxt").open("a") as config:
        config.write(INPUTS)
    with (
        serve(root / "repository", grpc_port=0, metrics_port=0) as endpoint,
        running(root, "--address", endpoint.grpc) as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


def schema_of(schema: dict[str, Any]) -> Any:
    """A `response_format` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.mark.parametrize(
    "schema",
    [
        PLACE,
        {"type": "array", "items": {"type": "integer", "minimum": -2, "maximum": 12}, "minItems": 2, "maxItems": 4},
        {
            "type": "object",
            "properties": {"é": {"type": "boolean"}, "b": {"const": None}},
            "additionalProperties": False,
        },
        {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}]},
        {
            "$defs": {
                "n": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}}
            },
            "$ref": "#/$defs/n",
        },
    ],
    ids=["members", "items", "optional", "choice", "recursion"],
)
def test_answers_satisfy_their_schema(client: openai.OpenAI, schema: dict[str, Any]) -> None:
    """Whole answers and streams, greedy and drawn, in the same running batch."""
    for settings in ({"temperature": 0}, {"temperature": 1, "seed": 3, "n": 8}):
        asked: Any = {"model": "tags", "messages": HELLO, "max_tokens": 2000, "response_format": schema_of(schema)}
        whole = client.chat.completions.create(**asked, **settings)
        texts = [""] * len(whole.choices)
        for chunk in client.chat.completions.create(**asked, **settings, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        for choice in whole.choices:
            if choice.finish_reason == "stop":
                jsonschema.validate(json.loads(str(choice.message.content)), schema)
        assert any(choice.finish_reason == "stop" for choice in whole.choices)
        assert [choice.message.content for choice in whole.choices] == texts


def test_the_package_parses_an_answer(client: openai.OpenAI) -> None:
    """A class of pydantic, as people write it."""
    made = client.chat.completions.parse(
        model="tags", messages=HELLO, response_format=Person, max_tokens=2000, temperature=1, seed=1
    )
    assert isinstance(made.choices[0].message.parsed, Person)


def test_a_cut_answer_says_so(client: openai.OpenAI) -> None:
    """Its text is a beginning of JSON."""
    form: Any = {"type": "json_object"}
    made = client.chat.completions.create(model="tags", messages=HELLO, response_format=form, max_tokens=1)
    assert (made.choices[0].finish_reason, made.choices[0].message.content) == ("length", "{")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}], ids=str)
def test_a_call_that_is_demanded_is_made(client: openai.OpenAI, model: str, choice: Any) -> None:
    """In the form of each template, whole and streamed, with arguments of the schema."""
    asked: Any = {"model": model, "messages": HELLO, "tools": TOOLS, "tool_choice": choice, "max_tokens": 300}
    tools = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in TOOLS}
    # Arguments without a schema may be longer than the answer, so the seeds are those of a short one.
    seeds = range(8) if choice == "required" else range(1)
    made = [client.chat.completions.create(**asked, temperature=1, seed=seed) for seed in seeds]
    complete = [one.choices[0] for one in made if one.choices[0].finish_reason == "tool_calls"]
    assert complete
    for one in complete:
        assert one.message.content is None
        [call] = one.message.tool_calls or []
        assert len(call.id) == 9
        assert call.type == "function"
        jsonschema.validate(json.loads(call.function.arguments), tools[call.function.name])
    named: Any = asked | {"tool_choice": {"type": "function", "function": {"name": "weather"}}}
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**named, stream=True)]
    assert chunks[-1].finish_reason == "tool_calls"
    assert not any(chunk.delta.content for chunk in chunks)
    [delta] = [delta for chunk in chunks for delta in chunk.delta.tool_calls or []]
    assert delta.function is not None
    assert (delta.index, delta.function.name) == (0, "weather")
    jsonschema.validate(json.loads(str(delta.function.arguments)), PLACE)


def test_a_history_of_calls_goes_to_the_template(client: openai.OpenAI) -> None:
    """Its tokens are counted; arguments are an object there."""
    call: Any = {
        "id": "a1b2c3d4e",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"place": "Rome"}'},
    }
    history: Any = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "sun"},
    ]
    made = client.chat.completions.create(model="tags", messages=history, tools=TOOLS, max_tokens=4)
    without = client.chat.completions.create(model="tags", messages=HELLO, max_tokens=4)
    assert made.choices[0].message.tool_calls is None
    assert made.usage is not None
    assert without.usage is not None
    assert made.usage.prompt_tokens > without.usage.prompt_tokens + 300


NESTED: dict[str, Any] = {}
for _ in range(40):
    NESTED = {"type": "array", "items": NESTED}


@pytest.mark.parametrize(
    ("model", "asked", "param"),
    [
        (
            "tags",
            {"response_format": schema_of({"type": "string", "pattern": "(a+)+b"})},
            "response_format.json_schema",
        ),
        ("tags", {"response_format": schema_of({"$ref": "#"})}, "response_format.json_schema"),
        ("tags", {"response_format": schema_of({"enum": list(range(10_000))})}, "response_format.json_schema"),
        ("tags", {"response_format": schema_of({"title": "x" * 70_000})}, "response_format"),
        ("tags", {"response_format": schema_of(NESTED)}, "response_format.json_schema"),
        ("tags", {"response_format": {"type": "json_object"}, "tools": TOOLS}, "response_format"),
        ("tags", {"response_format": {"type": "json_object"}, "extra_body": {"ignore_eos": True}}, "ignore_eos"),
        ("tags", {"tools": TOOLS, "parallel_tool_calls": False}, "parallel_tool_calls"),
        ("words", {"response_format": {"type": "json_object"}}, "response_format"),
        ("words", {"tools": TOOLS}, "tools"),
        ("words", {"messages": [{"role": "tool", "tool_call_id": "a", "content": "w5"}]}, "messages"),
    ],
)
def test_what_cannot_be_held_is_refused_by_name(client: openai.OpenAI, model: str, asked: Any, param: str) -> None:
    """And the model answers the next request."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**({"model": model, "messages": HELLO, "max_tokens": 5} | asked))
    assert str(caught.value.param).startswith(param)
    assert client.chat.completions.create(model=model, messages=HELLO, max_tokens=1).choices
