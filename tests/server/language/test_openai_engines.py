"""`tritonkit openai` before models with the tensors of vLLM's backend and of TensorRT-LLM's, in a real Triton.

Stand-ins have the engines' place, which need a GPU: see engine_models.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.openai.running import running
from tests.server.language.engine_models import TENSORRT_LLM, VLLM
from tests.server.models import write_repository
from tests.server.openai_models import SAMPLING, user
from tests.waiting import PATIENCE_S, eventually
from tritonkit.serve import Endpoint, serve

MODELS = {"vllm": VLLM, "plain": VLLM, "trt": TENSORRT_LLM}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' and loop.first %}"
    "{{ raise_exception('the user speaks first') }}{% endif %}"
    "[{{ message.role }}]{{ message.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def write_project(root: Path, name: str) -> None:
    """A project with a model whose checkpoint has a chat template, and a tokenizer that begins each text itself."""
    folder = root / "models" / name
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(parents=True)
    (folder / "model.yaml").write_text(f"name: {name}\nnetwork: {{llm: {{checkpoint: checkpoint}}}}\n")
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}]
    files: dict[str, Any] = {
        "config.json": {"model_type": "llama"},
        "tokenizer_config.json": {"bos_token": "<s>", "chat_template": TEMPLATE},
        "tokenizer.json": {"post_processor": {"type": "TemplateProcessing", "single": single}},
    }
    for file, content in files.items():
        (checkpoint / file).write_text(json.dumps(content))


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A Triton with them."""
    repository = write_repository(tmp_path_factory.mktemp("engines") / "repository", MODELS)
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def client(triton: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A caller of the server before it: one template is of the project, one is named, and one model has none."""
    root = tmp_path_factory.mktemp("project")
    write_project(root, "vllm")
    (root / "chat.jinja").write_text(TEMPLATE)
    options = ("--address", triton.grpc, "--chat-template", "trt=chat.jinja")
    with (
        running(root, *options, cwd=root) as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


def echoed(text: str | None) -> tuple[dict[str, Any], str]:
    """Settings and prompt of a model that answers with them."""
    settings, end = json.JSONDecoder().raw_decode(str(text).strip())
    return settings, str(text).strip()[end:].strip()


@pytest.mark.parametrize("model", ["vllm", "trt"])
def test_a_chat_is_put_into_the_template(client: openai.OpenAI, model: str) -> None:
    """The template is the checkpoint's; the text that the engine's tokenizer puts first is not there twice."""
    messages: Any = [{"role": "developer", "content": "be brief"}, *user("hello <b>")]
    made = client.chat.completions.create(model=model, messages=messages)
    _, prompt = echoed(made.choices[0].message.content)
    assert prompt == repr("[system]be brief[user]hello <b>[assistant]")
    assert made.choices[0].finish_reason == "stop"


def test_every_setting_of_vllm(client: openai.OpenAI) -> None:
    """Settings go as JSON, under vLLM's names."""
    made = client.chat.completions.create(
        model="vllm",
        messages=user("x"),
        max_completion_tokens=50,
        **SAMPLING,
        extra_body={"top_k": 0, "min_tokens": 2, "repetition_penalty": 1.5, "ignore_eos": True},
    )
    assert echoed(made.choices[0].message.content)[0] == {
        **SAMPLING,
        "ignore_eos": True,
        "max_tokens": 50,
        "min_tokens": 2,
        "repetition_penalty": 1.5,
        "top_k": -1,
    }
    plain = client.completions.create(model="plain", prompt="x")
    assert echoed(plain.choices[0].text) == ({}, "'x'")


def test_every_setting_of_tensorrt_llm(client: openai.OpenAI) -> None:
    """Settings go as tensors; one without a tensor is refused."""
    arguments: Any = {"model": "trt", "prompt": "x"}
    made = client.completions.create(**arguments, max_tokens=50, **SAMPLING, extra_body={"top_k": 3})
    assert echoed(made.choices[0].text)[0] == {**SAMPLING, "max_tokens": 50, "top_k": 3}
    refused: list[tuple[str, dict[str, Any]]] = [
        ("min_tokens", {"extra_body": {"min_tokens": 1}}),
        ("repetition_penalty", {"extra_body": {"repetition_penalty": 2}}),
        ("ignore_eos", {"extra_body": {"ignore_eos": True}}),
        ("logprobs", {"logprobs": 0}),
        ("seed", {"seed": -1}),
    ]
    for name, more in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(**arguments, **more)
        assert caught.value.param == name


@pytest.mark.parametrize("model", ["vllm", "trt"])
def test_a_stream_has_each_word_once(client: openai.OpenAI, model: str) -> None:
    """TensorRT-LLM says all of it each time."""
    chunks = list(client.chat.completions.create(model=model, messages=user("SAY a ü 三"), stream=True))
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    assert texts == [" a", " ü", " 三[assistant]"]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]


