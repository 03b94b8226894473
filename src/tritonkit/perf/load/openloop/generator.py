"""The process that sends: `python -m tritonkit.perf.load.openloop.generator`, controlled by lines of JSON.

It makes the requests once, with their known answers, and forks the senders of each run: a child begins with all
requests in memory, and writes its record to a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tritonkit.client import Client
from tritonkit.client.inputs import Inputs
from tritonkit.client.wire.request import Prepared as Encoder
from tritonkit.client.wire.signature import ModelSignature
from tritonkit.errors import TritonkitError, UsageError
from tritonkit.perf.load.kinds import CALL, SEQUENCE, Kind, kind_of
from tritonkit.perf.load.openloop.joined import Encodable, joined, layouts
from tritonkit.perf.load.openloop.record import MISSED, LoadRequest, Stop, save_record
from tritonkit.perf.load.openloop.sender import Sender
from tritonkit.perf.load.workload import Workload
from tritonkit.perf.load.workloads import prepare

__all__ = ["end_with_parent", "main"]

_AHEAD_S: Final = 0.25
"""Seconds between the fork and the first request, in which connections are made."""
_FAILED: Final = 70
_MISSED: Final = 3
"""Exit codes of senders: an unforeseen error; the target is missed, and the record is saved."""
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Answer each line of standard input with one on standard output, until the input ends."""
    # Output of a project's own code must not mix with the lines of JSON.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(os.getppid())
    requests: list[LoadRequest] = []
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "prepare":
                answer, requests = _prepare(command)
            else:
                answer = _run(command, requests)
        except TritonkitError as error:
            answer = {"error": error.to_dict()}
        except Exception as error:  # of a project's own code
            message = f"{type(error).__name__}: {error}"
            answer = {"error": UsageError(f"{command['root']}: requests", found=message).to_dict()}
        print(json.dumps(answer), file=out, flush=True)


def _prepare(command: dict[str, Any]) -> tuple[dict[str, Any], list[LoadRequest]]:
    """The requests of all models in each of the sizes; the model, items and layout of each request; and the kind of
    each model, as `Generator` has them."""
    root = Path(command["root"])
    answer: dict[str, Any] = {"models": [], "items": [], "layouts": [], "most_items": [], "kinds": []}
    requests: list[LoadRequest] = []
    with Client(command["addresses"][0], timeout_s=command["timeout_s"], retry=None) as client:
        for model in command["models"]:
            workload = prepare(model, root, client, command.get("inputs", ()))
            kind = kind_of(client, workload.model)
            signature = client.model(workload.model).signature
            single = _single(workload, signature)
            if not single:
                raise UsageError(f"model {model}", found="its workload has no request")
            _need_calls(model, kind, command["sizes"])
            made = [request for size in command["sizes"] for request in joined(signature, single, size)]
            first = len(set(answer["layouts"]))
            answer["models"] += [model] * len(made)
            answer["items"] += [request.items for request in made]
            answer["layouts"] += [first + number for number in layouts(made)]
            answer["most_items"].append(signature.max_batch_size)
            answer["kinds"].append(kind)
            requests += _encoded(made, signature, kind, command["calls"], len(requests))
    return answer, requests


def _need_calls(model: str, kind: Kind, sizes: Sequence[int]) -> None:
    """Refuse to join requests of models that are not called in single calls."""
    if kind != CALL and max(sizes) > 1:
        raise UsageError(
            f"model {model}: requests of several items",
            found="it keeps state between calls" if kind == SEQUENCE else "it answers in streams",
            wanted="a model that gives one answer to each request, to be taken apart",
            todo="send single items",
        )


def _single(workload: Workload, signature: ModelSignature) -> list[Encodable]:
    inputs = Inputs(signature)
    return [Encodable(*inputs.checked(request.inputs), request.check) for request in workload.requests]


def _encoded(
    requests: Sequence[Encodable], signature: ModelSignature, kind: Kind, calls: int, begin: int
) -> list[LoadRequest]:
    """The requests of a model as they are sent; in a sequence each is followed by the next, and the last by the first.

    Args:
        calls: the number of calls in a sequence.
        begin: the number of requests of other models before these.
    """
    encoder, count = Encoder(signature, "", None), len(requests)
    calls = calls if kind == SEQUENCE else 1
    return [
        LoadRequest(
            tuple(encoder.encode(request.arrays)),
            request.check,
            request.items,
            kind,
            calls,
            begin + (number + 1) % count,
        )
        for number, request in enumerate(requests)
    ]


def _run(command: dict[str, Any], requests: Sequence[LoadRequest]) -> dict[str, Any]:
    """Fork the senders of a run and wait for them."""
    folder = Path(command["folder"])
    start = time.monotonic() + _AHEAD_S
    children: dict[int, int] = {}

    def pass_on(signum: int = signal.SIGINT, _: Any = None) -> None:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    # An interrupt that comes in between is delivered once all children have their own handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, pass_on)
    for k in range(command["processes"]):
        children[_fork(command, requests, folder, k, start)] = k
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    failed: dict[str, Any] | None = None
    try:
        while children:
            pid, status, _ = os.wait4(-1, 0)
            k = children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code:
                pass_on()  # the others' records are of no more use
            if code not in (0, _MISSED):
                failed = failed or _reason(folder / f"{k}.error", code)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return {"error": failed} if failed else {"start": start}


def _reason(file: Path, code: int) -> dict[str, Any]:
    if file.is_file():
        reason: dict[str, Any] = json.loads(file.read_text())
        return reason
    return TritonkitError("the load generator", found=f"a process ended with {code}").to_dict()


def end_with_parent(parent: int) -> None:
    """Make this process end with its parent, however the parent ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os._exit(_FAILED)


def _fork(command: dict[str, Any], requests: Sequence[LoadRequest], folder: Path, k: int, start: float) -> int:
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of BLAS, which children do not use
        pid = os.fork()
    if pid:
        return pid
    code = _FAILED
    try:
        end_with_parent(parent)
        code = _MISSED if _send(command, requests, folder, k, start) == MISSED else 0
    except TritonkitError as error:
        (folder / f"{k}.error").write_text(json.dumps(error.to_dict()))
    except BaseException:
        if folder.is_dir():  # otherwise the caller has left, as at a second interrupt
            traceback.print_exc()
    finally:
        os._exit(code)


def _send(command: dict[str, Any], requests: Sequence[LoadRequest], folder: Path, k: int, start: float) -> str:
    """Send one process's share of a run, every `processes`-th request; return the reason for an early end, if any."""
    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        interrupted = True

    signal.signal(signal.SIGINT, interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    plan = np.load(folder / "plan.npz")
    sender = Sender(
        command["addresses"],
        requests,
        command["timeout_s"],
        Stop(**command["stop"]),
        lambda: interrupted,
        command["most"],
    )
    step = command["processes"]
    record = sender.run(plan["moments"][k::step], plan["choice"][k::step], start)
    save_record(record, folder / f"{k}.npz")
    return record.ended


if __name__ == "__main__":
    main()
