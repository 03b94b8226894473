"""`tritonkit openai --forward-keys` before a real gateway and a real Triton: each caller under its own key."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from tests.cli.running import failed, tritonkit_here
from tests.openai.running import asked, running
from tests.python_backends.llm_network import WORDS
from tests.server.language.test_llm import LONG, write_served
from tests.server.models import write_repository
from tests.server.openai_models import EMBEDDER, PARROT, user
from tests.server.watched import Watched
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import TLS
from tritonkit.errors import InferenceError, UsageError
from tritonkit.openai.callers import KeyedCallers
from tritonkit.openai.problems import Problem
from tritonkit.openai.settings import OpenAISettings
from tritonkit.operate.keys import add_key

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.slow]

MODELS = ("embedder", "narrow", "parrot", "tiny")
WRONG = "tk_" + "0" * 43


class Gateway:
    """A stack of one replica, its keys by name, and who answers OpenAI's API before it."""

    def __init__(self, watched: Watched, url: str, log: Path) -> None:
        self.watched, self.url, self.log = watched, url, log
        self.keys = {"all": watched.key}

    def add(self, name: str, *models: str, rate: float | None = None) -> str:
        """A key, once the gateway knows it."""
        _, self.keys[name] = add_key(self.watched.gateway / "keys.json", name, models, rate)
        with self.watched.client(self.keys[name]) as client:

            def is_known() -> bool:
                with contextlib.suppress(InferenceError):
                    return client.is_ready()
                return False

            eventually(is_known, "a key that the gateway knows")
        return self.keys[name]

    def client(self, key: str) -> openai.OpenAI:
        """A caller with the key of this name, or with this one."""
        api_key = self.keys.get(key, key)
        return openai.OpenAI(base_url=self.url, api_key=api_key, max_retries=0, timeout=PATIENCE_S)

    def audit(self) -> list[dict[str, Any]]:
        """The lines of the gateway's audit log so far."""
        text = (self.watched.root / ".tritonkit/stack/gateway/audit.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def options(self) -> tuple[str, ...]:
        """The options of an OpenAI server before it."""
        authority = str(self.watched.gateway / "tls" / "ca.crt")
        address = f"grpcs://{self.watched.stack.address}"
        return ("--address", address, "--ca", authority, "--forward-keys")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Language models behind a gateway: two of random weights, one that repeats, and one that embeds."""
    folder = tmp_path_factory.mktemp("keyed")
    repository = write_repository(folder / "repository", {"parrot": PARROT, "embedder": EMBEDDER})
    write_served(repository / "tiny", cache_mib="1", threads="1", max_sequences="8")
    write_served(repository / "narrow", cache_mib="2", threads="1", max_sequences="1", max_waiting="0", context="8192")
    root = folder / "project"
    root.mkdir()
    watched = Watched(root, repository, replicas=1, prometheus=False, redis=False, verify=False)
    try:
        made = Gateway(watched, "", folder / "openai.log")
        with running(folder, *made.options()) as made.url:
            made.add("of-tiny", "tiny")
            yield made
    finally:
        watched.stop()


def test_a_key_of_one_model_streams(gateway: Gateway) -> None:
    """Chats and completions of a network, whole and in pieces that make the same."""
    arguments: Any = {"model": "tiny", "max_tokens": 12, "extra_body": {"ignore_eos": True}}
    with gateway.client("of-tiny") as client:
        whole = client.completions.create(**arguments, prompt="w5 w6")
        pieces = list(client.completions.create(**arguments, prompt="w5 w6", stream=True))
        assert set(whole.choices[0].text.split()) <= set(WORDS)
        assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
        assert whole.usage is not None
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (2, 12)
        chat = client.chat.completions.create(**arguments, messages=user("w5 w6"))
        chunks = client.chat.completions.create(**arguments, messages=user("w5 w6"), stream=True)
        text = "".join(piece.choices[0].delta.content or "" for piece in chunks)
        assert text == chat.choices[0].message.content


def test_a_wrong_key_is_refused(gateway: Gateway) -> None:
    """The gateway refuses it, in the package's own error; so it does no key at all. Health needs no key."""
    arguments: Any = {"model": "tiny", "messages": user("w5"), "stream": True}
    for ask in (
        lambda client: client.chat.completions.create(**arguments),
        lambda client: client.models.list(),
        lambda client: client.models.retrieve("tiny"),
    ):
        with gateway.client(WRONG) as client, pytest.raises(openai.AuthenticationError) as caught:
            ask(client)
        assert caught.value.code == "invalid_api_key"
    assert asked(f"{gateway.url}/models")[0] == 401
    strange = {"authorization": "Basic eDp5", "content-type": "application/json"}
    assert asked(f"{gateway.url}/models", None, strange)[0] == 401
    assert asked(f"{gateway.url.removesuffix('/v1')}/health") == (200, {"ready": True})


def test_a_stranger_s_body_is_not_read(gateway: Gateway) -> None:
    """The answer comes while it is still awaited."""
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=PATIENCE_S)
    sent = {"authorization": f"Bearer {WRONG}", "content-type": "application/json", "content-length": "100"}
    connection.request("POST", "/v1/completions", None, sent)
    with connection.getresponse() as response:
        assert response.status == 401
    connection.close()


