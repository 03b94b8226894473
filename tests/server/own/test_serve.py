"""The serve room with a real Triton: ready, refused, watched, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.cli.running import tritonkit_here as tritonkit
from tests.server.models import VECTOR, ModelText, await_begun, ensemble, noting, write_repository
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.errors import InferenceError, ServerDied, ServerStartError, UsageError
from tritonkit.repository.publish import replace_models
from tritonkit.serve import Endpoint, ServeEvent, Server, serve
from tritonkit.serve.core.supervisor import SHARED_MEMORY, children, state

FREE = {"grpc_port": 0, "http_port": 0, "metrics_port": 0}
PYTHON = 'backend: "python"\n'

TEXT = """max_batch_size: 4
input { name: "text" data_type: TYPE_STRING dims: [1] }
output { name: "size" data_type: TYPE_INT64 dims: [1] }
"""
SAMPLE = (
    'model_warmup { name: "one" batch_size: 1 inputs { key: "text"'
    ' value { data_type: TYPE_STRING dims: [1] input_data_file: "text" } } }\n'
)
ZEROS = (
    'model_warmup { name: "zeros" batch_size: 1 inputs { key: "x"'
    " value { data_type: TYPE_FP32 dims: [4] zero_data: true } } }\n"
)
ONLY_HELLO = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            if text[0, 0] != b"hello":
                raise ValueError(f"not hello but {text[0, 0]}")
            size = pb_utils.Tensor("size", np.array([[len(text[0, 0])]], dtype=np.int64))
            answers.append(pb_utils.InferenceResponse([size]))
        return answers
"""
STREAM = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
DYING = """
import os, threading

def die():
    while not os.path.exists("MAY"):
        time.sleep(0.05)
    time.sleep(0.3)
    os._exit(1)
"""
TEXT_ENSEMBLE = (
    'platform: "ensemble"\n' + TEXT + 'ensemble_scheduling { step { model_name: "hello"'
    ' model_version: -1 input_map { key: "text" value: "text" }'
    ' output_map { key: "size" value: "size" } } }\n'
)
EVERY_KIND = {
    "cached": ModelText(PYTHON + VECTOR + ZEROS + "response_cache { enable: true }\n"),
    "limited": ModelText(
        PYTHON + VECTOR + ZEROS + "instance_group { count: 1 kind: KIND_CPU rate_limiter { resources"
        ' { name: "R" count: 1 } } }\n'
    ),
    "hello": ModelText(PYTHON + TEXT + SAMPLE, ONLY_HELLO, {"warmup/text": struct.pack("<I", 5) + b"hello"}),
    "greeting": ModelText(TEXT_ENSEMBLE, None),
    "unknown_text": ModelText(PYTHON + TEXT, ONLY_HELLO),
    "stream": ModelText(PYTHON + VECTOR + ZEROS + "model_transaction_policy { decoupled: true }\n", STREAM),
    "sequence": ModelText(PYTHON + VECTOR.replace("4\n", "1\n", 1) + ZEROS + "sequence_batching { direct { } }\n"),
    "unasked": ModelText(PYTHON + VECTOR, "class TritonPythonModel:\n    pass\n"),
}


class Events(list[ServeEvent]):
    """The events in order; the list itself is an `on_event`."""

    def __call__(self, event: ServeEvent) -> None:
        """Take one event."""
        self.append(event)

    def of(self, kind: str) -> list[ServeEvent]:
        """The events of one kind."""
        return [event for event in self if event.kind == kind]


