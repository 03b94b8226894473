"""`tritonkit openai` before a real Triton, called by the `openai` package. Models answer with the settings they got."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.openai.running import asked, running
from tests.server.openai_models import CLASSIFIER, EMBEDDER, HEARER, PARROT, RERANKER, SAMPLING, SIMPLE, user
from tests.server.sharing import SharedServer
from tests.waiting import PATIENCE_S, eventually
from tritonkit.operate.certificates import make_certificates
from tritonkit.serve import Endpoint

KEY = "a-caller-s-key"
MODELS = {
    "parrot": PARROT,
    "simple": SIMPLE,
    "embedder": EMBEDDER,
    "reranker": RERANKER,
    "classifier": CLASSIFIER,
    "hearer": HEARER,
}


@pytest.fixture(scope="module")
def triton(shared: SharedServer) -> Endpoint:
    """The session's server with two language models and one that embeds."""
    return shared.serving(MODELS)


@pytest.fixture(scope="module")
def url(triton: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server before it, with Triton's key to list models, and one for callers."""
    folder = tmp_path_factory.getbasetemp() / "front"
    folder.mkdir()
    (folder / "keys").write_text(KEY)
    (folder / "admin").write_text(str(triton.admin_key))
    with running(
        folder, "--address", triton.grpc, "--key-file", str(folder / "keys"), "--admin-key-file", str(folder / "admin")
    ) as url:
        yield url


@pytest.fixture
def posted(url: str) -> Callable[[str, Any], dict[str, Any]]:
    """The answer to a body at a path that the openai package does not have."""

    def post(path: str, body: Any) -> dict[str, Any]:
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        status, answer = asked(f"{url}/{path}", json.dumps(body).encode(), headers)
        assert status == 200, answer
        return answer

    return post


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    """A caller."""
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def test_a_chat(client: openai.OpenAI) -> None:
    """Text, why it ended, and the tokens on both sides."""
    messages: Any = [{"role": "developer", "content": "be brief"}, *user("a ü 三")]
    made = client.chat.completions.create(model="parrot", messages=messages)
    (choice,) = made.choices
    assert choice.message.content == " system:be brief|user:a ü 三"
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (4, 4)
    assert (made.object, made.model) == ("chat.completion", "parrot")


def test_every_setting_reaches_the_model(client: openai.OpenAI) -> None:
    """Also those that the package knows nothing of."""
    made = client.chat.completions.create(
        model="parrot",
        messages=user("x"),
        max_completion_tokens=50,
        **SAMPLING,
        extra_body={"top_k": 3, "min_tokens": 2, "repetition_penalty": 1.5, "ignore_eos": True},
    )
    assert sorted(str(made.choices[0].message.content).split()) == [
        "frequency_penalty=-1.5",
        "ignore_eos=True",
        "max_tokens=50",
        "min_tokens=2",
        "presence_penalty=1.0",
        "repetition_penalty=1.5",
        "seed=7",
        "stop=u,v",
        "temperature=0.5",
        "top_k=3",
        "top_p=0.25",
        "user:x",
    ]


def test_a_chat_as_a_stream(client: openai.OpenAI) -> None:
    """The text comes piece by piece; the usage comes last, and only if requested."""
    for options in ({}, {"stream_options": {"include_usage": True}}):
        chunks = list(
            client.chat.completions.create(
                model="parrot", messages=user("SAY one zwei drei"), max_tokens=2, stream=True, **options
            )  # type: ignore[call-overload]
        )
        usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
        chosen = [chunk.choices[0] for chunk in chunks if chunk.choices]
        assert [choice.delta.content for choice in chosen if choice.delta.content] == [" one", " zwei"]
        assert [choice.delta.role for choice in chosen if choice.delta.role] == ["assistant"]
        assert [choice.finish_reason for choice in chosen if choice.finish_reason] == ["length"]
        assert len({chunk.id for chunk in chunks}) == 1
        assert [usage.total_tokens for usage in usages] == ([6] if options else [])
        assert bool(options) == (not chunks[-1].choices)


def test_documents_are_ranked(posted: Callable[[str, Any], dict[str, Any]]) -> None:
    """A hundred pairs, by many concurrent calls; the best come first."""
    documents = [f"{number}: " + "ü" * number for number in range(100)]
    body = {"model": "reranker", "query": "ü", "documents": documents, "top_n": 3}
    results = posted("rerank", body)["results"]
    assert [(row["index"], row["relevance_score"]) for row in results] == [(99, 99), (98, 98), (97, 97)]
    assert results[0]["document"]["text"] == documents[99]


def test_texts_are_classified(posted: Callable[[str, Any], dict[str, Any]]) -> None:
    """In their order."""
    data = posted("classify", {"model": "classifier", "input": ["abc", "xyz"]})["data"]
    assert [(row["label"], row["labels"], row["probs"]) for row in data] == [
        ("a", ["a", "rest"], [0.75, 0.25]),
        ("x", ["x", "rest"], [0.75, 0.25]),
    ]


def test_sound_is_transcribed(client: openai.OpenAI) -> None:
    """The text comes as JSON, or plain."""
    sound = ("a.wav", b"RIFF" * 1000)
    assert client.audio.transcriptions.create(model="hearer", file=sound).text == "4000 bytes"
    text: Any = client.audio.transcriptions.create(model="hearer", file=sound, response_format="text")
    assert text == "4000 bytes\n"


def test_completions(client: openai.OpenAI) -> None:
    """Two prompts are answered, whole and as streams that carry their numbers."""
    arguments: Any = {"model": "parrot", "prompt": ["SAY a b", "SAY c d e"]}
    made = client.completions.create(**arguments)
    assert [(choice.index, choice.text) for choice in made.choices] == [(0, " a b"), (1, " c d e")]
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (7, 5)
    texts = ["", ""]
    for chunk in client.completions.create(**arguments, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [" a b", " c d e"]


@pytest.mark.parametrize("stop", ["c", ["x", "c"]])
def test_a_stop_ends_the_text(client: openai.OpenAI, stop: Any) -> None:
    """Before it, as a text alone and in a list."""
    made = client.completions.create(model="parrot", prompt="SAY a b c d", stop=stop)
    assert (made.choices[0].text, made.choices[0].finish_reason) == (" a b", "stop")


def test_two_choices_have_seeds_that_differ(client: openai.OpenAI) -> None:
    """The first is the caller's."""
    made = client.chat.completions.create(model="parrot", messages=user("x"), n=2, seed=5)
    assert [choice.message.content for choice in made.choices] == [" seed=5 user:x", " seed=6 user:x"]
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (1, 4)
    drawn = client.chat.completions.create(model="parrot", messages=user("x"), n=2)
    assert len({choice.message.content for choice in drawn.choices}) == 2


def test_logarithms_of_probabilities(client: openai.OpenAI) -> None:
    """Each token has one, by its number, in both kinds of answers."""
    chat = client.chat.completions.create(model="parrot", messages=user("SAY a b c"), logprobs=True)
    assert chat.choices[0].logprobs is not None
    content = chat.choices[0].logprobs.content or []
    assert [(token.token, token.logprob) for token in content] == [
        ("token_id:0", 0.0),
        ("token_id:1", -0.5),
        ("token_id:2", -1.0),
    ]
    text = client.completions.create(model="parrot", prompt="SAY a b", logprobs=0)
    assert text.choices[0].logprobs is not None
    assert text.choices[0].logprobs.token_logprobs == [0.0, -0.5]


def test_embeddings_are_the_same_in_both_forms(client: openai.OpenAI) -> None:
    """The vectors keep the order of the texts, also beyond one batch; the package itself chooses base64."""
    texts = [chr(97 + number) * (number + 1) for number in range(20)]
    forms: Any = [{}, {"encoding_format": "float"}]
    packed, plain = (client.embeddings.create(model="embedder", input=texts, **form) for form in forms)
    vectors = [item.embedding for item in packed.data]
    assert vectors == [item.embedding for item in plain.data]
    assert [vector[:2] for vector in vectors] == [[n + 1, 97 + n] for n in range(20)]
    assert [item.index for item in plain.data] == list(range(20))
    assert client.embeddings.create(model="embedder", input="b").data[0].embedding[:2] == [1, 98]


def test_models_are_listed(client: openai.OpenAI, triton: Endpoint, tmp_path: Path) -> None:
    """With the server's key, all models that the API can serve; with `--model`, those that were named."""
    listed = [model.id for model in client.models.list()]
    assert listed == ["classifier", "embedder", "hearer", "parrot", "reranker", "sentences", "simple"]
    assert client.models.retrieve("parrot").owned_by == "tritonkit"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")
    with running(tmp_path, "--address", triton.grpc, "--model", "parrot") as url:
        assert [model["id"] for model in asked(f"{url}/models")[1]["data"]] == ["parrot"]
        assert asked(f"{url}/models/simple")[0] == 404
        assert asked(f"{url.removesuffix('/v1')}/health") == (200, {"ready": True})


def test_what_is_refused(client: openai.OpenAI) -> None:
    """Each by the error that the package has for it."""
    create: Any = client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="nobody", messages=user("x"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        create(model="embedder", messages=user("x"))
    assert wrong.value.code == "model_not_supported"
    with pytest.raises(openai.BadRequestError) as lacking:
        client.completions.create(model="simple", prompt="x", temperature=1)
    assert (lacking.value.param, lacking.value.code) == ("temperature", "unsupported_parameter")
    with pytest.raises(openai.BadRequestError) as tools:
        create(model="parrot", messages=user("x"), tools=[{"type": "function", "function": {"name": "f"}}])
    assert tools.value.param == "tools"


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_s_error_before_any_text_has_a_status(
    client: openai.OpenAI, tmp_path_factory: pytest.TempPathFactory, stream: bool
) -> None:
    """The status follows the model's code; the words of an internal fault go to this server's log alone."""
    create: Any = client.completions.create
    with pytest.raises(openai.BadRequestError, match="the prompt is bad"):
        create(model="parrot", prompt="EARLY BAD", stream=stream)
    with pytest.raises(openai.RateLimitError):
        create(model="parrot", prompt="EARLY FULL", stream=stream)
    with pytest.raises(openai.InternalServerError) as broken:
        create(model="parrot", prompt="EARLY BROKEN", stream=stream)
    assert "secret" not in str(broken.value)
    assert "a secret" in (tmp_path_factory.getbasetemp() / "front" / "openai.log").read_text()


def test_a_model_s_error_after_some_text_is_the_last_event(client: openai.OpenAI) -> None:
    """The text before it is good; an answer without an end is an error as well."""
    for word, said in (("BAD", "the prompt is bad"), ("UNENDED", "no end")):
        create: Any = client.completions.create
        stream = create(model="parrot", prompt=f"SAY a b {word}", stream=True)
        texts = [next(stream).choices[0].text for _ in range(3)]
        with pytest.raises(openai.APIError, match=said):
            list(stream)
        assert texts == ["", " a", " b"]


def test_a_caller_that_leaves_ends_the_work(client: openai.OpenAI, url: str, tmp_path: Path) -> None:
    """The model sees it: a stream that is closed, and a call whose task is cancelled before any answer."""
    left, cancelled = tmp_path / "left", tmp_path / "cancelled"
    with client.completions.create(model="parrot", prompt=f"SAY ENDLESS {left}", stream=True) as stream:
        next(iter(stream))
    eventually(left.exists, "the model sees that the stream was left")

    async def program() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as caller:
            messages = user(f"SAY ENDLESS {cancelled}")
            task = asyncio.create_task(caller.chat.completions.create(model="parrot", messages=messages))
            begun = cancelled.with_suffix(".begun")
            await asyncio.to_thread(eventually, begun.exists, "the model begins")
            task.cancel()
            await asyncio.wait({task})

    asyncio.run(program())
    eventually(cancelled.exists, "the model sees that the call was cancelled")


def test_streams_at_once_stay_apart(url: str) -> None:
    """Sixteen asynchronous ones, each with words of its own."""

    async def read(caller: openai.AsyncOpenAI, number: int) -> str:
        words = " ".join(f"{number}.{place}" for place in range(number + 2))
        stream = await caller.chat.completions.create(model="parrot", messages=user(f"SAY {words}"), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def program() -> list[str]:
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as caller:
            return await asyncio.gather(*(read(caller, number) for number in range(16)))

    assert asyncio.run(program()) == [
        "".join(f" {number}.{place}" for place in range(number + 2)) for number in range(16)
    ]


def test_streams_over_tls(triton: Endpoint, tmp_path: Path) -> None:
    """Piece by piece; a caller that leaves is seen as without it."""
    make_certificates(tmp_path / "tls", ["127.0.0.1"])
    pair = [str(tmp_path / "tls" / name) for name in ("server.crt", "server.key")]
    trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
    options = ("--tls-certificate", pair[0], "--tls-key", pair[1])
    with (
        running(tmp_path, "--address", triton.grpc, *options) as url,
        openai.DefaultHttpxClient(verify=trusted, timeout=PATIENCE_S) as http,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, http_client=http) as client,
    ):
        ask: Any = functools.partial(client.completions.create, model="parrot", stream=True)
        long = " ".join(f"{number}" * 1000 for number in range(60))
        text = "".join(chunk.choices[0].text for chunk in ask(prompt=f"SAY {long}"))
        assert text == f" {long}"
        with ask(prompt=f"SAY ENDLESS {tmp_path / 'left'}") as stream:
            next(iter(stream))
        eventually((tmp_path / "left").exists, "the model sees that the stream was left")


def test_a_full_server_refuses(triton: Endpoint, tmp_path: Path) -> None:
    """And has room again when the one before has left."""
    with (
        running(tmp_path, "--address", triton.grpc, "--max-requests", "1") as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        create: Any = client.completions.create
        with create(model="parrot", prompt=f"SAY ENDLESS {tmp_path / 'first'}", stream=True) as stream:
            next(iter(stream))
            with pytest.raises(openai.RateLimitError):
                create(model="parrot", prompt="SAY a")

        def answered() -> bool:
            with contextlib.suppress(openai.RateLimitError):
                return bool(create(model="parrot", prompt="SAY a").choices[0].text == " a")
            return False

        eventually(answered, "there is room again")


def test_an_answer_that_takes_too_long_is_ended(triton: Endpoint, tmp_path: Path) -> None:
    """At the model, too."""
    late = tmp_path / "late"
    body = json.dumps({"model": "parrot", "prompt": f"SAY ENDLESS {late}"}).encode()
    with running(tmp_path, "--address", triton.grpc, "--timeout-s", "0.5") as url:

        def is_ended() -> bool:
            # On a busy machine the time may be over before the model has begun.
            status, answer = asked(f"{url}/completions", body)
            assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
            return late.with_suffix(".begun").exists()

        eventually(is_ended, "the model begins in time")
        eventually(late.exists, "the model sees that the time is over")
