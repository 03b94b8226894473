"""Wait for a server until every model has answered once, and explain why a model does not."""

from __future__ import annotations

import http.client
import os
import re
import time
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerStartError, TritonkitError
from tritonkit.limits import advice, low
from tritonkit.serve.core.flags import HTTP_SOCKET
from tritonkit.serve.core.launch import has_guard
from tritonkit.serve.core.unix_http import Admin
from tritonkit.serve.loads import load_later, read_loads
from tritonkit.serve.log import read_tail, relevant
from tritonkit.serve.ports import reachable
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.repository import ServedModel, read_models
from tritonkit.serve.rpc import NotAnswered, Service, connect
from tritonkit.serve.start import Run
from tritonkit.serve.values import Endpoint, EventKind, Ports, ServeEvent
from tritonkit.serve.warm import NoSample, warm_request

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

__all__ = ["EndedAtLoad", "Start", "all_zero", "http_answers", "lost_port", "still_answers"]

_POLL_S = 0.05
_CALL_S = 5.0
_SHOW_S = 5.0
_END_S = 1.0
_ANSWER_S = 30.0
_FIGURES_S = 2.5
"""Longest wait for figures of GPUs; on an H100 they were right after 2 s (2.51)."""
_USED_MEMORY = re.compile(r"^nv_gpu_memory_used_bytes{[^}]*} (\S+)$", re.MULTILINE)


class EndedAtLoad(Exception):
    """The server ended, or its time ran out, before it was ready.

    Args:
        error: the error to raise if the start cannot go on without a model.
        models: the models that may have been the cause, in the order of their loads.
        certain: whether each of them is a cause.
        warming: whether a request of `model_warmup` had failed before; Triton may crash after that.
    """

    def __init__(
        self, error: ServerStartError, models: Sequence[str], *, certain: bool = False, warming: bool = False
    ) -> None:
        super().__init__(str(error))
        self.error, self.models = error, tuple(models)
        self.certain, self.warming = certain, warming


