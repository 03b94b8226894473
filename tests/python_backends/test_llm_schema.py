"""Schemas as grammars: what the engine makes of them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from llm_engine import MOST_GRAMMARS, STOP, pipeline_maker
from llm_pieces import pieces_of
from llm_schema import SchemaError, grammar_of
from llm_tools import call_grammar, form_of, format_grammar, read_tools

from tests.python_backends.llm_network import (
    BYTES,
    byte_tokenizer,
    chat_tokenizer,
    fallback_tokenizer,
    word_tokenizer,
    write_byte_model,
)
from tests.python_backends.test_llm_engine import Answers, settings
from tests.python_backends.tool_templates import HERMES, LLAMA, MISTRAL

NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"enum": ["x", 1, None]}}},
    {"type": "object", "properties": {'é"\\': {"type": "integer", "minimum": 1}}, "required": ['é"\\', "other"]},
    {"type": "array", "items": {"type": "integer", "minimum": -20, "maximum": 11}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"type": "number", "minimum": 0}, "maxItems": 3},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
    {"type": ["array", "null"], "items": {"type": ["boolean", "null"]}},
    {"type": "array", "items": {"enum": [[], True, {"x": [1]}, "a", "ab", "abc", ""]}, "maxItems": 5},
    {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    {"anyOf": [{"const": {"a": [1, 2]}}, {"allOf": [{"type": "number"}]}, {"const": {"a": [1, 3]}}]},
    {"type": "integer", "exclusiveMinimum": -1},
    {"type": ["integer", "number"], "minimum": 0},
    {"type": "array", "items": {}, "maxItems": 2},
    {"type": "object", "additionalProperties": {"type": "null"}},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of bytes."""
    return write_byte_model(tmp_path_factory.mktemp("bytes") / "1", HERMES, 1024)


@pytest.fixture(scope="module")
def answers(folder: Path) -> Iterator[Answers]:
    """An engine that knows the tokens' bytes."""
    chosen = settings(folder)
    facts = json.loads((folder / "tokenizer.json").read_text())
    pieces = pieces_of(chat_tokenizer(), facts, BYTES)
    made = Answers(chosen, pipeline_maker(chosen, str(folder), pieces))
    yield made
    made.engine.close()


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_answers_satisfy_the_schema(answers: Answers, schema: dict[str, Any]) -> None:
    """Every answer that ends, greedy and drawn, with and without log probabilities, among free ones."""
    grammar = grammar_of(schema)
    free = answers.ask(5, tokens=30)
    held = [
        answers.ask(
            65, tokens=400, ignore_eos=False, grammar=grammar, temperature=float(seed > 0), seed=seed, logprobs=seed > 6
        )
        for seed in range(12)
    ]
    ended = [sequence for sequence in held if answers.end(sequence) == STOP]
    assert ended
    for sequence in ended:
        text = chat_tokenizer().decode(answers.tokens[sequence])
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert answers.end(free) == "length"


def test_the_engine_is_made_again_after_many_grammars(folder: Path) -> None:
    """It keeps what it compiles, and strangers bring the schemas."""
    chosen, made = settings(folder), []
    facts = json.loads((folder / "tokenizer.json").read_text())
    make = pipeline_maker(chosen, str(folder), pieces_of(chat_tokenizer(), facts, BYTES))

    def counted() -> Any:
        made.append(True)
        return make()

    answers = Answers(chosen, counted)
    try:
        sequences = [
            answers.ask(5, tokens=2, ignore_eos=False, grammar=f'root ::= "{number:05}"\n')
            for number in range(MOST_GRAMMARS + 2)
        ]
        assert {answers.end(sequence) for sequence in sequences} == {"length"}
        assert len(made) == 2
        assert chat_tokenizer().decode(answers.tokens[sequences[-1]]) == f"{MOST_GRAMMARS + 1:05}"[:2]
    finally:
        answers.engine.close()


