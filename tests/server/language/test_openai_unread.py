"""`tritonkit openai` before a real Triton, and a caller that does not read."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest

from tests.openai.running import running
from tests.server.openai_models import PARROT
from tests.server.sharing import SharedServer
from tests.waiting import PATIENCE_S, eventually


@pytest.mark.slow
def test_a_caller_that_stops_reading_ends_the_work(shared: SharedServer, tmp_path: Path) -> None:
    """Its connection stays open: the model sees that the stream is over, the caller finds its connection reset, and
    others are answered meanwhile."""
    with (
        running(tmp_path, "--address", shared.serving({"parrot": PARROT}).grpc) as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        hold_unread(client, url, tmp_path / "stopped")


def hold_unread(client: openai.OpenAI, url: str, stopped: Path) -> None:
    """Send a request whose answer is not read; the model writes the file when it is ended."""
    place = urlsplit(url)
    body = {"model": "parrot", "prompt": f"SAY ENDLESS {stopped}", "stream": True}
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.connect((place.hostname, place.port))
        caller.sendall(head.encode() + data)
        eventually(stopped.with_suffix(".begun").exists, "the model begins")
        assert client.completions.create(model="parrot", prompt="SAY a").choices[0].text == " a"
        eventually(stopped.exists, "the model sees that nobody reads")
        caller.settimeout(PATIENCE_S)
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: caller.recv(1 << 16), b""))