def test_tokens_are_counted(client: openai.OpenAI) -> None:
    """vLLM counts them, also at the end of a stream; TensorRT-LLM's model counts none."""
    arguments: Any = {"model": "plain", "prompt": "SAY a b c", "max_tokens": 2}
    made = client.completions.create(**arguments)
    assert (made.choices[0].text, made.choices[0].finish_reason) == (" a b", "length")
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (4, 2)
    *_, last = client.completions.create(**arguments, stream=True, stream_options={"include_usage": True})
    assert last.usage == made.usage
    none = client.completions.create(model="trt", prompt="SAY a").usage
    assert none is not None
    assert none.total_tokens == 0


def test_logarithms_of_probabilities(client: openai.OpenAI) -> None:
    """vLLM gives them, each token by its number."""
    made = client.completions.create(model="plain", prompt="SAY a b", logprobs=0)
    assert made.choices[0].logprobs is not None
    assert made.choices[0].logprobs.tokens == ["token_id:0", "token_id:1"]
    assert made.choices[0].logprobs.token_logprobs == [-0.5, -0.5]


def test_two_choices_have_seeds_that_differ(client: openai.OpenAI) -> None:
    """The seeds are consecutive, as with any model."""
    made = client.completions.create(model="plain", prompt="x", n=2, seed=5)
    assert [echoed(choice.text)[0]["seed"] for choice in made.choices] == [5, 6]


@pytest.mark.parametrize("model", ["vllm", "trt"])
def test_a_caller_that_leaves_ends_the_work(client: openai.OpenAI, tmp_path: Path, model: str) -> None:
    """The model sees it."""
    with client.completions.create(model=model, prompt=f"SAY ENDLESS {tmp_path / 'left'}", stream=True) as stream:
        next(iter(stream))
    eventually((tmp_path / "left").exists, "the model sees that the stream was left")


def test_what_cannot_be_is_said(client: openai.OpenAI) -> None:
    """A chat without a template, messages that it refuses, fewer tokens than at least; a failure not in its words."""
    chat: Any = client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        chat(model="plain", messages=user("x"))
    with pytest.raises(openai.BadRequestError, match="the user speaks first") as refused:
        chat(model="vllm", messages=[{"role": "assistant", "content": "x"}])
    assert refused.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as least:
        chat(model="vllm", messages=user("x"), max_tokens=1, extra_body={"min_tokens": 2})
    assert least.value.param == "min_tokens"
    with pytest.raises(openai.InternalServerError) as broken:
        client.completions.create(model="plain", prompt="SAY BROKEN")
    assert "secret" not in str(broken.value)


def test_answers_are_as_long_as_the_server_says(triton: Endpoint, tmp_path: Path) -> None:
    """The server's limit holds for requests without their own."""
    with (
        running(tmp_path, "--address", triton.grpc, "--max-tokens", "40") as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        for model in ("plain", "trt"):
            made = client.completions.create(model=model, prompt="x")
            assert echoed(made.choices[0].text)[0] == {"max_tokens": 40}
        made = client.completions.create(model="plain", prompt="x", max_tokens=2)
        assert echoed(made.choices[0].text)[0] == {"max_tokens": 2}


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("response_format", {"type": "json_object"}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("messages", [{"role": "tool", "tool_call_id": "a", "content": "sun"}]),
    ],
)
def test_what_the_engine_is_not_given_is_refused(client: openai.OpenAI, param: str, value: Any) -> None:
    """The shipped engine alone is given tools and formats."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**({"model": "vllm", "messages": user("a")} | {param: value}))
    assert (caught.value.param, caught.value.code) == (param, "unsupported_parameter")
