"""Streams and sequences in a real Triton: decoupled Python models, and one with sequence batching."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed, tritonkit, tritonkit_here
from tests.server.models import ECHO, ModelText
from tests.server.sharing import SharedServer
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import AsyncClient, Client, Model
from tritonkit.errors import DeadlineExceeded, InferenceError, UsageError
from tritonkit.perf.load.openloop import Arrivals, Generator, OpenLoad
from tritonkit.serve import Endpoint

COUNT = ModelText(
    """backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "x", data_type: TYPE_FP32, dims: [ 3 ] }, { name: "note", data_type: TYPE_STRING, dims: [ 1 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 2 } ]
""",
    """import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # x: how many answers, seconds between them, number of the answer to fail at (-1: none).
    # note: the file that is written when the request was cancelled.
    def execute(self, requests):
        for request in requests:
            tensor = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            many, pause, fail = tensor("x").tolist()
            sender = request.get_response_sender()
            for number in range(int(many)):
                if request.is_cancelled():
                    open(tensor("note")[0], "w").close()
                    break
                if number == fail:
                    error = pb_utils.TritonError("told to fail")
                    sender.send(pb_utils.InferenceResponse(error=error))
                    break
                y = pb_utils.Tensor("y", np.array([number], np.float32))
                sender.send(pb_utils.InferenceResponse([y]))
                time.sleep(pause)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
)
SUM = """max_batch_size: 1
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output [ { name: "sum" data_type: TYPE_FP32 dims: [1] }, { name: "seen" data_type: TYPE_STRING dims: [1] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
NOTE = 'input { name: "note" data_type: TYPE_STRING dims: [1] }\n'
CORRID = ',{ name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }'
CONTROLS = """sequence_batching {
  max_sequence_idle_microseconds: 60000000
  direct { }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } ] }
    %s
  ]
}
"""
ADDING = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # The sum of a sequence's x so far, and what the scheduler said of the request.
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            value = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
            name = request.correlation_id()
            number = pb_utils.get_input_tensor_by_name(request, "CORRID")
            assert number is None or number.as_numpy().item() == name
            x, start, end = value("x"), value("START"), value("END")
            if x < 0:
                error = pb_utils.TritonError("no negative numbers")
                answers.append(pb_utils.InferenceResponse([], error))
                continue
            self.sums[name] = x if start else self.sums[name] + x
            seen = f"{name} {int(start)}{int(end)} {len(self.sums)}"
            y = pb_utils.Tensor("sum", np.array([[self.sums[name]]], np.float32))
            seen = pb_utils.Tensor("seen", np.array([[seen.encode()]], object))
            answers.append(pb_utils.InferenceResponse([y, seen]))
            if end:
                del self.sums[name]
        return answers
"""


def adding(control: str, more: str = "") -> ModelText:
    """A model that keeps a sum for each sequence; one sequence at a time has its slot."""
    return ModelText('backend: "python"\n' + SUM + more + CONTROLS % control, ADDING)


SHOWS = ModelText(
    """backend: "python"
max_batch_size: 2
input { name: "x" data_type: TYPE_FP32 dims: [3] }
output [
  { name: "score", data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt" },
  { name: "seen", data_type: TYPE_STRING dims: [1] }
]
instance_group [ { kind: KIND_CPU count: 1 } ]
""",
    """import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # The scores are x; seen is what the request says next to its tensors.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            seen = json.dumps([json.loads(request.parameters()), request.request_id()])
            cells = np.array([[seen]] * len(x), object)
            tensors = [pb_utils.Tensor("score", x), pb_utils.Tensor("seen", cells)]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
""",
    {"labels.txt": b"ant\nbee\ncat\n"},
)


@pytest.fixture(scope="module")
def server(shared: SharedServer) -> Endpoint:
    """The session's server with the models of this file."""
    models = {
        "count": COUNT,
        "adding": adding(CORRID),
        # Triton 2.51 fails where CORRID is a text.
        "adding_text": adding("", NOTE),
        "shows": SHOWS,
        "misnamed": ModelText(code=ECHO.replace('"y"', '"z"')),
    }
    return shared.serving(models)


@pytest.fixture
def client(server: Endpoint) -> Iterator[Client]:
    """A client of it."""
    with Client(server.grpc, timeout_s=PATIENCE_S) as client:
        yield client


def wait_for(file: Path) -> bool:
    """Wait until the model has written this file."""
    return bool(eventually(file.exists, f"the model writes {file.name}"))


def inputs_of(x: list[float], note: Any = "") -> dict[str, Any]:
    """Inputs of `count`."""
    return {"x": x, "note": str(note)}


def test_the_command_shows_a_line_for_each_reply(server: Endpoint) -> None:
    """A model without text has a line for each reply; an error after some replies loses none."""
    command = ["call", "count", "--address", server.grpc, "--stream", "--input", "note="]
    done = tritonkit_here(*command, "--input", "x=[3, 0, -1]")
    assert done.stdout.splitlines() == ["y=[0.0]", "y=[1.0]", "y=[2.0]"]
    assert "3 replies" in done.stderr
    done = tritonkit_here(*command, "--input", "x=[3, 0, 1]")
    assert done.stdout.splitlines() == ["y=[0.0]"]
    assert "told to fail" in failed(done, 5)


def test_a_decoupled_model(client: Client) -> None:
    """Every answer arrives when it is made, and the end is known."""
    count = client.model("count")
    replies = list(count.stream(inputs=inputs_of([4, 0.1, -1])))
    assert [reply["y"].item() for reply in replies] == [0, 1, 2, 3]
    assert replies[-1].timing.total_s > 0.2
    assert list(count.stream(inputs=inputs_of([0, 0, -1]))) == []
    with pytest.raises(InferenceError):  # such a model has no single answer
        count.predict(inputs=inputs_of([1, 0, -1]))


def test_a_model_that_fails_in_the_middle(client: Client) -> None:
    """Replies before the failure are good; the server and its connection go on."""
    for _ in range(5):
        stream = client.model("count").stream(inputs=inputs_of([5, 0.001, 2]))
        assert [next(stream)["y"].item() for _ in range(2)] == [0, 1]
        with pytest.raises(InferenceError, match="told to fail"):
            next(stream)
        assert list(stream) == []
    assert client.is_ready("count")


def test_stopping_early_is_seen_by_the_model(client: Client, tmp_path: Path) -> None:
    """Its `is_cancelled()` becomes true, however the stream is left."""
    count = client.model("count")
    with count.stream(inputs=inputs_of([1000, 0.02, -1], tmp_path / "left")) as replies:
        next(replies)
    assert wait_for(tmp_path / "left")
    for _ in count.stream(inputs=inputs_of([1000, 0.02, -1], tmp_path / "forgotten")):
        break
    assert wait_for(tmp_path / "forgotten")
    # On a busy machine the time may be over before the model has begun: it grows.
    times = (0.2 * 2**number for number in itertools.count())
    eventually(lambda: replies_in_time(count, tmp_path / "late", next(times)), "a reply in time")
    assert wait_for(tmp_path / "late")
    assert len(list(count.stream(inputs=inputs_of([3, 0, -1])))) == 3


def replies_in_time(count: Model, late: Path, timeout_s: float) -> int:
    """The replies that come before the deadline of a stream that goes on."""
    replies = []
    stream = count.stream(inputs=inputs_of([1000, 0.02, -1], late), timeout_s=timeout_s)
    with pytest.raises(DeadlineExceeded):
        replies.extend(iter(stream))
    return len(replies)


def test_cancelling_a_task_is_seen_by_the_model(server: Endpoint, tmp_path: Path) -> None:
    """The same for asyncio: a cancelled task, a block that is left."""

    async def program() -> None:
        async with AsyncClient(server.grpc, timeout_s=PATIENCE_S) as client:
            count = await client.model("count")

            replied = asyncio.Event()

            async def read(note: str) -> None:
                async for _ in count.stream(inputs=inputs_of([1000, 0.02, -1], tmp_path / note)):
                    replied.set()

            task = asyncio.create_task(read("cancelled"))
            await asyncio.wait_for(replied.wait(), PATIENCE_S)
            task.cancel()
            await asyncio.wait({task})
            assert await asyncio.to_thread(wait_for, tmp_path / "cancelled")
            values = inputs_of([1000, 0.02, -1], tmp_path / "left")
            async with count.stream(inputs=values) as replies:
                await anext(replies)
            assert await asyncio.to_thread(wait_for, tmp_path / "left")
            some = [reply["y"].item() async for reply in count.stream(inputs=inputs_of([3, 0, -1]))]
            assert some == [0, 1, 2]

    asyncio.run(program())


def test_many_streams_come_and_go(client: Client) -> None:
    """Short ones, some left early, over one connection: the server lives."""
    count = client.model("count")

    def read(number: int) -> int:
        with count.stream(inputs=inputs_of([6, 0.001, -1])) as replies:
            return sum(1 for _ in zip(range(number % 8), replies, strict=False))

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(read, range(80)))
    assert counts == [min(number % 8, 6) for number in range(80)]
    assert client.is_ready("count")


def test_a_sequence_keeps_its_state(client: Client) -> None:
    """Sums of a sequence go on; START, END and the id reach the model as they should."""
    with client.model("adding").sequence() as sequence:
        replies = [sequence.predict(x=[value], last=value == 3) for value in (1, 2, 3)]
    assert [reply["sum"].item() for reply in replies] == [1, 3, 6]
    notes = [reply["seen"].item().decode().split()[:2] for reply in replies]
    name = str(sequence.correlation_id)
    assert notes == [[name, "10"], [name, "00"], [name, "01"]]


def test_the_end_frees_the_slot(client: Client) -> None:
    """The model has one slot: a sequence that was left without its last call does not keep it."""
    for state in ("left", "failed"):
        try:
            with client.model("adding").sequence() as sequence:
                sequence.predict(x=[1])
                if state == "failed":
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    with client.model("adding").sequence() as sequence:
        reply = sequence.predict(x=[5], last=True)
        assert reply["sum"].item() == 5
        assert reply["seen"].item().split()[2] == b"1"  # the model forgot the others
        with pytest.raises(UsageError, match="has ended"):
            sequence.predict(x=[1])


def test_a_call_that_fails_leaves_the_sequence(client: Client) -> None:
    """The model's own error: its state is as the model left it."""
    with client.model("adding").sequence(7) as sequence:
        sequence.predict(x=[1])
        with pytest.raises(InferenceError, match="no negative numbers"):
            sequence.predict(x=[-1])
        assert sequence.predict(x=[2], last=True)["sum"].item() == 3


def test_what_a_request_says_next_to_its_tensors(client: Client) -> None:
    """Parameters of every type, an id that comes back, and the best classes with their labels."""
    model = client.model("shows")
    parameters = {"level": -(2**63), "share": 0.5, "name": "ä", "fast": True}
    reply = model.predict(x=[0.25, 2.0, 1.0], parameters=parameters, request_id="mine")
    assert json.loads(reply["seen"].item()) == [parameters, "mine"]
    assert reply.request_id == "mine"
    reply = model.predict(x=[[0.25, 2.0, 1.0], [3.0, 0.0, 1.0]], classification={"score": 2})
    assert reply["score"].tolist() == [[b"2.000000:1:bee", b"1.000000:2:cat"], [b"3.000000:0:ant", b"1.000000:2:cat"]]
    assert reply["seen"].shape == (2, 1)
    done = tritonkit_here(
        *("call", "shows", "--address", client.address, "--input", "x=[0.25, 2.0, 1.0]", "--json"),
        *("--parameter", "level=3", "--parameter", "mode=fast", "--request-id", "mine"),
        *("--classes", "score=1"),
    )
    shown = json.loads(done.stdout)["outputs"]
    assert shown["score"] == [["2.000000:1:bee"]]
    assert json.loads(shown["seen"][0][0]) == [{"level": 3, "mode": "fast"}, "mine"]
    replies = list(model.stream(x=[0.25, 2.0, 1.0], parameters={"level": 1}, request_id="stream"))
    assert json.loads(replies[0]["seen"].item()) == [{"level": 1}, "stream"]


def test_an_output_under_another_name_than_the_configuration_s(client: Client) -> None:
    """Triton drops it without a word; the command and the reply name the output that is missing, and why."""
    command = ("call", "misnamed", "--address", client.address, "--input", "x=[0, 1, 2, 3]")
    done = tritonkit_here(*command)
    assert "misnamed gave no output y, though its configuration has it" in " ".join(done.stderr.split())
    with pytest.raises(KeyError, match="no output 'y'; it gave none: Triton leaves out"):
        client.model("misnamed").predict(x=[0, 1, 2, 3])["y"]


def test_load_of_every_kind_of_model(server: Endpoint, tmp_path: Path) -> None:
    """Sequences, streams and calls of a repository that was made elsewhere, by its address alone."""
    inputs = {
        "adding": ["--sequence-calls", "3"],  # one input of numbers, which are made up
        "count": ["--input", "x=[3, 0, -1]", "--input", "note="],
        "shows": ["--input", "x=[0.5, 2.0, 1.0]"],
    }
    closed = ["--users", "2", "--duration", "1s", "--think-time", "1ms", "--json"]

    def sends(model: str) -> bool:
        done = tritonkit("load", model, "--address", server.grpc, *closed, *inputs[model], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (series,) = json.loads(done.stdout)["series"]
        assert series["failures"] == 0
        if model == "count":  # three replies of a number
            assert series["mean_bytes"] == 3 * 4
        return bool(series["requests"] > 8)

    with ThreadPoolExecutor(len(inputs)) as pool:
        list(pool.map(lambda model: eventually(lambda: sends(model), f"a load of {model}"), inputs))


OWN_CHECKS = """from tritonkit.perf.load import Request, Workload

seen = {}


def check(outputs):
    name, flags, held = outputs["seen"].item().decode().split()
    count = seen[name] = seen.get(name, 0) + 1
    wanted = {1: "10", 2: "00", 3: "01"}.get(count)
    return "" if (flags, held) == (wanted, "1") else f"call {count} is {flags}, {held} sequences are held"


def adding(root, client):
    return Workload("adding", tuple(Request({"x": [[x]]}, check) for x in (1.0, 2.0)))


def failing(root, client):
    return Workload("adding", (Request({"x": [[-1.0]]}, check),))


WORKLOADS = {"adding": %s}
"""


def own_checks(root: Path, name: str) -> None:
    """A project whose load of `adding` is this one."""
    (root / "loadtest").mkdir()
    (root / "loadtest" / "workloads.py").write_text(OWN_CHECKS % name)


def test_sequences_arrive_at_a_rate(server: Endpoint, tmp_path: Path) -> None:
    """Each has its own id, begins and ends, and calls once the call before is answered; the only place is free then."""
    own_checks(tmp_path, "adding")
    with Generator(tmp_path, ("adding",), (server.grpc,), calls=3, timeout_s=PATIENCE_S) as generator:
        assert generator.unit == "sequences"
        load = OpenLoad(20.0, 1.0, warm_s=0.2, arrivals=Arrivals("constant"), processes=2)
        (series,) = generator.run(load).series
    assert (series.requests, series.right, series.failures) == (20, 20, 0), series.words
    assert series.answers
    assert series.answers.count == 60
    assert series.answers.first
    assert series.answers.whole
    assert series.latency
    counts = [times.count for times in (series.answers.first, series.answers.whole, series.latency)]
    assert counts == [20, 20, 60]
    assert series.answers.whole.largest >= series.latency.mean * 3


def test_a_sequence_that_fails_is_ended(server: Endpoint, tmp_path: Path) -> None:
    """It gives its place back: a model with one place, which waits for a minute, lets the next sequence in."""
    own_checks(tmp_path, "failing")
    with Generator(tmp_path, ("adding",), (server.grpc,), calls=3, timeout_s=PATIENCE_S) as generator:
        load = OpenLoad(20.0, 1.0, warm_s=0.0, arrivals=Arrivals("constant"))
        (series,) = generator.run(load).series
    assert (series.requests, series.failures) == (20, 20)
    (words,) = series.words
    assert "no negative numbers" in words


def test_streams_at_a_rate(server: Endpoint, tmp_path: Path) -> None:
    """A request is answered by its last reply; one that fails between its replies has failed."""
    # The pauses are long, so that a reader that had no core for a while still sees the first reply before the last.
    inputs = ("x=[3, 0.2, -1]", "note=")
    with Generator(tmp_path, ("count",), (server.grpc,), inputs=inputs, timeout_s=PATIENCE_S) as generator:
        load = OpenLoad(10.0, 1.0, warm_s=0.0, arrivals=Arrivals("constant"))
        (series,) = generator.run(load).series
    assert (series.requests, series.right) == (10, 10), series.words
    assert series.answers
    assert series.answers.count == 30
    assert series.answers.first
    assert series.latency
    assert series.latency.mean >= series.answers.first.mean + 40


def test_the_command_at_a_rate_of_sequences(server: Endpoint, tmp_path: Path) -> None:
    """Table, JSON and page say that the rate counts sequences."""
    done = tritonkit_here(
        "load",
        "adding",
        "--address",
        server.grpc,
        "--rate",
        "10",
        "--duration",
        "1s",
        "--warm-up",
        "0s",
        "--sequence-calls",
        "2",
        "--slo",
        "p50=1min",
        "--report",
        "out",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "10 sequences/s for 1 s" in done.stderr
    assert "due/s, right/s and failed are sequences. A sequence has 2 calls" in done.stdout
    (series,) = json.loads((tmp_path / "out" / "report.json").read_text())["series"]
    assert series["unit"] == "sequences"
    assert series["answers"]["count"] == 2 * series["requests"] == 2 * series["right"]
    assert "Whole sequences arrived" in (tmp_path / "out" / "report.html").read_text()


def test_a_sequence_named_by_text(server: Endpoint) -> None:
    """Triton takes text as a correlation id; asyncio does the same."""

    async def program() -> list[Any]:
        async with AsyncClient(server.grpc, timeout_s=PATIENCE_S) as client:
            adding = await client.model("adding_text")
            async with adding.sequence("customer-1") as sequence:
                first = await sequence.predict(x=[1], note="")
                second = await sequence.predict(x=[2], note="")
            async with adding.sequence("customer-1") as again:
                return [first, second, await again.predict(x=[4], note="")]

    replies = asyncio.run(program())
    assert [reply["sum"].item() for reply in replies] == [1, 3, 4]
    assert replies[0]["seen"].item().startswith(b"customer-1 10")
