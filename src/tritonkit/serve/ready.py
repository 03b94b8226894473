"""Waiting for a server until every model has answered once, and saying why one does not."""

from __future__ import annotations

import http.client
import os
import time
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerStartError, TritonkitError
from tritonkit.serve.core.flags import HTTP_SOCKET
from tritonkit.serve.core.launch import has_guard
from tritonkit.serve.core.unix_http import Admin
from tritonkit.serve.log import read_tail, relevant
from tritonkit.serve.ports import reachable
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.repository import (
    ServedModel,
    read_models,
)
from tritonkit.serve.rpc import NotAnswered, Service, connect
from tritonkit.serve.start import Run
from tritonkit.serve.values import Endpoint, Ports, ServeEvent
from tritonkit.serve.warm import NoSample, warm_request

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["await_ready", "http_answers", "lost_port", "still_answers"]

_POLL_S = 0.05
_CALL_S = 5.0
_ANSWER_S = 30.0


def await_ready(run: Run, triton: SupervisedProcess, ports: Ports, begun_at: float) -> Endpoint:
    """Wait until all addresses answer and every model has answered one request; `begun_at` is when the
    start was asked for (time.monotonic).

    Raises:
        ServerStartError: with the models that did not load, or the last relevant lines of the log.
    """
    deadline = time.monotonic() + run.settings.ready_timeout_s
    host = run.settings.host
    admin = Admin(run.folder, run.key)
    with connect(reachable(host, ports.grpc), run.key) as service:
        while not service.live(_CALL_S):
            _wait_or_fail(run, triton, deadline, "the gRPC port does not answer")
        if run.installation.guard is not None and not has_guard(triton.pid):
            raise _failure(run, f"it runs without its guard, {run.installation.guard}")
        while not admin.answers("/v2/health/live"):
            _wait_or_fail(run, triton, deadline, f"{HTTP_SOCKET} does not answer")
        failed = _unavailable(run, admin)
        if failed:
            raise _not_loaded(run, failed)
        while not admin.answers("/v2/health/ready"):
            _wait_or_fail(run, triton, deadline, f"{HTTP_SOCKET} does not answer")
        for port, path in ((ports.metrics, "/metrics"), (ports.http, "/v2/health/ready")):
            while port and not http_answers(reachable(host, port), path):
                _wait_or_fail(run, triton, deadline, f"port {port} does not answer {path}")
        for number, model in enumerate(run.models.values(), start=1):
            _warm(run, service, model, number, deadline)
    return Endpoint(
        grpc=reachable(host, ports.grpc),
        http=reachable(host, ports.http) if ports.http else "",
        metrics=reachable(host, ports.metrics),
        pid=triton.pid,
        log=run.log,
        models=tuple(run.models),
        ready_s=time.monotonic() - begun_at,
        version=admin.version(),
        admin_key=run.key,
    )


def still_answers(run: Run, endpoint: Endpoint, name: str) -> bool:
    """Whether a model that was loaded again answers its warm request; true where none can be made."""
    try:
        # What was loaded is what the repository holds now.
        found = read_models(run.settings.repository, [name], run.config)
        models = {model.name: model for model in found}
        request = warm_request(models[name], models, os.getpid())
    except (NoSample, TritonkitError, OSError):
        return True
    try:
        with connect(endpoint.grpc, run.key) as service:
            _ask(service, models[name], request, _ANSWER_S)
    except NotAnswered:
        return False
    return True


def lost_port(log: Path) -> bool:
    """Whether the server ended because someone took its port after it had been chosen."""
    return "already in use" in read_tail(log)


def _wait_or_fail(run: Run, triton: SupervisedProcess, deadline: float, waiting: str) -> None:
    """Wait a moment longer; ServerStartError where that is in vain."""
    if triton.ended.wait(_POLL_S):
        todo = f"the whole log is {run.log}"
        if run.native and (triton.exit_code or 0) < 0:
            todo += "; an engine may have ended it: --backend python runs engines in processes of their own"
        raise _failure(run, describe_exit(triton.exit_code), todo)
    if time.monotonic() > deadline:
        raise _failure(run, f"not ready after {run.settings.ready_timeout_s:.0f} s: {waiting}")


def _warm(run: Run, service: Service, model: ServedModel, number: int, deadline: float) -> None:
    """One request; its answer is what makes the model ready."""
    timeout_s = max(_POLL_S, deadline - time.monotonic())
    try:
        # Sequences of two runs must not be taken for one: the number is this process's own.
        request = warm_request(model, run.models, os.getpid() * 1000 + number)
        _ask(service, model, request, timeout_s)
    except NoSample as reason:
        run.settings.emit(ServeEvent("warm_skipped", str(reason), model.name))
    except NotAnswered as error:
        raise ServerStartError(
            f"model {model.name}",
            found=f"it loaded, and its first request failed: {error}",
            wanted="an answer to the warm-up sample of its config.pbtxt",
            todo=f"read {run.log}",
            details="\n".join(relevant(read_tail(run.log), [model.name])),
        ) from error


def _ask(service: Service, model: ServedModel, request: Any, timeout_s: float) -> None:
    """Have a model's warm request answered; NotAnswered where that fails."""
    decoupled = model.config.model_transaction_policy.decoupled
    service.infer(request, decoupled=decoupled, timeout_s=timeout_s)


def _unavailable(run: Run, admin: Admin) -> dict[str, str]:
    """Of the run's models, those that did not load, with Triton's reason."""
    try:
        entries = admin.index()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _failure(run, f"{HTTP_SOCKET} does not list its models: {error}") from error
    ready = {entry["name"] for entry in entries if entry.get("state") == "READY"}
    reasons = {
        entry["name"]: str(entry.get("reason", ""))
        for entry in entries
        if entry.get("state") != "READY"
    }
    # A version that failed counts also where another one of the model is ready.
    return {
        name: reasons.get(name) or "it was not loaded, and Triton gives no reason"
        for name in run.models
        if name not in ready or reasons.get(name, "unloaded") != "unloaded"
    }


def _not_loaded(run: Run, failed: dict[str, str]) -> ServerStartError:
    """Names the models at fault; an ensemble whose part failed is only mentioned."""
    causes = [name for name in failed if not set(run.models[name].parts) & set(failed)]
    causes = causes or list(failed)
    waiting = [name for name in failed if name not in causes]
    needed = f" ({', '.join(waiting)} cannot be served without)" if waiting else ""
    first = {name: failed[name].strip().splitlines()[0] for name in causes}
    reasons = [f"{name}: {line}" if len(causes) > 1 else line for name, line in first.items()]
    return ServerStartError(
        ", ".join(f"model {name}" for name in causes),
        found=f"not loaded{needed}: {'; '.join(reasons)}",
        todo=f"correct it and build again; the whole log is {run.log}",
        details="\n".join(relevant(read_tail(run.log), causes)),
    )


def _failure(run: Run, found: str, todo: str = "") -> ServerStartError:
    return ServerStartError(
        "tritonserver",
        found=found,
        todo=todo or f"the whole log is {run.log}",
        details="\n".join(relevant(read_tail(run.log))),
    )


def http_answers(address: str, path: str) -> bool:
    """Whether a GET is answered with status 200 at `host:port`."""
    connection = http.client.HTTPConnection(address, timeout=_CALL_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
