"""A language model's requests: what they become, and what is refused with where, found and wanted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_config import ModelError
from llm_chat import Chat, ChatError, read_chat
from llm_config import read_settings
from llm_request import Reader, RequestError, Task
from llm_tokenizer import refusal
from tokenizers import Tokenizer

from tests.python_backends.llm_network import WORDS, write_model

TYPES: dict[str, Any] = {
    "max_tokens": np.int32,
    "min_tokens": np.int32,
    "top_k": np.int32,
    "seed": np.int64,
    "temperature": np.float32,
    "top_p": np.float32,
    "repetition_penalty": np.float32,
    "presence_penalty": np.float32,
    "frequency_penalty": np.float32,
    "ignore_eos": np.bool_,
    "logprobs": np.bool_,
}
CHAT = [{"role": "user", "content": "w5 w6"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's files, which no test changes."""
    return write_model(tmp_path_factory.mktemp("llm") / "1")


@pytest.fixture(scope="module")
def reader(folder: Path) -> Reader:
    """A reader with a context of 64 tokens."""
    return make_reader(folder)


def make_reader(folder: Path, context: int = 64) -> Reader:
    """A reader of a model's requests."""
    texts = {"context": {"string_value": str(context)}, "max_tokens": {"string_value": "16"}}
    config = {"parameters": texts, "model_transaction_policy": {"decoupled": True}}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Reader(read_settings(config, folder), tokenizer, read_chat(folder))


def read(reader: Reader, **given: Any) -> Task:
    """Read a request whose inputs are plain values."""
    return reader.read({name: tensor(name, value) for name, value in given.items()})


def tensor(name: str, value: Any) -> Any:
    """An input as Triton gives it."""
    values = value if isinstance(value, list) else [value]
    if name in TYPES:
        return np.array(values, TYPES[name])
    return np.array([v.encode() if isinstance(v, str) else v for v in values], np.object_)


def test_defaults(reader: Reader) -> None:
    """A prompt alone: the most likely tokens, as many as the model's parameter says."""
    task = read(reader, text="w7 w8")
    assert task.prompt == [7, 8]
    assert (task.max_tokens, task.min_tokens, task.temperature, task.top_p) == (16, 0, 0, 1)
    assert (task.seed, task.stop, task.ignore_eos, task.logprobs) == (None, (), False, False)


def test_the_default_fits_beside_a_long_prompt(reader: Reader) -> None:
    """Only an explicit number of tokens is refused."""
    assert read(reader, text="w9 " * 60).max_tokens == 4


def test_all_inputs_are_read(reader: Reader) -> None:
    """Each input has its field."""
    task = read(
        reader,
        text="w4",
        max_tokens=5,
        min_tokens=2,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.75,
        seed=9,
        stop=["a", "é"],
        ignore_eos=True,
        logprobs=True,
    )
    assert task == Task([4], 5, 2, 0.5, 0.25, 3, 1.5, -0.5, 0.75, 9, ("a", "é"), True, True)


def test_messages_become_the_template_s_prompt(reader: Reader) -> None:
    """The prompt ends where the answer begins."""
    task = read(reader, messages=json.dumps(CHAT))
    assert [WORDS[token] for token in task.prompt] == ["<user>", "w5", "w6", "<bot>"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "text, messages: found none of them, wanted exactly one"),
        ({"text": "w4", "messages": "[]"}, "text, messages: found both"),
        ({"text": ""}, "text: found an empty prompt"),
        ({"text": " "}, "text: found a prompt without tokens"),
        ({"text": b"ab\xff"}, "text: found invalid UTF-8 at byte 2"),
        ({"text": ["w4", "w5"]}, "text: found 2 values, wanted one"),
        ({"text": "w4 " * 64}, "text: found a prompt of 64 tokens, wanted fewer than 64"),
        ({"text": "w" * 10**6}, "text: found 1000000 bytes"),
        ({"text": "w4", "max_tokens": 0}, "max_tokens: found 0, wanted 1 to 63 with a prompt of 1 tokens"),
        ({"text": "w4", "max_tokens": 64}, "max_tokens: found 64, wanted 1 to 63"),
        ({"text": "w4", "max_tokens": -1}, "max_tokens: found -1"),
        ({"text": "w4", "max_tokens": []}, "max_tokens: found 0 values"),
        ({"text": "w4", "max_tokens": 4, "min_tokens": 5}, "min_tokens: found 5, wanted 0 to 4"),
        ({"text": "w4", "temperature": float("nan")}, "temperature: found nan"),
        ({"text": "w4", "temperature": float("inf")}, "temperature: found inf"),
        ({"text": "w4", "temperature": -0.5}, "temperature: found -0.5, wanted 0 to 100"),
        ({"text": "w4", "top_p": 0.0}, "top_p: found 0.0, wanted above 0"),
        ({"text": "w4", "top_p": 1.5}, "top_p: found 1.5"),
        ({"text": "w4", "top_k": -1}, "top_k: found -1"),
        ({"text": "w4", "repetition_penalty": 0.0}, "repetition_penalty: found 0.0"),
        ({"text": "w4", "presence_penalty": 3.0}, "presence_penalty: found 3.0"),
        ({"text": "w4", "frequency_penalty": float("nan")}, "frequency_penalty: found nan"),
        ({"text": "w4", "seed": -1}, "seed: found -1"),
        ({"text": "w4", "stop": ["a", ""]}, "stop: found a string of 0 characters"),
        ({"text": "w4", "stop": ["a"] * 17}, "stop: found 17 strings, wanted at most 16"),
        ({"text": "w4", "stop": ["a" * 257]}, "stop: found a string of 257 characters"),
        ({"text": "w4", "stop": [b"\xc3"]}, "stop: found invalid UTF-8"),
        ({"messages": "{"}, "messages: found no JSON"),
        ({"messages": "[" * 200}, "messages: found no JSON"),
        ({"messages": "{}"}, "messages: found dict, wanted a list"),
        ({"messages": "[]"}, "messages: found an empty list"),
        ({"messages": "[1]"}, r"messages\[0\]: found another value"),
        ({"messages": '[{"role": "user"}]'}, r"messages\[0\]"),
        ({"messages": '[{"role": "user", "content": 5}]'}, r"messages\[0\]"),
        ({"messages": '[{"role": "nobody", "content": "a"}]'}, "messages: the chat template refuses .*nobody may"),
        ({"messages": '[{"role": "user", "content": "\\ud800"}]'}, "messages: found half a character"),
    ],
)
def test_refusals(reader: Reader, given: dict[str, Any], says: str) -> None:
    """Every mistake of a caller has its message."""
    with pytest.raises(RequestError, match=says):
        read(reader, **given)