@contextmanager
def client(endpoint: str) -> Iterator[Any]:
    """Triton's own gRPC stubs."""
    with grpc.insecure_channel(endpoint) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def ask(endpoint: str, model: str, seconds: float = 0.0, timeout_s: float = PATIENCE_S) -> bytes:
    """Send one vector whose first value is the seconds to take; the raw answer."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32").shape.extend([1, 4])
    request.raw_input_contents.append(struct.pack("<4f", seconds, 1, 2, 3))
    with client(endpoint) as stub:
        answer: bytes = stub.ModelInfer(request, timeout=timeout_s).raw_output_contents[0]
        return answer


def is_ready(endpoint: str) -> bool:
    """Whether the server takes requests."""
    with client(endpoint) as stub, suppress(grpc.RpcError):
        return bool(stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=PATIENCE_S).ready)
    return False


def unanswered(endpoint: str) -> set[str]:
    """The models that have answered no request so far."""
    with client(endpoint) as stub:
        models = stub.ModelStatistics(service_pb2.ModelStatisticsRequest()).model_stats
    return {model.name for model in models if model.inference_stats.success.count == 0}


class Traces:
    """The processes and shared-memory regions of a running server, to see whether they go."""

    def __init__(self, server: int) -> None:
        self.stubs = children(server)
        words = [Path(f"/proc/{stub}/cmdline").read_bytes().split(b"\0") for stub in self.stubs]
        prefix = words[0][2].decode().rpartition("_")[0]
        self.supervisor = int(prefix.split("_")[2])
        self.pids = [self.supervisor, server, *self.stubs]
        self.pattern = f"{prefix}_*"
        assert self.left() == len(self.pids) + len(self.stubs)

    def left(self) -> int:
        """The number of them that still exist."""
        running = [pid for pid in self.pids if state(pid) == "running"]
        return len(running) + len(list(SHARED_MEMORY.glob(self.pattern)))


@pytest.fixture
def echo(write_server_models: Any) -> Path:
    """A repository with one echo model."""
    folder: Path = write_server_models(echo=ModelText())
    return folder


def test_ready_means_every_kind_of_model_answered(write_server_models: Any) -> None:
    """Samples, streams, sequences, ensembles, caches and limits: all answer before `serve` gives the
    endpoint, the metrics do. Python without a model_warmup is sent nothing, which is said."""
    events = Events()
    with serve(write_server_models(**EVERY_KIND), **FREE, on_event=events) as endpoint:
        assert set(endpoint.models) == set(EVERY_KIND)
        folder = endpoint.log.parent
        # A stream's request is counted when its model is through with it, a little after its end.
        eventually(lambda: unanswered(endpoint.grpc) == {"unknown_text", "unasked"})
        host, port = endpoint.metrics.split(":")
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
        assert folder.stat().st_mode & 0o777 == 0o700
        traces = Traces(endpoint.pid)
    assert [event.model for event in events.of("warm_skipped")] == ["unasked", "unknown_text"]
    assert [event.kind for event in events][-3:] == ["ready", "stopping", "stopped"]
    assert traces.left() == 0
    assert list(folder.iterdir()) == [endpoint.log]


def test_a_subset_brings_what_its_ensemble_needs(write_server_models: Any) -> None:
    """Naming an ensemble serves its parts, and nothing else."""
    repository = write_server_models(
        first=ModelText(), second=ModelText(), other=ModelText(code="broken("), both=ensemble("first", "second")
    )
    with serve(repository, models=["both"], **FREE, finalize_timeout_s=0) as endpoint:
        assert endpoint.models == ("first", "second", "both")
        assert struct.unpack("<4f", ask(endpoint.grpc, "both")) == (0, 1, 2, 3)
        with pytest.raises(grpc.RpcError, match="other"):
            ask(endpoint.grpc, "other")
    with pytest.raises(UsageError, match="'both'"), serve(repository, models=["bth"], **FREE):
        pass


def test_a_backend_made_of_python_stands_in(write_server_models: Any, tmp_path: Path) -> None:
    """A folder of python_backends/backends serves the models that name it, from its own region."""
    repository = write_server_models(net=ModelText('backend: "twin"\n' + VECTOR, None))
    backend = tmp_path / "python_backends" / "backends" / "twin"
    backend.mkdir(parents=True)
    (backend / "model.py").write_text(ModelText().code or "")
    with serve(repository, **FREE, finalize_timeout_s=0) as endpoint:
        assert struct.unpack("<4f", ask(endpoint.grpc, "net")) == (0, 1, 2, 3)
        assert Traces(endpoint.pid).stubs


def test_a_port_in_use_is_told_before_anything_starts(echo: Path) -> None:
    """The error names the port and the process that has it, and no run folder is made."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(ServerStartError, match=rf"port {port}.*pid {os.getpid()}") as caught,
            serve(echo, grpc_port=port, http_port=0, metrics_port=0),
        ):
            pass
    assert "--grpc-port" in caught.value.todo
    assert not (echo.parent / ".tritonkit").exists()