class Start:
    """A process on its way to be ready.

    Args:
        run, triton, ports: the process and how it was started.
        begun_at: the time (time.monotonic) at which the start was requested.
        offset: the byte of the log at which the lines of this process begin.
    """

    def __init__(self, run: Run, triton: SupervisedProcess, ports: Ports, begun_at: float, offset: int) -> None:
        self._run, self._triton, self._ports = run, triton, ports
        self._begun_at, self._offset = begun_at, offset
        self._shown_at = time.monotonic()
        self._deadline = self._shown_at + run.ready_timeout_s
        self._busy: tuple[str, ...] = ()
        """The models that are being loaded or called; if empty, the log tells."""

    def await_ready(self) -> Endpoint:
        """Wait until all addresses answer, and each model that can be loaded has been sent one request.

        Raises:
            ServerStartError: the start failed; the message has the models that did not load, or the last relevant
                lines of the log.
            EndedAtLoad: the process ended, or was not ready in time.
        """
        run, ports, host = self._run, self._ports, self._run.settings.host
        admin = Admin(run.folder, run.key)
        with connect(reachable(host, ports.grpc), run.key) as service:
            while not service.live(_CALL_S):
                self._wait_or_fail("the gRPC port does not answer")
                self._show_loads()
            if run.installation.guard is not None and not has_guard(self._triton.pid):
                raise _failure(run, f"it runs without its guard, {run.installation.guard}")
            while not admin.answers("/v2/health/live"):
                self._wait_or_fail(f"{HTTP_SOCKET} does not answer")
            failed, rejected = self._load_all(admin)
            while not admin.answers("/v2/health/ready"):
                self._wait_or_fail(f"{HTTP_SOCKET} does not answer")
            for port, path in ((ports.metrics, "/metrics"), (ports.http, "/v2/health/ready")):
                while port and not http_answers(reachable(host, port), path):
                    self._wait_or_fail(f"port {port} does not answer {path}")
            self._warm_all(service, failed, rejected)
        self._await_gpu_figures(reachable(host, ports.metrics))
        refused = {name: error.found for name, error in run.selection.refused.items()}
        return Endpoint(
            grpc=reachable(host, ports.grpc),
            http=reachable(host, ports.http) if ports.http else "",
            metrics=reachable(host, ports.metrics),
            pid=self._triton.pid,
            log=run.log,
            models=tuple(name for name in run.models if name not in failed),
            ready_s=time.monotonic() - self._begun_at,
            version=admin.version(),
            admin_key=run.key,
            failed=refused | {name: _first_line(reason) for name, reason in failed.items()},
        )

    def _await_gpu_figures(self, metrics: str) -> None:
        """Wait for the first figures of GPUs, which are 0 at first: readers after the start should see no idle GPU.

        Without them the server is ready all the same.
        """
        deadline = time.monotonic() + (_FIGURES_S if self._run.pools.cuda_bytes else 0)
        while time.monotonic() < deadline and all_zero(read_metrics(metrics)):
            if self._triton.ended.wait(_POLL_S):  # only its end is a failure: the time for the start may be over
                self._wait_or_fail("the GPUs have no figures yet")

    def _emit(self, kind: EventKind, text: str, model: str = "") -> None:
        """Report an event to the observer."""
        self._run.settings.emit(ServeEvent(kind, text, model))

    def _load_all(self, admin: Admin) -> tuple[dict[str, str], set[str]]:
        """Load the models that are not loaded at the start.

        Return the models that did not load, with reasons, and the models that did not warm up.

        Raises:
            ServerStartError: the server must not run without one of these models, or without all of them.
        """
        run = self._run
        failed = _unavailable(run, admin)
        rejected: dict[str, str] = {}
        left_s = max(_POLL_S, self._deadline - time.monotonic())
        for name in load_later(run, Admin(run.folder, run.key, left_s), failed, rejected):
            self._busy = (name,)
        if self._triton.ended.wait(_END_S if failed.keys() & set(self._busy) else 0):
            self._wait_or_fail("a model is loaded")
        self._busy = ()
        for name, reason in rejected.items():
            if name in run.selection.required:
                raise _not_loaded(run, {name: reason})
            text = f"it is served without its model_warmup, which failed: {_first_line(reason)}"
            self._emit("warm_failed", text, name)
        if missing := run.selection.lacks({**run.selection.refused, **failed}):
            if bad := {name: failed[name] for name in missing if name in failed}:
                raise _not_loaded(run, failed if set(bad) == set(failed) else bad)
            raise run.selection.refused[missing[0]]
        for name, reason in failed.items():
            self._emit("not_served", _first_line(reason), name)
        return failed, set(rejected)

    def _warm_all(self, service: Service, failed: Mapping[str, str], rejected: Collection[str]) -> None:
        """Send a first request to each model that is loaded, but not to those that did not warm up.

        Raises:
            ServerStartError: a required model does not answer its own sample, or no model answers at all.
        """
        run = self._run
        silent: dict[str, ServerStartError] = {}
        for number, (name, model) in enumerate(run.models.items(), start=1):
            if name in failed or name in rejected:
                continue
            self._busy = (name,)
            error, answered = self._warm(service, model, number)
            if error is None:
                continue
            if not answered and self._triton.ended.wait(_END_S):
                self._wait_or_fail(f"{name} answers its first request")
            if name in run.selection.required:
                raise error
            self._emit("warm_failed", f"it is served all the same: {_first_line(error.found)}", name)
            if not answered:
                silent[name] = error
        self._busy = ()
        missing = run.selection.lacks({**run.selection.refused, **failed, **silent})
        if first := next((name for name in missing if name in silent), ""):
            raise silent[first]

    def _wait_or_fail(self, waiting: str) -> None:
        """Wait a moment longer; EndedAtLoad if waiting is useless."""
        run, triton = self._run, self._triton
        if triton.ended.wait(_POLL_S):
            todo = f"the whole log is {run.log}"
            if run.native and (triton.exit_code or 0) < 0 and not low():
                todo += "; an engine may have ended it: --backend python runs engines in processes of their own"
            loads = read_loads(run.log, self._offset)
            raise EndedAtLoad(
                _failure(run, describe_exit(triton.exit_code), todo),
                self._busy or loads.going,
                certain=bool(self._busy),
                warming=loads.warm_up_failed,
            )
        if time.monotonic() > self._deadline:
            problem = f"not ready after {run.ready_timeout_s:.0f} s: {waiting}"
            going = self._busy or read_loads(run.log, self._offset).going
            raise EndedAtLoad(_failure(run, problem), going, certain=True)

    def _show_loads(self) -> None:
        """Report every few seconds which models are loaded and which are not."""
        now = time.monotonic()
        if now - self._shown_at < _SHOW_S:
            return
        self._shown_at = now
        loads = read_loads(self._run.log, self._offset)
        if loads.going:
            done = len(loads.begun) - len(loads.going)
            text = f"{done} of {len(loads.begun)} models after {now - self._begun_at:.0f} s"
            self._emit("loading", f"{text}; loading and warming up: {', '.join(loads.going)}")

    def _warm(self, service: Service, model: ServedModel, number: int) -> tuple[ServerStartError | None, bool]:
        """Send one request; return the error if the model ought to answer it, and whether there was an answer."""
        run = self._run
        # A model that does not answer must leave time for the others.
        timeout_s = max(_POLL_S, (self._deadline - time.monotonic()) / 2)
        try:
            # Sequences of two runs must not be taken for one: the number is this process's own.
            sample = warm_request(model, run.models, os.getpid() * 1000 + number)
        except NoSample as reason:
            self._emit("warm_skipped", str(reason), model.name)
            return None, True
        try:
            _ask(service, model, sample.request, timeout_s)
        except NotAnswered as error:
            if sample.made_up and not error.silent:
                text = f"it refuses a request of zeros, which may be right: {_first_line(str(error))}"
                self._emit("warm_failed", text, model.name)
                return None, True
            failure = ServerStartError(
                f"model {model.name}",
                found=f"it loaded, and its first request failed: {error}",
                wanted="an answer to the warm-up sample of its config.pbtxt",
                todo=f"read {run.log}",
                details="\n".join(relevant(read_tail(run.log), [model.name])),
            )
            return failure, not error.silent
        return None, True