def test_a_tokenizer_without_a_template(tmp_path: Path) -> None:
    """A model without a template takes only texts."""
    reader = make_reader(write_model(tmp_path / "1", chat=None))
    with pytest.raises(RequestError, match="a tokenizer without a chat template, wanted the prompt"):
        read(reader, messages=json.dumps(CHAT))
    assert read(reader, text="w4").prompt == [4]


def test_a_token_that_the_network_does_not_know(tmp_path: Path) -> None:
    """The token is refused, because the engine would read past its table."""
    folder = write_model(tmp_path / "1")
    network = json.loads((folder / "config.json").read_text()) | {"vocab_size": 50}
    (folder / "config.json").write_text(json.dumps(network))
    with pytest.raises(RequestError, match="text: found token 60, wanted tokens below the 50"):
        read(make_reader(folder), text="w60")


def test_a_template_in_its_own_file(tmp_path: Path) -> None:
    """A template file comes before tokenizer_config.json; blocks leave no line behind, as in transformers."""
    folder = write_model(tmp_path / "1")
    (folder / "chat_template.jinja").write_text("{% if true %}\n{{ eos_token }}{{ messages[0].content }}{% endif %}")
    chat = read_chat(folder)
    assert chat is not None
    assert chat.prompt(CHAT) == "</s>w5 w6"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 1 }}",
        "{{ missing.field.of }}",
        "{% include 'other' %}",
    ],
)
def test_a_template_can_change_and_reach_nothing(source: str) -> None:
    """A forbidden access, and any failure, is an error of the request."""
    with pytest.raises(ChatError):
        Chat(source, {}).prompt(CHAT)


def test_templates_have_what_transformers_gives_them() -> None:
    """`tojson` keeps letters, loops may be left, and the date is there."""
    source = "{% for m in messages %}{{ m.content | tojson }}{% break %}{% endfor %}{{ strftime_now('%Y') | length }}"
    assert Chat(source, {}).prompt([{"role": "user", "content": "<é>"}] * 2) == '"<é>"4'


def split_by(folder: Path, expression: str) -> None:
    """Make the tokenizer split texts where an expression matches."""
    file = folder / "tokenizer.json"
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pre_tokenizer": split}))


def test_an_expression_that_never_ends_refuses_its_text_alone(tmp_path: Path) -> None:
    """The tokenizer's library panics, which Python does not count among its exceptions."""
    folder = write_model(tmp_path / "1")
    split_by(folder, "(?:(a|aa|aaa)+)+b")
    reader = make_reader(folder)
    with pytest.raises(RequestError, match="text: the tokenizer cannot cut it into tokens: "):
        read(reader, text="a" * 40)
    assert read(reader, text="w4").prompt == [4]


@pytest.mark.parametrize(
    ("pattern", "content", "times", "problem"),
    [
        ({"String": "a"}, "a" * 65, 1, "65 times"),
        ({"String": "a"}, "aa", 7, "128 times"),
        ({"Regex": ""}, "a" * 64, 1, "65 times"),
        ({"String": ""}, "a" * 64, 1, "65 times"),
        ({"String": "a"}, "aa", 6, ""),
        ({"String": " "}, "\u2581", 1, ""),
    ],
)
@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_a_tokenizer_that_makes_texts_much_longer_is_refused(
    part: str, pattern: dict[str, str], content: str, times: int, problem: str
) -> None:
    """Ten steps that each turn one letter into ten would fill any memory from a line of text."""
    step = {"type": "Replace", "pattern": pattern, "content": content}
    steps = {"type": "Sequence", f"{part}s": [{"type": "NFC"}, *[step] * times]}
    why = refusal({part: steps})
    assert (problem in why) if problem else not why


def test_a_model_whose_template_is_too_large_is_not_loaded(tmp_path: Path) -> None:
    """The template's size is checked before it is read."""
    folder = write_model(tmp_path / "1")
    (folder / "chat_template.jinja").touch()
    os.truncate(folder / "chat_template.jinja", 1 << 33)
    with pytest.raises(ModelError, match="more than 524288 bytes"):
        read_chat(folder)


def test_a_chat_that_takes_too_much_is_refused_alone(tmp_path: Path) -> None:
    """The next request has its own budget."""
    folder = write_model(tmp_path / "1")
    endless = "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    (folder / "chat_template.jinja").write_text(f"{{% if messages[0].content == 'w4' %}}{endless}{{% endif %}}w5")
    reader = make_reader(folder)
    with pytest.raises(RequestError, match=r"messages: the chat template refuses them: .* steps"):
        read(reader, messages='[{"role": "user", "content": "w4"}]')
    assert read(reader, messages=json.dumps(CHAT)).prompt == [5]