def test_a_required_model_that_does_not_load_is_named(write_server_models: Any) -> None:
    """The error names the model at fault, its reason and its line; the ensemble is only mentioned, the
    healthy one not at all."""
    repository = write_server_models(
        good=ModelText(), bad=ModelText(code="import no_such_module\n"), both=ensemble("good", "bad")
    )
    with pytest.raises(ServerStartError) as caught, serve(repository, **FREE, require=["all"]):
        pass
    assert caught.value.where == "model bad"
    assert "No module named 'no_such_module'" in caught.value.found
    assert "both" in caught.value.found
    assert "bad/1/model.py(1)" in caught.value.details
    assert "|" not in caught.value.details


def test_a_first_request_that_fails_is_named(write_server_models: Any) -> None:
    """A required model that loads and cannot answer its own sample ends the start."""
    hello = ModelText(PYTHON + TEXT, ONLY_HELLO.replace("hello", "other"))
    code = hello.code or ""
    sample = {"warmup/text": struct.pack("<I", 5) + b"hello"}
    # A model_warmup that fails ends the load; this one answers it, and the next request no more.
    once = code.replace("    def execute", "    asked = 0\n    def execute").replace(
        '!= b"other"', '!= b"hello" or self.__class__.asked'
    )
    once = once.replace("            size =", "            self.__class__.asked = 1\n            size =")
    repository = write_server_models(once=ModelText(PYTHON + TEXT + SAMPLE, once, sample))
    with pytest.raises(ServerStartError, match=r"model once.*first request") as caught:
        Server(repository, **FREE, require=["once"]).start()
    assert "not other" in caught.value.found


CALLER = """import triton_python_backend_utils as pb

class TritonPythonModel:
    # Asks another model: good, or killer where the first value is not 0.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x")
            name = "killer" if x.as_numpy()[0, 0] else "good"
            answer = pb.InferenceRequest(model_name=name, requested_output_names=["y"], inputs=[x]).exec()
            error = answer.error() if answer.has_error() else None
            outputs = [] if error else [pb.get_output_tensor_by_name(answer, "y")]
            answers.append(pb.InferenceResponse(outputs, error))
        return answers
"""
DYING_MODELS = {
    "load": "    def initialize(self, args): os.kill(os.getppid(), 9)\n",
    "warm_up": "    def execute(self, requests): os.abort()\n",
    "raises": "    def initialize(self, args): raise ValueError('no weights here')\n",
}
"""Python of models that ends the server, ends its own process, or raises."""


def test_one_bad_model_does_not_keep_the_others_from_being_served(write_server_models: Any) -> None:
    """A model that cannot be read, one that raises, one that ends the whole server as it loads, an ensemble of it:
    each is named with its reason, also by `tritonkit models`. One whose warm-up fails is served without it."""
    events = Events()
    begin = "import os\nclass TritonPythonModel:\n"
    several = ZEROS.replace("batch_size: 1", "batch_size: 4")
    repository = write_server_models(
        good=ModelText(),
        over=ensemble("good"),
        unreadable=ModelText("nonsense: 3"),
        no_file=ModelText(code=None),
        over_killer=ensemble("killer"),
        killer=ModelText(code=begin + DYING_MODELS["load"]),
        raises=ModelText(code=begin + DYING_MODELS["raises"]),
        cold=ModelText(PYTHON + VECTOR + several, begin + DYING_MODELS["warm_up"]),
        zeros=ModelText(PYTHON + VECTOR + ZEROS, ONLY_HELLO),
        caller=ModelText(code=CALLER),
    )
    with serve(repository, **FREE, on_event=events, finalize_timeout_s=0) as endpoint:
        assert set(endpoint.models) == {"good", "over", "cold", "zeros", "caller"}
        with Client(endpoint.grpc) as client:
            model = client.model("caller")
            assert model.predict(x=np.float32([[0, 1, 2, 3]]))["y"].tolist() == [[0, 1, 2, 3]]
            with pytest.raises(InferenceError, match="'killer' is not ready") as caught:
                model.predict(x=np.float32([[1, 1, 2, 3]]))
        assert caught.value.todo.startswith("name killer in `calls` of the model")
        assert struct.unpack("<4f", ask(endpoint.grpc, "over")) == (0, 1, 2, 3)
        assert list(map(str.strip, endpoint.failed["raises"].split(":", 1))) == [
            "Internal",
            "ValueError: no weights here",
        ]
        assert "nonsense" in endpoint.failed["unreadable"]
        assert "has no such file" in endpoint.failed["no_file"]
        assert endpoint.failed["killer"].startswith("it was ended by SIGKILL while it loaded")
        assert endpoint.failed["over_killer"] == "it calls killer, which cannot be served"
        assert {event.model for event in events.of("warm_failed")} == {"cold", "zeros"}
        done = tritonkit("models", "--address", endpoint.grpc, "--json", cwd=repository.parent)
        shown = {model["name"]: model for model in json.loads(done.stdout)["models"]}
        assert [name for name in sorted(shown) if shown[name]["ready"]] == sorted(endpoint.models)
        for name, reason in endpoint.failed.items():
            assert shown[name]["reason"].startswith(reason.splitlines()[0])
    with pytest.raises(UsageError, match="--require godo"):
        Server(repository, **FREE, require=["godo"]).start()
    with pytest.raises(ServerStartError, match="nonsense"):
        Server(repository, **FREE, require=["good", "unreadable"]).start()


