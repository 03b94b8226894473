"""Record what real servers send, as seeds for the fuzzer: `python -m tests.client.wire.fuzz.record FOLDER`.

Each file is the server's side of one connection on which the calls of `CALLS` were made in order, on the
streams 1, 3, 5 and so on.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from tests.client.wire.grpc_servers import body
from tests.client.wire.interop.proxies import PROXIES, Way, started
from tests.client.wire.interop.tap import tapped
from tritonkit.client.wire.http2 import Http2Transport
from tritonkit.errors import ClientError

CORPUS = Path(__file__).parent / "corpus"

CALLS = (
    ("ServerLive", [b""]),
    ("ModelInfer", body(data=b"x" * 40)),
    ("ModelInfer", body("NOT_FOUND")),
    ("stream", body(data=b"y" * 100, id="3")),
    ("ModelInfer", body(data=bytes(2_000))),
    ("ModelInfer", body("trailers", id="600")),
    ("stream", body("fail")),
)
"""Method or "stream", and the message sent."""


def record(name: str, folder: Path) -> None:
    """One connection to a server of that name."""
    with tempfile.TemporaryDirectory() as scratch:
        way = Way(idle_s=1)  # its end is recorded too
        with started(name, Path(scratch), way) as running, tapped(running.address) as tap:
            transport = Http2Transport(tap.address)
            for method, message in CALLS:
                with contextlib.suppress(ClientError):
                    if method != "stream":
                        transport.send(method, message, 10.0)  # type: ignore[arg-type]
                        continue
                    stream = transport.stream()
                    stream.write(message)
                    stream.end()
                    while stream.read(10.0) is not None:
                        pass
            while not tap.ended and not tap.count("GoAway"):
                pass
            transport.close()
            (folder / f"{name}.bin").write_bytes(bytes(tap.written[0]))


if __name__ == "__main__":
    for server in ("grpcio", *PROXIES):
        record(server, Path(sys.argv[1]) if sys.argv[1:] else CORPUS)