def deep(levels: int) -> dict[str, Any]:
    """Lists in lists."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (False, "wanted a schema that allows something"),
        ({"type": "string", "pattern": "(a+)+$"}, "found 'pattern', which cannot be held here"),
        ({"type": "string", "format": "date"}, "found 'format'"),
        ({"type": "string", "maxLength": 5}, "found 'maxLength'"),
        ({"type": "string", "minLength": 2}, "schema.minLength: found 2, wanted 0 to 1"),
        ({"type": "number", "multipleOf": 2}, "found 'multipleOf'"),
        ({"type": "integer", "minimum": 5}, "found minimum or maximum of an integer"),
        ({"type": "integer", "minimum": 0, "maximum": 10**9}, "found minimum or maximum of an integer"),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": 5}, "schema.exclusiveMinimum: found 5, wanted"),
        ({"type": "integer", "exclusiveMinimum": True}, "schema.exclusiveMinimum: found True, wanted an integer"),
        ({"type": ["integer", "number"], "minimum": 0, "maximum": 5}, "found 'maximum'"),
        ({"type": ["integer", "number"], "exclusiveMinimum": 0}, "found 'exclusiveMinimum'"),
        ({"type": "thing"}, "schema.type: found thing"),
        ({"oneOf": [{}]}, "found 'oneOf'"),
        ({"not": {}}, "found 'not'"),
        ({"anyOf": []}, "schema.anyOf: found 0 values"),
        ({"allOf": [{}, {}]}, "wanted a list of one schema"),
        ({"anyOf": [{}], "type": "object"}, "found 'type'"),
        ({"enum": []}, "schema.enum: found 0 values"),
        ({"enum": list(range(513))}, "schema.enum: found 513 values"),
        ({"enum": ["a"], "type": "integer"}, "found no value of the type"),
        ({"type": "array", "uniqueItems": True}, "found 'uniqueItems'"),
        ({"type": "array", "minItems": 10**9}, "schema.minItems: found 1000000000"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "schema.maxItems: found 2"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "schema.required: found 'a'"),
        ({"type": "object", "properties": []}, "schema.properties: found 0 values"),
        ({"$ref": "https://example.org/schema"}, "schema.$ref: found"),
        ({"$ref": "#/$defs/none"}, "wanted a place of the same schema"),
        ({"$ref": "#"}, "which stands for itself"),
        (
            {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            "itself",
        ),
        (deep(33), "found more than 32 levels"),
        (deep(500), "found more than 64 levels"),
        ({"title": "x" * 70_000}, "wanted at most 65536"),
        ({"type": "object", "properties": {f"p{n}": {"type": "array"} for n in range(1500)}}, "more than 4096 parts"),
        ({"type": "object", "properties": {f"p{n}": {} for n in range(600)}}, "found a grammar of"),
        ({"const": "\ud800"}, "found half a character"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_schema_that_cannot_be_held_is_refused(schema: Any, says: str) -> None:
    """Each by its place and keyword."""
    with pytest.raises(SchemaError) as caught:
        grammar_of(schema)
    assert says in str(caught.value)


def test_many_values_that_begin_alike_are_one_grammar() -> None:
    """Each is longer than the one before it."""
    assert grammar_of({"enum": ["a" * length for length in range(340)]}).count("\n") < 700


def test_formats() -> None:
    """Free text has no grammar."""
    assert format_grammar('{"type": "text"}') == ""
    assert format_grammar('{"type": "json_object"}') == grammar_of({"type": "object"})
    for text in ("{", "[]", '{"type": "xml"}', '{"type": "json_schema"}', "[" * 100_000, '{"type": NaN}'):
        with pytest.raises(SchemaError, match="response_format"):
            format_grammar(text)


@pytest.mark.parametrize(
    "tools",
    ["[]", "{}", "[1]", '[{"type": "function", "function": {"name": "a b"}}]', json.dumps([{}] * 129), "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_tools_that_are_none_are_refused(tools: str) -> None:
    """The message names the input."""
    with pytest.raises(SchemaError, match="tools"):
        read_tools(tools)


def test_a_call_that_is_demanded_names_a_tool() -> None:
    """Any other is refused, as are arguments that cannot be held."""
    tools = read_tools(json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"oneOf": []}}}]))
    assert call_grammar('"auto"', tools, "json") == ""
    for choice, says in (
        ('"required"', "tools.0.function.parameters: schema: found 'oneOf'"),
        ('"none"', "tool_choice"),
    ):
        with pytest.raises(SchemaError, match=says):
            call_grammar(choice, tools, "json")
    assert [form_of(template) for template in (HERMES, MISTRAL, LLAMA)] == ["tags", "list", "json"]


@pytest.mark.parametrize("make", [byte_tokenizer, chat_tokenizer, fallback_tokenizer], ids=lambda make: make.__name__)
def test_pieces_are_the_texts_of_tokens(make: Any) -> None:
    """Tokens of bytes, and pieces with a mark for spaces; special tokens have none, but marks of calls do."""
    tokenizer = make()
    pieces = pieces_of(tokenizer, json.loads(tokenizer.to_str()), 300)
    assert pieces is not None
    assert len(pieces) == 300
    text = 'é: ["a b"]☃'
    numbers = tokenizer.encode(text, add_special_tokens=False).ids
    assert b"".join(pieces[number] for number in numbers).strip() == text.encode()
    if make is chat_tokenizer:
        assert (pieces[256], pieces[257], pieces[299]) == (b"", b"[TOOL_CALLS]", b"")


def test_words_are_no_pieces() -> None:
    """A tokenizer of words, and a network that knows fewer tokens than the tokenizer."""
    words, byte = word_tokenizer(), byte_tokenizer()
    assert pieces_of(words, json.loads(words.to_str()), 300) is None
    assert pieces_of(byte, json.loads(byte.to_str()), 20) is None