def test_a_model_without_its_file_is_refused_at_once(write_server_models: Any) -> None:
    """Triton, which would wait for half a minute, is not started."""
    events = Events()
    with pytest.raises(ServerStartError, match=r"empty/1/model\.py"):
        Server(write_server_models(empty=ModelText(code=None)), **FREE, on_event=events).start()
    assert not events


def test_too_little_shared_memory_is_told_before_the_start(write_server_models: Any) -> None:
    """A model whose batches cannot fit into /dev/shm is named with what it needs."""
    huge = VECTOR.replace("dims: [4]", f"dims: [{1 << 40}]")
    with pytest.raises(ServerStartError, match="Python stubs") as caught:
        Server(write_server_models(huge=ModelText(PYTHON + huge)), **FREE).start()
    assert "huge: 1 x" in caught.value.details
    assert "--shm-size" in caught.value.todo


def test_a_dead_stub_is_noticed_and_answers_again(write_server_models: Any) -> None:
    """kill -9 of one of two stubs: it is reported, and every request is answered soon after, also
    through the ensemble."""
    events = Events()
    repository = write_server_models(
        pair=ModelText(PYTHON + VECTOR + "instance_group { count: 2 kind: KIND_CPU }\n"), over=ensemble("pair")
    )
    with serve(repository, **FREE, on_event=events, finalize_timeout_s=0) as endpoint:
        traces = Traces(endpoint.pid)
        os.kill(traces.stubs[0], signal.SIGKILL)
        (died,) = eventually(lambda: events.of("stub_died"))
        assert died.model == "pair"
        eventually(lambda: events.of("stub_back"))
        for model in ("pair", "over") * 4:
            assert struct.unpack("<4f", ask(endpoint.grpc, model)) == (0, 1, 2, 3)
        assert not events.of("server_died")
        # The other stub of the model as it was has been replaced too.
        eventually(lambda: state(traces.stubs[1]) != "running")
    assert traces.left() == 0


@pytest.mark.slow
def test_a_model_that_keeps_dying_is_given_up(write_server_models: Any, tmp_path: Path) -> None:
    """Its stub ends itself after each first answer, once somebody looks: five times, then it is left alone, and the
    server and its other model go on."""
    may = tmp_path / "may"
    code = (ModelText().code or "") + DYING.replace("MAY", str(may))
    code = code.replace(
        "        return answers", "        threading.Thread(target=die).start()\n        return answers"
    )
    events = Events()
    fatal = ModelText(PYTHON + VECTOR + ZEROS, code)
    repository = write_server_models(fatal=fatal, echo=ModelText())
    with serve(repository, **FREE, on_event=events, finalize_timeout_s=0) as endpoint:
        may.touch()
        (lost,) = eventually(lambda: events.of("stub_lost"))
        assert (lost.model, "5 times" in lost.message) == ("fatal", True)
        assert len(events.of("stub_died")) == 5
        assert ask(endpoint.grpc, "echo")


def test_a_dead_server_is_noticed(echo: Path) -> None:
    """kill -9 of a tritonserver that is not to be started again: it is reported, an error says how it
    ended, nothing is left."""
    events = Events()
    server = Server(echo, **FREE, restarts=0, on_event=events)
    endpoint = server.start()
    traces = Traces(endpoint.pid)
    os.kill(endpoint.pid, signal.SIGKILL)
    with pytest.raises(ServerDied, match="SIGKILL"):
        server.wait(PATIENCE_S)
    (event,) = eventually(lambda: events.of("server_died"))
    assert "SIGKILL" in event.message
    assert not server.poll()
    server.stop()
    assert traces.left() == 0


def test_a_dead_server_ends_the_block_with_an_error(echo: Path) -> None:
    """Leaving a `with serve(...)` whose server has gone does not pass for success."""
    server = Server(echo, **FREE, restarts=0)

    def use() -> None:
        with server as endpoint:
            os.kill(endpoint.pid, signal.SIGKILL)
            eventually(lambda: not server.poll())

    with pytest.raises(ServerDied, match="SIGKILL"):
        use()


def test_a_server_that_dies_comes_back(echo: Path) -> None:
    """kill -9 of tritonserver: it is started again at the same addresses, and says so; what was left of
    the first one goes, and the end of the block is no error."""
    events = Events()
    server = Server(echo, **FREE, on_event=events, finalize_timeout_s=0)
    with server as endpoint:
        traces = Traces(endpoint.pid)
        os.kill(endpoint.pid, signal.SIGKILL)
        eventually(lambda: events.of("server_back"))
        assert struct.unpack("<4f", ask(endpoint.grpc, "echo")) == (0, 1, 2, 3)
        assert server.endpoint.pid != endpoint.pid
        assert server.poll()
        eventually(lambda: traces.left() == 0, "nothing is left of the first one")
        body = urllib.request.urlopen(f"http://{endpoint.metrics}/metrics", timeout=PATIENCE_S).read()
        assert b"nv_inference_request_success" in body
        # What watches over stubs watches over those of the new process.
        os.kill(Traces(server.endpoint.pid).stubs[0], signal.SIGKILL)
        eventually(lambda: events.of("stub_back"))
    assert [e.kind for e in events if e.kind.startswith("server_")] == ["server_died", "server_back"]


@pytest.mark.slow
def test_a_server_that_keeps_dying_comes_back_each_time(echo: Path) -> None:
    """A caller that can kill the server cannot keep it down."""
    events = Events()
    server = Server(echo, **FREE, restarts=2, on_event=events, finalize_timeout_s=0)
    with server as endpoint:
        for number in range(1, 5):
            os.kill(server.endpoint.pid, signal.SIGKILL)
            eventually(lambda n=number: len(events.of("server_back")) == n)
        assert struct.unpack("<4f", ask(endpoint.grpc, "echo")) == (0, 1, 2, 3)


def test_a_server_comes_back_with_what_was_loaded_since(write_server_models: Any, tmp_path: Path) -> None:
    """A model got other tensors and lost its sample, another one was added: after the death of a stub and after
    kill -9 of tritonserver it is what the repository has now that answers, at the first try."""
    sample = (
        'model_warmup { name: "one" batch_size: 1 inputs { key: "x"'
        ' value { data_type: TYPE_FP32 dims: [4] input_data_file: "x" } } }\n'
    )
    changing = ModelText(PYTHON + VECTOR + sample, files={"warmup/x": bytes(16)})
    repository = write_server_models(changing=changing, left_out=ModelText(code="broken("))
    code, vector = (ModelText().code or "").replace('"x"', '"z"'), VECTOR.replace('"x"', '"z"')
    changed = ModelText(PYTHON + vector.replace("dims: [4]", "dims: [2]"), code)
    published = write_repository(tmp_path / "next", {"changing": changed, "added": ModelText()})
    (published / "changing" / "1").rename(published / "changing" / "2")
    events = Events()
    server = Server(repository, models=["changing"], **FREE, on_event=events, finalize_timeout_s=0)

    def check(endpoint: Endpoint) -> None:
        with Client(endpoint.grpc) as client:
            z = np.float32([[0, 5]])
            assert np.array_equal(client.model("changing").predict(z=z)["y"], z)

    with server as endpoint:
        replace_models(published, repository, "changing", ["changing", "added"])
        # The death of its stub has the model loaded again, as the repository has it now.
        os.kill(Traces(endpoint.pid).stubs[0], signal.SIGKILL)
        eventually(lambda: events.of("stub_back"))
        check(endpoint)
        with Client(endpoint.grpc, admin_key=endpoint.admin_key) as admin:
            admin.load("added")
        with pytest.raises(UsageError, match="'added'"):
            server.serve_too("aded")
        server.serve_too("added")
        os.kill(endpoint.pid, signal.SIGKILL)
        eventually(lambda: events.of("server_back"))
        check(server.endpoint)
        assert struct.unpack("<4f", ask(endpoint.grpc, "added")) == (0, 1, 2, 3)
        assert server.endpoint.models == ("changing", "added")
    assert (len(events.of("stub_died")), len(events.of("server_died"))) == (1, 1)


