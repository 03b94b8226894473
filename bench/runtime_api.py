"""AWS Lambda's side of a function, on this machine: the Runtime API over HTTP, and the function's process.

The protocol: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html. The client is the real `awslambdaric`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["Function", "Outcome", "RuntimeApi", "function", "http_event"]

_ROOT = "/2018-06-01/runtime"
_ARN = "arn:aws:lambda:eu-central-1:123456789012:function:model"


@dataclass(frozen=True)
class Outcome:
    """The result of an event: `failed` if it was posted as an error."""

    body: Any
    failed: bool


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, api: RuntimeApi) -> None:
        self.api = api
        super().__init__((host, 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """A function that is killed leaves its connection."""


class RuntimeApi:
    """The server, as a context manager; events are handed out one at a time, as Lambda does."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._events: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self._outcomes: queue.Queue[tuple[str, Outcome]] = queue.Queue()
        self.requested = threading.Event()
        """Set once the function asks for its first event: its start is over."""
        self.requested_at = 0.0
        self.init_error: Any = None
        """The error that the function posted instead."""
        self._server = _Server(host, self)

    @property
    def port(self) -> int:
        """Its address."""
        return int(self._server.server_address[1])

    def __enter__(self) -> RuntimeApi:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def invoke(self, event: Any, timeout_s: float = 60) -> Outcome:
        """Hand an event out and wait for its result; `queue.Empty` if there is none."""
        identity = str(uuid.uuid4())
        self._events.put((identity, event if isinstance(event, bytes) else json.dumps(event).encode()))
        identity_answered, outcome = self._outcomes.get(timeout=timeout_s)
        if identity_answered != identity:
            raise RuntimeError(f"an answer to {identity_answered}, not to {identity}")
        return outcome

    def end(self) -> None:
        """No more events: requests for one are refused, and the function's process ends by itself."""
        self._events.put(None)

    def next_event(self) -> tuple[str, bytes] | None:
        """The function requests an event: its identity and text, once there is one; None after the end."""
        if not self.requested.is_set():
            self.requested_at = time.monotonic()
            self.requested.set()
        event = self._events.get()
        if event is None:
            self.end()  # for a further request
        return event

    def fail_start(self, error: Any) -> None:
        """The function says that it could not start."""
        self.init_error = error
        self.requested.set()

    def put_outcome(self, identity: str, outcome: Outcome) -> None:
        """The function reports the result of an event."""
        self._outcomes.put((identity, outcome))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Headers and body leave together and immediately: in two parts the second waits for an acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """The next event, when there is one; an error when there will be none."""
        if self.path != f"{_ROOT}/invocation/next":
            return self._answer(404, b"{}")
        queued = self.server.api.next_event()
        if queued is None:
            return self._answer(500, b"{}")
        identity, event = queued
        headers = {
            "Lambda-Runtime-Aws-Request-Id": identity,
            "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 60_000),
            "Lambda-Runtime-Invoked-Function-Arn": _ARN,
            "Lambda-Runtime-Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700",
        }
        return self._answer(200, event, headers)

    def do_POST(self) -> None:
        """An answer, an error, or the end of a start that failed."""
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) if size else self._chunks())
        if self.path == f"{_ROOT}/init/error":
            self.server.api.fail_start(body)
        else:
            identity, what = self.path.removeprefix(f"{_ROOT}/invocation/").split("/")
            self.server.api.put_outcome(identity, Outcome(body, what == "error"))
        self._answer(202, b'{"status":"OK"}')

    def _chunks(self) -> bytes:
        text = b""
        while size := int(self.rfile.readline(), 16):
            text += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return text

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


@dataclass
class Function:
    """A running function: `start_s` from the start of its process until its request for an event."""

    api: RuntimeApi
    process: subprocess.Popen[str]
    start_s: float

    def invoke(self, event: Any) -> Outcome:
        """The result of an event."""
        return self.api.invoke(event)

    def stop(self) -> str:
        """End the function; return its log. It gets time to end by itself: a killed Docker command may not have copied
        all that its container wrote.
        """
        self.api.end()
        try:
            return self.process.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[0]


@contextmanager
def function(
    folder: Path, *, memory_mib: int = 1769, python: str = sys.executable, words: Sequence[str] = ()
) -> Iterator[Function]:
    """The function in a folder, in a separate process with only the environment that Lambda would give it.

    Args:
        folder: with handler.py.
        memory_mib: the function's memory, which decides its threads. python: a Python with awslambdaric and the
            function's imports.
        words: a command that runs it in place of `python`; `{port}` is the Runtime API's.
    """
    with RuntimeApi() as api:
        variables = {
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.port}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(memory_mib),
            "LAMBDA_TASK_ROOT": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [word.format(port=api.port) for word in words]
        began = time.monotonic()
        with subprocess.Popen(
            command or [python, "-m", "awslambdaric", "handler.handler"],
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                while not api.requested.wait(0.1):
                    if process.poll() is not None:
                        raise RuntimeError(f"the function ended: {process.communicate()[0]}")
                yield Function(api, process, api.requested_at - began)
            finally:
                process.kill()


def http_event(
    path: str,
    body: bytes = b"",
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    stage: str = "$default",
) -> dict[str, Any]:
    """HTTP as a function's URL and API Gateway hand it on: payload format 2.0, the body in base64."""
    import base64

    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path if stage == "$default" else f"/{stage}{path}",
        "rawQueryString": "",
        "headers": {"content-type": "application/json", **(headers or {})},
        "requestContext": {
            "accountId": "anonymous",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
            "requestId": "7c1f",
            "stage": stage,
            "timeEpoch": 0,
        },
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }
