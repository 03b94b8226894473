"""One client over servers that die and come back, for real: kill -9 while calls are under way."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.at_once import at_once
from tests.server.models import ModelText
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client, Hedge
from tritonkit.errors import ClientError, ModelNotFound, ServerError, ServerUnavailable
from tritonkit.serve import Endpoint, serve

ITEM = np.array([0, 1, 2, 3], np.float32)
NOTING = """import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # Notes the second value of each request, then answers with what it was given.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            with open("LOG", "a") as log:
                log.write(f"{int(x[0, 1])}\\n")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return answers
"""


@pytest.fixture
def echo(write_server_models: Any) -> Path:
    """A repository with one model that answers with what it was given."""
    folder: Path = write_server_models(echo=ModelText())
    return folder


@contextmanager
def server(repository: Path, project: Path, port: int = 0, restarts: int = 0) -> Iterator[Endpoint]:
    """A Triton that may be killed in the block, and stays dead unless it is to be started again."""
    with (
        suppress(ServerError),
        serve(repository, grpc_port=port, http_port=0, metrics_port=0, root=project, restarts=restarts) as endpoint,
    ):
        yield endpoint


@contextmanager
def callers(count: int, call: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """Threads that call until the block ends; what came back."""
    outcomes: dict[str, Any] = {"endpoints": Counter(), "failures": [], "again": 0}
    lock = threading.Lock()

    def caller(_: int, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                reply = call()
            except ClientError as error:
                with lock:
                    outcomes["failures"].append(error)
            else:
                with lock:
                    outcomes["endpoints"][reply.endpoint] += 1
                    outcomes["again"] += reply.attempts - 1

    with at_once(count, caller):
        yield outcomes


def await_answers(outcomes: dict[str, Any], more: int) -> None:
    """Wait for a number of answers from now on."""
    before = outcomes["endpoints"].total()
    eventually(lambda: outcomes["endpoints"].total() >= before + more, f"{more} answers")


def test_one_of_three_is_killed_and_no_call_fails(echo: Path, project: Path) -> None:
    """Calls that may run twice: sixteen threads go on without an error, and at most a tenth of the
    requests is sent again."""
    with ExitStack() as stack:
        servers = [stack.enter_context(server(echo, project)) for _ in range(3)]
        addresses = [endpoint.grpc for endpoint in servers]
        client = stack.enter_context(Client(addresses, timeout_s=PATIENCE_S, idempotent=True))
        model = client.model("echo")
        with callers(16, lambda: model.predict(x=ITEM)) as outcomes:
            eventually(lambda: len(outcomes["endpoints"]) == 3, "answers of all")
            await_answers(outcomes, 1000)
            before = Counter(outcomes["endpoints"])
            os.kill(servers[0].pid, signal.SIGKILL)
            await_answers(outcomes, 2000)
    assert outcomes["failures"] == []
    assert set(before) == set(addresses)
    total = outcomes["endpoints"].total()
    assert total > before.total()
    assert outcomes["again"] <= 0.1 * total + 20


def test_killed_under_load_no_work_is_done_twice(write_server_models: Any, project: Path, tmp_path: Path) -> None:
    """A caller is told by default when its server may have begun: every request is worked on at most
    once, and every other caller was answered."""
    log = tmp_path / "work"
    repository = write_server_models(noted=ModelText(code=NOTING.replace("LOG", str(log))))
    numbers = itertools.count(1)
    with ExitStack() as stack:
        servers = [stack.enter_context(server(repository, project)) for _ in range(2)]
        client = stack.enter_context(Client([endpoint.grpc for endpoint in servers], timeout_s=PATIENCE_S))
        model = client.model("noted")
        with callers(8, lambda: model.predict(x=[0, next(numbers), 0, 0])) as outcomes:
            total = outcomes["endpoints"].total
            eventually(lambda: total() > 100, "answers")
            os.kill(servers[0].pid, signal.SIGKILL)
            killed_at = total()
            eventually(lambda: total() > killed_at + 50, "answers of the other")
    work = Counter(log.read_text().split())
    del work["0"]  # of warming up
    assert set(work.values()) == {1}
    assert all(isinstance(error, ServerUnavailable) for error in outcomes["failures"])
    assert len(outcomes["failures"]) <= 8
    assert len(work) >= outcomes["endpoints"].total() > 100


def test_one_of_two_ends_amid_calls_and_none_fails(echo: Path, project: Path) -> None:
    """The other server does the work that it refuses, or cancels when its time to end is over."""
    slow = np.array([0.2, 1, 2, 3], np.float32)
    with ExitStack() as stack:
        servers = [stack.enter_context(server(echo, project)) for _ in range(2)]
        addresses = [endpoint.grpc for endpoint in servers]
        client = stack.enter_context(Client(addresses, timeout_s=PATIENCE_S, idempotent=True))
        model = client.model("echo")
        with callers(8, lambda: model.predict(x=slow)) as outcomes:
            eventually(lambda: len(outcomes["endpoints"]) == 2, "answers of both")
            os.kill(servers[0].pid, signal.SIGTERM)
            eventually(lambda: not Path(f"/proc/{servers[0].pid}").exists(), "its end")
    assert outcomes["failures"] == []


def test_a_restarted_server_is_found_again(echo: Path, project: Path) -> None:
    """While it is away calls fail with what is the matter; when it is back they go through."""
    with server(echo, project) as first:
        port = int(first.grpc.rpartition(":")[2])
        client = Client(first.grpc, timeout_s=PATIENCE_S)
        model = client.model("echo")
        model.predict(x=ITEM)
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(ServerUnavailable, match=first.grpc):
            list(model.predict_many([ITEM] * 1000, concurrency=1))
        assert not client.is_ready()
    with server(echo, project, port):

        def again() -> Any:
            with suppress(ServerUnavailable):
                return model.predict(x=ITEM)["y"].tolist()
            return None

        assert eventually(again, "an answer of the new server") == [[0, 1, 2, 3]]
    client.close()


def test_killed_and_restarted_under_load(echo: Path, project: Path) -> None:
    """Eight threads see errors only while the server is away, and answers again afterwards."""
    with server(echo, project, restarts=5) as endpoint:
        client = Client(endpoint.grpc, timeout_s=PATIENCE_S)
        model = client.model("echo")
        with callers(8, lambda: model.predict(x=ITEM)) as outcomes:
            await_answers(outcomes, 50)
            os.kill(endpoint.pid, signal.SIGKILL)
            eventually(lambda: outcomes["failures"], "errors")
            await_answers(outcomes, 50)
        client.close()
    # A server that has just started says of a model it is still loading that it has none.
    away = (ServerUnavailable, ModelNotFound)
    assert [error for error in outcomes["failures"] if not isinstance(error, away)] == []


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process stands still: on a busy machine that takes a moment."""
    stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def test_a_hanging_server_is_passed_by_with_hedging(echo: Path, project: Path) -> None:
    """One of two takes long for a call: the other is asked too, and its answer is taken."""
    with ExitStack() as stack:
        servers = [stack.enter_context(server(echo, project)) for _ in range(2)]
        addresses = [endpoint.grpc for endpoint in servers]
        client = stack.enter_context(
            Client(addresses, timeout_s=PATIENCE_S, idempotent=True, hedge=Hedge(least_calls=20))
        )
        model = client.model("echo")
        for _ in range(200):
            model.predict(x=ITEM)
        # Triton's threads stand still: it neither answers nor closes its connections.
        os.kill(servers[0].pid, signal.SIGSTOP)
        try:
            eventually(lambda: is_stopped(servers[0].pid), "all of its threads to stand still")
            replies = [model.predict(x=ITEM) for _ in range(10)]
        finally:
            os.kill(servers[0].pid, signal.SIGCONT)
    assert {reply.endpoint for reply in replies} == {addresses[1]}


def test_a_name_stands_for_all_its_addresses(echo: Path, project: Path) -> None:
    """`dns:localhost` finds the server on this machine, whichever address the name has first."""
    with server(echo, project) as endpoint:
        port = endpoint.grpc.rpartition(":")[2]
        with Client(f"dns:localhost:{port}", timeout_s=PATIENCE_S) as client:
            reply = client.model("echo").predict(x=ITEM)
    assert reply["y"].tolist() == [[0, 1, 2, 3]]
    assert reply.endpoint.endswith(f":{port}")