def test_a_repository_that_cannot_be_read_keeps_nobody_from_trying_again(echo: Path) -> None:
    """kill -9 of tritonserver while no configuration can be read: each failed start is reported, and once it can
    be read again the server answers."""
    events = Events()
    config = echo / "echo" / "config.pbtxt"
    with serve(echo, **FREE, restarts=100, on_event=events, finalize_timeout_s=0) as endpoint:
        aside = config.rename(config.with_suffix(".aside"))
        config.mkdir()
        os.kill(endpoint.pid, signal.SIGKILL)
        eventually(lambda: len(events.of("server_died")) == 2)
        assert str(config) in events.of("server_died")[-1].message
        config.rmdir()
        eventually(lambda: len(events.of("server_died")) > 2 and "no NAME" in events[-1].message)
        aside.rename(config)
        eventually(lambda: events.of("server_back"))
        assert struct.unpack("<4f", ask(endpoint.grpc, "echo")) == (0, 1, 2, 3)


def test_a_server_that_does_not_come_back_is_given_up(echo: Path) -> None:
    """Its model has gone bad meanwhile: after that number of starts it stays down, and the error says so."""
    events = Events()
    server = Server(echo, **FREE, restarts=2, on_event=events)
    server.start()
    (echo / "echo" / "1" / "model.py").write_text("import no_such_module\n")
    os.kill(server.endpoint.pid, signal.SIGKILL)
    with pytest.raises(ServerDied):
        server.wait(PATIENCE_S)
    assert "2 starts" in events.of("server_lost")[0].message
    assert any("no_such_module" in event.message for event in events.of("server_died"))
    server.stop()


def test_a_server_can_be_stopped_while_it_comes_back(echo: Path) -> None:
    """Asked to end between a death and the new start, it ends, and nothing is left."""
    events = Events()
    server = Server(echo, **FREE, on_event=events)
    traces = Traces(server.start().pid)
    os.kill(traces.pids[1], signal.SIGKILL)
    eventually(lambda: events.of("server_died"))
    server.stop()
    assert server.wait(PATIENCE_S)
    assert not server.poll()
    assert traces.left() == 0
    assert not list(SHARED_MEMORY.glob(f"{traces.pattern.rpartition('_')[0]}*"))


PROGRAM = """import sys
from pathlib import Path
from tritonkit.serve import Server
server = Server(Path(sys.argv[1]), grpc_port=0, http_port=0, metrics_port=0, restarts=0)
endpoint = server.start()
print(endpoint.grpc, endpoint.pid, flush=True)
server.run_until_signal()
"""