def test_a_key_of_another_model_finds_none(gateway: Gateway) -> None:
    """The error is OpenAI's own: it does not tell whether there is such a model."""
    for name in ("parrot", "nobody"):
        with gateway.client("of-tiny") as client, pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model=name, messages=user("SAY a"))
        assert caught.value.code == "model_not_found"
    with gateway.client("of-tiny") as client, pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="embedder", input="x")
    with gateway.client("all") as client:
        made = client.chat.completions.create(model="parrot", messages=user("SAY a"))
        assert made.choices[0].message.content == " a"
        assert client.embeddings.create(model="embedder", input="b").data[0].embedding[0] == 1


def test_a_key_has_its_rate(gateway: Gateway) -> None:
    """Its first request is answered, the next is told when to come again; other keys are not slowed."""
    gateway.add("rare", "parrot", rate=0.01)
    ask: Any = {"model": "parrot", "prompt": "SAY a"}
    with gateway.client("rare") as client, contextlib.ExitStack() as stack:
        # To see whether the gateway knows the key has used its one token.
        first = stack.enter_context(pytest.raises(openai.RateLimitError))
        client.completions.create(**ask, stream=True)
    assert first.value.code == "rate_limit_exceeded"
    assert first.value.response.headers["retry-after"] == "1"
    with gateway.client("all") as other:
        assert other.completions.create(**ask).choices[0].text == " a"


def test_a_key_of_one_request_has_it(gateway: Gateway) -> None:
    """Questions about the model before it do not count."""
    _, key = add_key(gateway.watched.gateway / "keys.json", "once", ("parrot",), 0.01)
    with gateway.client(key) as client:

        def answer() -> str:
            with contextlib.suppress(openai.AuthenticationError):
                made = client.completions.create(model="parrot", prompt="SAY a")
                return str(made.choices[0].text)
            return ""

        assert eventually(answer, "a key that the gateway knows") == " a"
        with pytest.raises(openai.RateLimitError):
            client.completions.create(model="parrot", prompt="SAY a")


def test_a_caller_that_leaves_frees_the_slot(gateway: Gateway) -> None:
    """The one place of a network without a queue is free again: through the gateway, at the engine."""
    arguments: Any = {
        "model": "narrow",
        "prompt": "w5",
        "max_tokens": LONG,
        "stream": True,
        "extra_body": {"ignore_eos": True},
    }
    with gateway.client("all") as client:
        with client.completions.create(**arguments) as stream:
            next(iter(stream))
            with pytest.raises(openai.RateLimitError):
                client.completions.create(model="narrow", prompt="w5", max_tokens=1)

        def answered() -> bool:
            with contextlib.suppress(openai.RateLimitError):
                return bool(client.completions.create(model="narrow", prompt="w5", max_tokens=1))
            return False

        eventually(answered, "the place is free")


def test_models_are_those_of_the_key(gateway: Gateway, tmp_path: Path) -> None:
    """All of them for a key of all; for others those that `--model` names, or that they have called."""
    key = gateway.add("of-parrot", "parrot")
    with gateway.client("all") as client:
        assert tuple(model.id for model in client.models.list()) == MODELS
    with gateway.client(key) as client:
        assert list(client.models.list()) == []
        client.completions.create(model="parrot", prompt="SAY a")
        assert [model.id for model in client.models.list()] == ["parrot"]
        assert client.models.retrieve("parrot").id == "parrot"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("tiny")
    named = [option for name in ("tiny", "parrot") for option in ("--model", name)]
    with running(tmp_path, *gateway.options(), *named) as url:
        sent = {"authorization": f"Bearer {key}"}
        assert [model["id"] for model in asked(f"{url}/models", None, sent)[1]["data"]] == ["parrot"]
        sent = {"authorization": f"Bearer {WRONG}"}
        assert asked(f"{url}/models", None, sent)[0] == 401


