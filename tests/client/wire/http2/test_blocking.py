"""Behavior of the threads' transport alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.wire.grpc_servers import Answers, body, data_of
from tests.waiting import eventually
from tritonkit.client.wire.http2 import Http2Transport
from tritonkit.errors import DeadlineExceeded, InferenceError, ServerUnavailable


@pytest.fixture
def transport(address: str) -> Iterator[Http2Transport]:
    """A transport to the real server."""
    transport = Http2Transport(address)
    yield transport
    transport.close()
    transport.close()


def test_calls_begun_before_their_answers_are_asked_for(transport: Http2Transport) -> None:
    """Answers may come in any order."""
    calls = [transport.begin("ModelInfer", body(data=bytes((n,))), 5.0) for n in range(5)]
    for n in reversed(range(5)):
        assert data_of(calls[n].result()) == bytes((n,))


def test_a_call_begun_that_fails(transport: Http2Transport) -> None:
    """`result` raises what `send` would."""
    with pytest.raises(InferenceError, match="ABORTED"):
        transport.begin("ModelInfer", body("ABORTED"), 5.0).result()
    with pytest.raises(DeadlineExceeded):
        transport.begin("ModelInfer", body("slow", id="60"), 0.05).result()


def test_a_call_begun_can_be_waited_for_a_while(transport: Http2Transport, answers: Answers) -> None:
    """`wait` says whether it has ended, also with an error, and takes nothing away from `result`."""
    call = transport.begin("ModelInfer", body("slow", id="60"), 90.0)
    assert not call.wait(0.0)
    assert not call.wait(0.01)
    answers.go_on.set()
    assert call.wait(20.0)
    assert call.wait(0.0)
    call.result()
    failing = transport.begin("ModelInfer", body("ABORTED"), 20.0)
    assert failing.wait(20.0)
    with pytest.raises(InferenceError, match="ABORTED"):
        failing.result()


@pytest.mark.parametrize("others", [0, 2])
def test_cancelling_wakes_the_thread_that_waits(transport: Http2Transport, answers: Answers, others: int) -> None:
    """It ends before any answer, whether it reads for all or another does; the server gets a reset."""
    slow = ("ModelInfer", body("slow", id="60"), 90.0)
    threads = [threading.Thread(target=transport.send, args=slow) for _ in range(others)]
    for thread in threads:
        thread.start()
    call = transport.begin(*slow)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            call.result()
        except InferenceError as error:
            raised.append(error)

    threads.append(threading.Thread(target=wait))
    threads[-1].start()
    eventually(lambda: len(answers.metadata) > others)
    time.sleep(0.1)  # until it waits
    call.cancel()
    threads[-1].join(60)
    assert "cancelled" in str(raised[0])
    assert answers.cancelled.wait(60)
    call.cancel()
    answers.go_on.set()
    for thread in threads:
        thread.join(60)


def test_an_interrupt_leaves_the_transport_whole(address: str) -> None:
    """Ctrl-C in a thread that reads for all: its call is cancelled, others go on."""
    program = textwrap.dedent("""
        import signal, sys, threading, time
        from tritonkit.client.wire.http2 import Http2Transport
        transport = Http2Transport(sys.argv[1])
        slow, slower = map(bytes.fromhex, sys.argv[2:])
        transport.send("ServerLive", [b""], 5.0)
        other = threading.Timer(0.1, transport.send, ("ModelInfer", [slow], 20.0))
        other.start()
        try:
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            transport.send("ModelInfer", [slower], 60.0)
        except KeyboardInterrupt:
            print("interrupted")
        other.join(25)
        print(other.is_alive(), len(transport.send("ServerLive", [b""], 5.0)))
        transport.close()
    """)
    done = run(program, address, *(bytes(body("slow", id=seconds)[0]).hex() for seconds in ("1", "60")))
    assert done.stdout.split() == ["interrupted", "False", "2"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_and_does_not_hang(address: str) -> None:
    """It cannot use its parent's connection, nor harm it by closing."""
    program = textwrap.dedent("""
        import os, sys
        from tritonkit.client.wire.http2 import Http2Transport
        from tritonkit.errors import UsageError
        transport = Http2Transport(sys.argv[1])
        transport.send("ServerLive", [b""], 5.0)
        if (child := os.fork()) == 0:
            try:
                transport.send("ServerLive", [b""], 5.0)
            except UsageError as error:
                transport.close()
                os._exit(7 if "one Client per process" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(len(transport.send("ServerLive", [b""], 5.0)))
        transport.close()
    """)
    done = run(program, address)
    assert done.stdout.split() == ["2"], done.stderr


def test_importing_loads_no_grpc() -> None:
    """It costs a quarter of a second."""
    program = "import sys, tritonkit.client.wire.http2.blocking, tritonkit.client.wire.secure\n"
    done = run(program + "print([n for n in ('grpc', 'tritonclient') if n in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_a_closed_transport_frees_its_sockets(address: str) -> None:
    """Also those that were opened for cancelling and by lost connections."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        transport = Http2Transport(address)
        transport.begin("ServerLive", [b""], 5.0).result()
        transport.close()
    # The server runs in this process too, and closes its ends a moment later.
    while len(list(Path("/proc/self/fd").iterdir())) > before + 1:
        time.sleep(0.05)


def test_threads_that_find_a_server_gone_all_hear(address: str) -> None:
    """None is left asleep."""
    transport = Http2Transport("127.0.0.1:1")
    errors: list[BaseException] = []

    def call() -> None:
        try:
            transport.send("ServerLive", [b""], 5.0)
        except ServerUnavailable as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(errors) == 20
    transport.close()


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *args],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