@contextmanager
def program(repository: Path) -> Iterator[tuple[subprocess.Popen[str], str, Traces]]:
    """Another Python that serves in the foreground: the process, its address and its traces."""
    command = [sys.executable, "-c", PROGRAM, str(repository)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address, pid = process.stdout.readline().split()
            yield process, address, Traces(int(pid))
        finally:
            process.kill()


@pytest.mark.parametrize("victim", ["program", "supervisor"])
def test_nothing_is_left_after_kill_9(echo: Path, victim: str) -> None:
    """kill -9 of the program that serves, or of the supervisor below it: no process, no region stays."""
    with program(echo) as (process, _, traces):
        os.kill(process.pid if victim == "program" else traces.supervisor, signal.SIGKILL)
        eventually(lambda: traces.left() == 0)
        assert process.wait(PATIENCE_S) == (-signal.SIGKILL if victim == "program" else 1)


def test_what_is_left_of_a_run_that_was_killed_whole_goes_at_the_next_start(echo: Path) -> None:
    """kill -9 of program and supervisor together leaves nobody to clean up: the next start does it."""
    with program(echo) as (process, _, traces):
        for pid in (traces.supervisor, process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
    (SHARED_MEMORY / traces.pattern.replace("*", "left")).touch()
    with serve(echo, **FREE, finalize_timeout_s=0):
        eventually(lambda: traces.left() == 0)


def test_ctrl_c_drains(write_server_models: Any, begun: Path) -> None:
    """SIGINT while a request is in flight: it is answered, the exit code is 0, nothing is left."""
    with program(write_server_models(echo=noting(begun))) as (process, address, traces), ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, address, "echo", 1.5)
        await_begun(begun)
        process.send_signal(signal.SIGINT)
        assert struct.unpack("<4f", answer.result(PATIENCE_S)) == (1.5, 1, 2, 3)
        assert process.wait(PATIENCE_S) == 0
        assert traces.left() == 0


def nested(write_server_models: Any, begun: Path) -> Path:
    """Two ensembles, one of which calls the other: `whole` takes its time in both of its parts."""
    return write_server_models(
        first=noting(begun, instances=6),
        second=ModelText(),
        inner=ensemble("first", "second"),
        whole=ensemble("inner", "second"),
    )


@pytest.mark.slow
def test_ctrl_c_lets_ensembles_finish(write_server_models: Any, begun: Path) -> None:
    """SIGINT while requests are at the first steps of ensembles: the later steps still answer them."""
    with program(nested(write_server_models, begun)) as (process, address, traces), ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(ask, address, name, 0.5) for name in ("inner", "whole") * 3]
        await_begun(begun, 6)
        process.send_signal(signal.SIGINT)
        for answer in answers:
            assert struct.unpack("<4f", answer.result(PATIENCE_S)) == (0.5, 1, 2, 3)
        assert process.wait(PATIENCE_S) == 0
        assert traces.left() == 0


def test_stop_lets_ensembles_finish(write_server_models: Any, begun: Path) -> None:
    """The same for `stop()`, here the end of a block; what comes after it is refused."""
    with ThreadPoolExecutor() as pool:
        repository = nested(write_server_models, begun)
        with serve(repository, **FREE, finalize_timeout_s=0) as endpoint:
            answer = pool.submit(ask, endpoint.grpc, "whole", 0.5)
            await_begun(begun)
        assert struct.unpack("<4f", answer.result(PATIENCE_S)) == (0.5, 1, 2, 3)
        with pytest.raises(grpc.RpcError):
            ask(endpoint.grpc, "whole")


def test_a_second_ctrl_c_does_not_wait(write_server_models: Any, begun: Path) -> None:
    """Two SIGINT end a server whose model takes a minute, and nothing is left."""
    with program(write_server_models(echo=noting(begun))) as (process, address, traces), ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, address, "echo", 60)
        await_begun(begun)
        process.send_signal(signal.SIGINT)
        eventually(lambda: not is_ready(address), "the server takes no more requests")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert traces.left() == 0
        with pytest.raises(grpc.RpcError):
            answer.result(PATIENCE_S)


def test_two_servers_do_not_disturb_each_other(echo: Path) -> None:
    """One repository is served twice: starting and stopping one server leaves the other answering."""
    first: Endpoint
    with serve(echo, **FREE, finalize_timeout_s=0) as first:
        with serve(echo, **FREE, finalize_timeout_s=0) as second:
            assert {first.grpc, first.metrics}.isdisjoint({second.grpc, second.metrics})
        assert struct.unpack("<4f", ask(first.grpc, "echo")) == (0, 1, 2, 3)


def test_models_can_finalize(write_server_models: Any, tmp_path: Path) -> None:
    """Stopping lets each model run its `finalize`."""
    note = tmp_path / "finalized"
    code = (ModelText().code or "") + f"\n    def finalize(self):\n        open({str(note)!r}, 'w')\n"
    with serve(write_server_models(polite=ModelText(code=code)), **FREE):
        pass
    assert note.exists()