def test_no_request_has_another_s_key(gateway: Gateway) -> None:
    """Many concurrent requests of two keys: the gateway has seen each under its own."""
    gateway.add("left", "parrot")
    gateway.add("right", "parrot")

    async def read(caller: openai.AsyncOpenAI, word: str) -> str:
        stream = await caller.completions.create(model="parrot", prompt=f"SAY {word}", stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def program() -> list[str]:
        async with contextlib.AsyncExitStack() as stack:
            callers = [
                await stack.enter_async_context(
                    openai.AsyncOpenAI(base_url=gateway.url, api_key=gateway.keys[name], max_retries=0)
                )
                for name in ("left", "right")
            ]
            work = [read(callers[number % 3 != 0], str(number)) for number in range(24)]
            return list(await asyncio.gather(*work))

    assert asyncio.run(program()) == [f" {number}" for number in range(24)]

    def keys_of_lines() -> Counter[str]:
        lines = [line for line in gateway.audit() if line["path"].endswith("/ModelStreamInfer")]
        return Counter(line["key"] for line in lines if line["key"] in ("left", "right"))

    eventually(lambda: keys_of_lines().total() == 24, "24 lines of audit")
    assert keys_of_lines() == {"left": 8, "right": 16}


def test_no_key_is_in_a_log(gateway: Gateway) -> None:
    """Neither this server's nor the gateway's, nor in what an error says."""
    with gateway.client("of-tiny") as client:
        client.completions.create(model="tiny", prompt="w5", max_tokens=1)
    with gateway.client(WRONG) as client, pytest.raises(openai.AuthenticationError) as caught:
        client.completions.create(model="tiny", prompt="w5", max_tokens=1)
    folder = gateway.watched.root / ".tritonkit"
    texts = [gateway.log.read_text(), str(caught.value), json.dumps(gateway.audit())]
    logs = (*folder.rglob("*.log"), *folder.rglob("strangers.jsonl"))
    texts += [file.read_text(errors="replace") for file in logs]
    for key in (*gateway.keys.values(), WRONG):
        assert not any(key in text for text in texts)


def test_clients_are_few(gateway: Gateway) -> None:
    """A key's client stays for its next request, unless others came since; a wrong key leaves nothing."""
    names = ("of-tiny", "all", gateway.add("third", "tiny"))
    keys = [gateway.keys.get(name, name) for name in names]
    tls = TLS(ca=str(gateway.watched.gateway / "tls" / "ca.crt"))
    settings = OpenAISettings(f"grpcs://{gateway.watched.stack.address}", {"tls": tls}, forward_keys=True)

    async def ask(callers: KeyedCallers, key: str) -> bool:
        async with callers.catalog(f"Bearer {key}".encode()) as catalog:
            return await catalog.has("tiny")

    async def program() -> None:
        async with contextlib.aclosing(KeyedCallers(settings, most=2)) as callers:
            for key in (*keys, *keys):
                assert await ask(callers, key)
            assert len(callers) == 2
            # Strangers, many concurrently: none takes the place of a caller that is known.
            wrong = [ask(callers, f"{WRONG[:-3]}{number:03}") for number in range(100)]
            refused = await asyncio.gather(*wrong, return_exceptions=True)
            full = [result.status for result in refused if isinstance(result, Problem)]
            assert full == [429] * 36
            assert all(isinstance(result, Problem | InferenceError) for result in refused)
            assert len(callers) == 2
            assert not [result for result in callers._kept.values() if not result.good]
            first, second = (callers.catalog(f"Bearer {key}".encode()) for key in keys[:2])
            async with first, second:
                with pytest.raises(Problem) as none_idle:
                    await ask(callers, keys[2])
                assert none_idle.value.status == 429
            assert await ask(callers, keys[2])

    asyncio.run(program())


def test_a_server_that_asks_for_no_key_is_none_to_hand_keys_to(gateway: Gateway) -> None:
    """It would let in any caller with any key; this is said at the start."""
    replica = gateway.watched.part("replica-0").address
    message = failed(tritonkit_here("openai", "--address", replica, "--forward-keys", "--port", "0"), 2)
    assert "it answers without a key" in message

    async def program() -> None:
        async with contextlib.aclosing(KeyedCallers(OpenAISettings(replica, forward_keys=True))) as keyed:
            with pytest.raises(Problem) as refused:
                async with keyed.catalog(b"Bearer anything"):
                    pass
            assert refused.value.code == "no_gateway"

    asyncio.run(program())


def test_keys_do_not_travel_in_plain_text() -> None:
    """Said at the start, before any came."""
    with pytest.raises(UsageError, match="without TLS"):
        KeyedCallers(OpenAISettings("gateway.example.org:8443", forward_keys=True))