def still_answers(run: Run, endpoint: Endpoint, name: str) -> bool:
    """Whether a model that was loaded again answers its warm request; true if no request can be made."""
    try:
        # What was loaded is what the repository holds now.
        read = read_models(run.settings.repository, [name], run.config)
        models = {model.name: model for model in read}
        request = warm_request(models[name], models, os.getpid()).request
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


def _ask(service: Service, model: ServedModel, request: Any, timeout_s: float) -> None:
    """Send a model's warm request and wait for the answer; NotAnswered if that fails."""
    decoupled = model.config.model_transaction_policy.decoupled
    service.infer(request, decoupled=decoupled, timeout_s=timeout_s)


def _unavailable(run: Run, admin: Admin) -> dict[str, str]:
    """The run's models that did not load, each with Triton's reason."""
    try:
        entries = admin.index()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _failure(run, f"{HTTP_SOCKET} does not list its models: {error}") from error
    ready = {entry["name"] for entry in entries if entry.get("state") == "READY"}
    reasons = {entry["name"]: str(entry.get("reason", "")) for entry in entries if entry.get("state") != "READY"}
    # A version that failed counts also where another one of the model is ready.
    return {
        name: reasons.get(name) or "it was not loaded, and Triton gives no reason"
        for name in run.models
        if name not in run.later
        if name not in ready or reasons.get(name, "unloaded") != "unloaded"
    }


def _not_loaded(run: Run, failed: dict[str, str]) -> ServerStartError:
    """The error that names the models at fault; an ensemble whose part failed is only mentioned."""
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


def _first_line(reason: str) -> str:
    return next(iter(reason.strip().splitlines()), "")


def _failure(run: Run, reason: str, todo: str = "") -> ServerStartError:
    cause = advice(low(), "tritonserver and the Python that it starts")
    return ServerStartError(
        "tritonserver",
        found=reason,
        todo="; ".join(filter(None, (cause, todo or f"the whole log is {run.log}"))),
        details="\n".join(relevant(read_tail(run.log))),
    )


def http_answers(address: str, path: str) -> bool:
    """Whether a GET is answered with status 200 at `host:port`."""
    return _get(address, path) is not None


def read_metrics(address: str) -> str:
    """The metrics at `host:port`; empty if they cannot be read."""
    return (_get(address, "/metrics") or b"").decode(errors="replace")


def all_zero(metrics: str) -> bool:
    """Whether there are figures of GPUs, and all of them are 0."""
    figures = _USED_MEMORY.findall(metrics)
    return bool(figures) and not any(map(float, figures))


def _get(address: str, path: str) -> bytes | None:
    """The body of an answer with status 200; None for any other, or without one."""
    connection = http.client.HTTPConnection(address, timeout=_CALL_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
