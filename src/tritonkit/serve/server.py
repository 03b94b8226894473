"""A Triton server that a program starts, watches and stops (`Server`), or that serves for a block (`serve`)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, cast

from tritonkit.errors import ServerDied, ServerStartError, TritonkitError, UsageError
from tritonkit.repository.publish.damage import damage
from tritonkit.repository.publish.integrity import Verifier
from tritonkit.serve.core.backoff import Backoff
from tritonkit.serve.core.drain import finish_ensembles, refuse_calls, spare_calls
from tritonkit.serve.core.stub_watch import TICK_S, StubWatch
from tritonkit.serve.core.unix_http import Admin
from tritonkit.serve.log import read_tail, relevant
from tritonkit.serve.ports import choose
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.proxies import Proxies
from tritonkit.serve.ready import EndedAtLoad, Start, lost_port, still_answers
from tritonkit.serve.repository import read_models
from tritonkit.serve.runs import clear, write_run
from tritonkit.serve.start import Run, chosen, launch, prepare, read_again
from tritonkit.serve.values import Endpoint, EventKind, Ports, ServeEvent, Settings
from tritonkit.serve.without import without_cause

__all__ = ["Server", "serve"]

_P = ParamSpec("_P")

_PORT_RACES = 3
_MARGIN_S = 5.0
_RELOAD_S = 300.0


class Server:
    """One tritonserver over a model repository. Not reusable: start it once.

    Args:
        settings: the settings to serve with, or the repository alone, with the other fields of `Settings` as `options`.
    """

    def __init__(self, settings: Settings | Path, **options: Any) -> None:
        if isinstance(settings, Settings):
            self._settings = replace(settings, **options)  # its own: `serve_too` adds models to it
        else:
            self._settings = Settings(settings, **options)
        self._run: Run | None = None
        self._triton: SupervisedProcess | None = None
        self._proxies: Proxies | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._over = threading.Event()
        self._endpoint: Endpoint | None = None
        self._watcher: threading.Thread | None = None

    def start(self) -> Endpoint:
        """Start it and wait until every model has answered.

        Raises:
            UsageError: an unknown model, or invalid ports.
            ServerNotFound: no tritonserver, or this machine lacks something that it needs.
            ServerStartError: a port in use, too little shared memory, or a model that does not load.
            ServerError: with `verify`, a file that is not as it was published.
        """
        begun_at = time.monotonic()
        # The most common refusals come first, before anything is written.
        ports = self._choose()
        run = self._run = prepare(self._settings)
        verifier = Verifier(self._settings.repository, tuple(run.models))
        try:
            if self._settings.verify:
                verifier.start()
            self._proxies = Proxies(run, ports)
            run, ports = self._start_on(run, ports, begun_at)
            if self._settings.verify:
                verifier.join()
            if verifier.findings:
                raise damage(verifier.findings)
        except BaseException:
            verifier.stop()
            self.kill()
            raise
        # The watch starts before the server is announced; a stub that died before its first scan would go unnoticed.
        stubs = self._stub_watch(run)
        self._settings.emit(ServeEvent("ready", f"after {self.endpoint.ready_s:.1f} s"))
        self._watcher = threading.Thread(
            target=self._watch, args=(run, ports, stubs), name="tritonkit-watch", daemon=True
        )
        self._watcher.start()
        return self.endpoint

    @property
    def endpoint(self) -> Endpoint:
        """The server's addresses; a restart changes `pid`, and sets `models` to the models served since.

        Raises:
            UsageError: it was not started.
        """
        if self._endpoint is None:
            raise UsageError("Server.endpoint", found="it was not started", todo="call start()")
        return self._endpoint

    def serve_too(self, model: str) -> None:
        """Add a model that was loaded meanwhile to the models to serve. A restart then loads it again, with the models
        it needs. This call itself loads nothing. A server of all models serves its whole repository anyway.

        Raises:
            UsageError: the repository holds no such model.
            ServerStartError: its configuration cannot be read, or an ensemble lacks its parts.
        """
        read_models(self._settings.repository, [model])
        with self._lock:
            models = self._settings.models
            if models is not None and model not in models:
                self._settings.models = (*models, model)

    def poll(self) -> bool:
        """Whether it runs, or is about to be started again."""
        return self._endpoint is not None and not self._over.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended for good; return whether it has.

        Raises:
            ServerDied: it ended without a call of `stop` or `kill`.
        """
        if self._triton is None:
            return True
        ended = self._over.wait(timeout_s)
        if ended and not self._ending.is_set():
            raise self._died(self._triton)
        return ended

    def stop(self) -> None:
        """Take no new requests, answer those in flight, let the models finalize, and end.

        Once it returns, no process and no shared memory of this server is left.
        """
        triton = self._begin_stop()
        most_s = self._settings.drain_timeout_s + self._settings.finalize_timeout_s + _MARGIN_S
        if triton is not None and not triton.ended.wait(most_s):
            triton.kill()
        self._finish()

    def kill(self) -> None:
        """End it now; requests in flight are lost. No process or shared memory is left behind."""
        self._ending.set()
        with self._lock:
            triton = self._triton
        if triton is not None:
            triton.kill()
        self._finish()

    def run_until_signal(self) -> None:
        """Wait for SIGINT or SIGTERM, then stop; a second one kills. For the main thread.

        Raises:
            ServerDied: the server ended by itself.
        """
        received: list[int] = []
        signals = (signal.SIGINT, signal.SIGTERM)
        former = [signal.signal(one, lambda number, _: received.append(number)) for one in signals]
        try:
            while not received and not self.wait(TICK_S):
                pass
            self._begin_stop()
            while not self.wait(0.1):
                if len(received) > 1:
                    self.kill()
            self.stop()
        finally:
            for one, handler in zip(signals, former, strict=True):
                signal.signal(one, handler)

    def __enter__(self) -> Endpoint:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        died = self._over.is_set() and not self._ending.is_set()
        self.stop()
        if died and kind is None and self._triton is not None:
            raise self._died(self._triton)

    def _choose(self) -> Ports:
        settings = self._settings
        ports = Ports(settings.grpc_port, settings.http_port, settings.metrics_port)
        return choose(ports, settings.host, http=settings.http)

    def _start_on(self, run: Run, ports: Ports, begun_at: float) -> tuple[Run, Ports]:
        """Start the first process; a free port that is lost between choice and start is replaced by another one."""
        for races_left in reversed(range(_PORT_RACES)):
            try:
                run = self._start_process(run, ports, begun_at)
                break
            except ServerStartError:
                ended = self._triton is not None and self._triton.ended.is_set()
                if not (races_left and ended and lost_port(run.log)):
                    raise
                ports = replace(ports, grpc=self._choose().grpc)
                run.log.unlink()
        return run, ports

    def _start_process(self, run: Run, ports: Ports, begun_at: float) -> Run:
        """Start a process and wait until it is ready. If a model ends it, another one is started without that model.

        Return the run with the models that are left.
        """
        while True:
            try:
                self._start_once(run, ports, begun_at)
            except EndedAtLoad as end:
                lost = self._triton is not None and lost_port(run.log)
                again = None if lost or self._ending.is_set() else without_cause(run, end)
                if again is None:
                    raise end.error from None
                if self._triton is not None:
                    self._triton.kill()
                run = self._run = again
                continue
            return run

    def _start_once(self, run: Run, ports: Ports, begun_at: float) -> None:
        offset = run.log.stat().st_size if run.log.exists() else 0
        with self._lock:
            if self._ending.is_set():
                return
            triton = self._triton = launch(run, ports.grpc)
        message = f"process {triton.pid}: {chosen(run, triton.pid)}; log {run.log}"
        self._settings.emit(ServeEvent("starting", message))
        self._endpoint = Start(run, triton, ports, begun_at, offset).await_ready()
        write_run(run.folder, self._endpoint)

    def _begin_stop(self) -> SupervisedProcess | None:
        """Begin a stop without waiting, so that a second signal is handled; return the process that is ending."""
        with self._lock:
            first = not self._ending.is_set()
            self._ending.set()
            triton = self._triton
        if triton is None or triton.ended.is_set():
            return None
        if first:
            self._settings.emit(ServeEvent("stopping", "answering the requests in flight"))
            threading.Thread(target=self._drain, args=(triton,), name="tritonkit-drain", daemon=True).start()
        return triton

    def _drain(self, triton: SupervisedProcess) -> None:
        """Let the server answer requests in flight within the drain timeout, let the models finalize, and end it."""
        deadline = time.monotonic() + self._settings.drain_timeout_s
        refuse_calls(triton.pid)
        try:
            if self._endpoint is not None and self._run is not None:
                run = self._run
                # Each model stands after those it calls.
                ensembles = [name for name, model in run.models.items() if model.parts][::-1]
                admin = Admin(run.folder, run.key)
                finish_ensembles(admin, ensembles, self._settings.drain_timeout_s)
        finally:
            left_s = max(0.0, deadline - time.monotonic())
            triton.stop(left_s, self._settings.finalize_timeout_s)

    def _finish(self) -> None:
        """Remove the run's files once nothing runs any more, and report that once."""
        self._over.set()
        if self._run is None:
            return
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        if self._proxies is not None:
            self._proxies.close()
        clear(self._run.folder)
        self._run = None
        self._settings.emit(ServeEvent("stopped", "nothing is left"))

    def _watch(self, run: Run, ports: Ports, stubs: StubWatch) -> None:
        """Watch the server in a thread until it has ended for good."""
        backoff = Backoff(self._settings.restarts)
        while (triton := self._triton) is not None and not self._ending.is_set():
            self._watch_process(triton, stubs)
            if self._ending.is_set():
                break
            self._settings.emit(ServeEvent("server_died", self._died(triton).found))
            again = self._restart(run, ports, backoff)
            if again is None:
                break
            run, stubs = again, self._stub_watch(again)
        if triton is not None and self._ending.is_set():
            triton.ended.wait()
        self._over.set()

    def _watch_process(self, triton: SupervisedProcess, stubs: StubWatch) -> None:
        """Watch until this process has ended or must end."""
        while not triton.ended.wait(TICK_S) and not self._ending.is_set():
            stubs.scan()
            if self._proxies is not None:
                self._proxies.poll()

    def _stub_watch(self, run: Run) -> StubWatch:
        """The stub watch of the process that runs now."""
        triton = self._triton
        assert triton is not None  # noqa: S101 - it was just started
        planned = {need.model: need.bytes_each for need in run.shm.models}

        def emit(kind: str, text: str, model: str) -> None:
            self._settings.emit(ServeEvent(cast("EventKind", kind), text, model))
            if kind == "streams_lost":
                spare_calls(triton.pid)
                triton.kill()

        stubs = StubWatch(
            triton.prefix,
            Admin(run.folder, run.key, _RELOAD_S),
            planned,
            emit,
            lambda model: still_answers(run, self.endpoint, model),
            None if self._proxies is None else self._proxies.gauges.stubs,
            self._settings.restarts > 0,
        )
        if self._proxies is not None:
            self._proxies.gauges.stubs = stubs
        return stubs

    def _restart(self, run: Run, ports: Ports, backoff: Backoff) -> Run | None:
        """Start another process with the models that the repository holds by then.

        Return the new run, even if `stop` was called meanwhile; None if restarts are given up.
        """
        delay_s = backoff.after_death(was_ready=True)
        while delay_s is not None:
            if self._ending.wait(delay_s):
                return run
            started = time.monotonic()
            try:
                run = self._run = read_again(run)
                run = self._start_process(run, ports, started)
            except Exception as error:  # any error is caught: only this thread watches the server
                if self._triton is not None:
                    self._triton.kill()
                self._settings.emit(ServeEvent("server_died", _reason(error)))
                delay_s = backoff.after_death(was_ready=False)
                continue
            if not self._ending.is_set():
                text = f"it answers again after {time.monotonic() - started:.1f} s"
                self._settings.emit(ServeEvent("server_back", text))
            return run
        often = f"{backoff.most} starts did not bring it back, " if backoff.most else ""
        self._settings.emit(ServeEvent("server_lost", f"{often}it is not started again"))
        return None

    def _died(self, triton: SupervisedProcess) -> ServerDied:
        return ServerDied(
            f"tritonserver (pid {triton.pid})",
            found=describe_exit(triton.exit_code),
            wanted="a server that runs until it is stopped",
            todo=f"the whole log is {triton.log}",
            details="\n".join(relevant(read_tail(triton.log))),
        )


def _reason(error: Exception) -> str:
    """The reason why a start failed, in a line."""
    if isinstance(error, TritonkitError):
        return f"{error.where}: {error.found}"
    return f"{type(error).__name__}: {error}"


def _server_of(settings: Callable[_P, Settings]) -> Callable[_P, Server]:
    """`serve`, with the arguments of `Settings` for type checkers."""

    def serve(*args: _P.args, **kwargs: _P.kwargs) -> Server:
        """A server that is not started yet: `with serve(repository, models=["digits"]) as endpoint:` starts it.

        The arguments are those of `Settings`. Leaving the block stops the server and removes its files.

        Raises:
            ServerDied: at the end of the block, if the server ended for good before it.
        """
        return Server(settings(*args, **kwargs))

    return serve


serve = _server_of(Settings)
