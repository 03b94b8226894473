"""Keys and tokens are not sent in plain text to another machine, unless that is allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.client.wire.grpc_servers import Answers, body
from tests.client.wire.kinds import Connect
from tritonkit.client import TLS, AsyncClient, Client, Secret
from tritonkit.client.request import InferRequest
from tritonkit.client.steps import run_async
from tritonkit.client.wire.channel import ChannelConfig, is_credential, is_loopback
from tritonkit.errors import UsageError

ELSEWHERE = ["triton:8001", "grpc://192.0.2.1:8001", "[fd00::1]:8001", "dns:triton.example:8001"]
HERE = ["127.0.0.1:8001", "127.8.8.8:8001", "localhost:8001", "[::1]:8001", "dns:localhost:8001"]
GIVEN: list[dict[str, Any]] = [
    {"api_key": Secret("hush")},
    {"bearer": Secret("hush")},
    {"admin_key": "hush"},
    {"admin_key": Secret("hush")},
]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("options", GIVEN)
@pytest.mark.parametrize("address", ELSEWHERE)
def test_a_key_is_not_sent_to_another_host_in_plain_text(kind: Any, options: dict[str, Any], address: str) -> None:
    """Making the client is a mistake; the message says what to do and never the key."""
    with pytest.raises(UsageError, match="without TLS to a host that is not this one") as caught:
        kind(address, **options)
    assert caught.value.exit_code == 2
    assert "allow_plaintext_credentials=True" in caught.value.todo
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("options", GIVEN)
def test_one_of_several_servers_is_enough(options: dict[str, Any]) -> None:
    """A key for this machine's server would go to the other too."""
    with pytest.raises(UsageError, match="without TLS"):
        Client(["127.0.0.1:8001", "triton:8001"], **options)


@pytest.mark.parametrize("options", [*GIVEN, {}])
def test_what_may_be_sent(options: dict[str, Any]) -> None:
    """On this machine, with TLS, or where the caller says so; and without a key everywhere."""
    for address in HERE:
        Client(address, **options).close()
    for address in ELSEWHERE:
        Client(address, allow_plaintext_credentials=True, **options).close()
        Client(address, tls=True, **options).close()
        Client(address, tls=TLS(), **options).close()
    Client("grpcs://triton:8001", **options).close()
    if not options:
        Client(ELSEWHERE).close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("LOCALHOST", True),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("0.0.0.0", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%lo", False),
        ("triton", False),
    ],
)
def test_which_hosts_are_this_one(host: str, expected: bool) -> None:
    """The text alone decides: no name is looked up for it."""
    assert is_loopback(host) is expected


def test_headers_of_one_call(connect: Connect, address: str, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token among them is refused before anything is sent; others go, and all where it is allowed."""
    monkeypatch.setattr("tritonkit.client.wire.channel.is_loopback", lambda host: False)
    token = (("authorization", "Bearer hush"),)
    plain = connect(address)
    for name in ("authorization", "x-api-key", "triton-grpc-protocol-infer-key", "cookie"):
        assert is_credential(name)
        with pytest.raises(UsageError, match=f"the header {name} would be sent"):
            plain.send("ModelInfer", body(), 5.0, ((name, "hush"),))
    with pytest.raises(UsageError, match="the header authorization"):
        plain.stream(token)
    with pytest.raises(UsageError, match="the header x-own"):
        ChannelConfig(address, headers=(("x-own", Secret("hush")),))
    assert answers.metadata == []
    plain.send("ModelInfer", body(), 5.0, (("traceparent", "00-1"),))
    connect(address, allow_plaintext_credentials=True).send("ModelInfer", body(), 5.0, token)
    assert answers.metadata[1]["authorization"] == "Bearer hush"


def test_headers_of_an_observer() -> None:
    """An observer's headers are judged like the client's own."""

    class Telling:
        def started(self, model: str) -> None:
            """Nothing to remember."""

        def headers(self, token: None) -> tuple[tuple[str, str], ...]:
            """The identity of the caller."""
            return (("authorization", "Bearer hush"),)

        def finished(self, token: None, event: object) -> None:
            """Nothing to tell."""

    async def story() -> None:
        async with AsyncClient("192.0.2.1:8001", observers=[Telling()], timeout_s=5.0) as client:
            request = InferRequest(("m", ""), {})
            call = client._core.observed(request, _sent(client, request))
            with pytest.raises(UsageError, match="the header authorization"):
                await run_async(call)

    asyncio.run(story())


def _sent(client: AsyncClient, request: InferRequest) -> Any:
    loop = asyncio.get_running_loop()
    yield from client._core.policy.call("ModelInfer", [b""], loop.time() + 5.0, where="m", headers=request.headers)


def test_the_command_line(tmp_path: Path) -> None:
    """`--key-file` for a server elsewhere needs `--allow-plaintext-credentials`, or TLS."""
    key = tmp_path / "key"
    key.write_text("hush\n")
    for command in ("models", "reload"):
        arguments = (command, "--address", "192.0.2.1:8001", "--key-file", str(key))
        message = failed(tritonkit(*arguments), 2)
        assert "without TLS to a host that is not this one" in message
        assert "--allow-plaintext-credentials" in message
        assert "hush" not in message
    allowed = ("--address", "no-such-host.invalid:8001", "--key-file", str(key))
    failed(tritonkit("models", *allowed, "--allow-plaintext-credentials"), 5)
