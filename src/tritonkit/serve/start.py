"""From a repository to a server that has answered once for every model."""

from __future__ import annotations

import contextlib
import http.client
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerStartError, TritonkitError
from tritonkit.machine import cores
from tritonkit.publish.integrity import config_name
from tritonkit.serve import shm
from tritonkit.serve.command import (
    CONFIG_FLAG,
    arguments,
    prepare_backends,
    python_run,
    usable_backends,
    without_own,
)
from tritonkit.serve.core.flags import HTTP_SOCKET, METRICS_SOCKET
from tritonkit.serve.core.keys import new_key, write_private
from tritonkit.serve.core.launch import Launch, has_guard
from tritonkit.serve.core.native_backends import STEPS, why_not
from tritonkit.serve.core.rest import envoy_threads
from tritonkit.serve.core.stubs import clear_dead_runs
from tritonkit.serve.core.supervisor import LOG_BYTES
from tritonkit.serve.core.unix_http import Admin
from tritonkit.serve.install import ServerInstallation, find_server
from tritonkit.serve.log import read_tail, relevant
from tritonkit.serve.ports import reachable
from tritonkit.serve.process import SupervisedProcess, describe_exit
from tritonkit.serve.repository import (
    ServedModel,
    check_files,
    check_unpadded,
    config_file,
    read_models,
)
from tritonkit.serve.rpc import NotAnswered, Service, connect
from tritonkit.serve.runs import new_run_dir
from tritonkit.serve.values import Endpoint, Ports, ServeEvent, Settings
from tritonkit.serve.warm import NoSample, warm_request

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tritonkit.serve.core.native_backends import NativeBackend

__all__ = [
    "UNGUARDED",
    "Run",
    "await_ready",
    "chosen",
    "http_answers",
    "launch",
    "lost_port",
    "prepare",
    "read_again",
    "still_answers",
]

UNGUARDED = (
    "the native guard is not built (`tritonkit doctor` says how): the admin key can be read in the arguments of"
    " tritonserver, requests may have up to 2 GiB, other users of this machine can read shared memory"
)
"""What an environment without the guard leaves open."""

STAND_INS = (
    "Python stand-ins serve instead of native backends ({}): small networks are answered more slowly;"
    " `tritonkit doctor` says what to do"
)

_POLICIES = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}
_POLL_S = 0.05
_CALL_S = 5.0
_ANSWER_S = 30.0


@dataclass(frozen=True)
class Run:
    """Everything that is settled before a process starts; `folder` is this run's own.

    `key` is the run's admin key, `message_bytes` its largest request, `config` the name of the models'
    configurations for the cores it has; empty: an older server, which knows no such names, and models without them.
    """

    settings: Settings
    installation: ServerInstallation
    models: dict[str, ServedModel]
    backends: Path
    native: tuple[NativeBackend, ...]
    shm: shm.ShmPlan
    folder: Path
    key: str
    message_bytes: int
    config: str

    @property
    def log(self) -> Path:
        """What the server and its models print."""
        return self.folder / "server.log"


def prepare(settings: Settings) -> Run:
    """Check and lay out all that a start needs.

    Raises:
        UsageError, ServerNotFound, ServerStartError: as the parts say.
    """
    models, config = _read(settings)
    installation = find_server(settings.project)
    config = _usable_config(installation, models, config)
    clear_dead_runs()
    compiled = {} if settings.backend == "python" else installation.native_backends()
    compiled = without_own(compiled, settings.stand_ins)
    demanded = settings.backend == "native" and not installation.native
    native = usable_backends(compiled, demanded=demanded)
    wanted = _shm_plan(settings, installation, native, models)
    shm.check_room(wanted, settings.shared_memory)
    folder = new_run_dir(settings.project)
    backends = prepare_backends(installation, settings.stand_ins, folder / "backends", native)
    _announce(settings, installation, models, compiled, native)
    return Run(
        settings, installation, {m.name: m for m in models}, backends, native, wanted, folder,
        new_key(), _message_bytes(settings, models), config,
    )  # fmt: skip


def read_again(run: Run) -> Run:
    """The same run with the models that its repository holds now: others may have been published since.

    The room in shared memory is not checked: servers beside this one, which had grown since, must not keep it down.

    Raises:
        UsageError, ServerStartError: a model is not there any more, or cannot be served.
        OSError: the repository cannot be read.
    """
    settings, installation = run.settings, run.installation
    models, config = _read(settings)
    return replace(
        run,
        models={model.name: model for model in models},
        shm=_shm_plan(settings, installation, run.native, models),
        message_bytes=_message_bytes(settings, models),
        config=_usable_config(installation, models, config),
    )


def _read(settings: Settings) -> tuple[tuple[ServedModel, ...], str]:
    """The models to serve, and the name of their configurations for the cores there are."""
    config = str(settings.triton_flags.get(CONFIG_FLAG, config_name(cores())))
    models = read_models(settings.repository, settings.models, config)
    for model in models:
        check_files(model)
    return models, config


def _usable_config(
    installation: ServerInstallation, models: Sequence[ServedModel], config: str
) -> str:
    """The name of the configurations as this server may be told it; empty where it must not be."""
    if installation.native:
        check_unpadded(models)
        if not any(config_file(model.folder, config).stem == config for model in models):
            return ""
    return config


def _shm_plan(
    settings: Settings, installation: ServerInstallation, native: Collection[NativeBackend],
    models: Sequence[ServedModel],
) -> shm.ShmPlan:  # fmt: skip
    served_from = installation.backends if installation.native else settings.stand_ins
    # A network that is native needs nothing of /dev/shm; a step keeps its stub.
    without_stubs = {backend.name for backend in native} - {STEPS}
    return shm.plan(models, python_run(served_from) - without_stubs)


def _message_bytes(settings: Settings, models: Sequence[ServedModel]) -> int:
    given = (settings.max_request_mib or 0) * shm.MIB
    return given or shm.largest_message(models)


def _announce(
    settings: Settings, installation: ServerInstallation, models: Sequence[ServedModel],
    compiled: Mapping[str, NativeBackend], native: Sequence[NativeBackend],
) -> None:  # fmt: skip
    """Say what will serve what, and what this environment leaves open."""
    names = ", ".join(model.name for model in models)
    kinds = "; native backends: " + ", ".join(one.name for one in native) if native else ""
    settings.emit(ServeEvent("preparing", f"{names} with {installation.version}{kinds}"))
    # Of the Python models, only those that are shipped steps could be native.
    could_be = {one.backend for one in models if one.backend != STEPS or one.step}
    wrong = why_not(compiled, could_be)
    if settings.backend == "auto" and not installation.native and wrong:
        settings.emit(ServeEvent("stand_in", STAND_INS.format(wrong)))
    if installation.guard is None:
        settings.emit(ServeEvent("unguarded", UNGUARDED))


def launch(run: Run, grpc_port: int) -> SupervisedProcess:
    """Start the process."""
    models = tuple(run.models.values())
    guard = run.installation.guard
    process = Launch(
        argv=arguments(
            run.installation,
            run.settings,
            models,
            grpc_port,
            run.backends,
            run.shm,
            run.native,
            run.config,
        ),
        env=run.installation.environment(),
        cwd=str(run.folder),
        key=run.key,
        grpc_port=grpc_port,
        message_bytes=run.message_bytes,
        file_bytes=max(shm.largest_file(run.shm, run.message_bytes), 2 * LOG_BYTES),
        guard=str(guard) if guard else "",
    )
    for name in (HTTP_SOCKET, METRICS_SOCKET):  # of a process that died
        (run.folder / name).unlink(missing_ok=True)
    triton = SupervisedProcess(process, run.log)
    write_private(run.folder / "owner", str(triton.supervisor_pid))
    return triton


def chosen(run: Run, pid: int) -> str:
    """How the process `pid` runs, in words: cores, scheduling, the proxy's threads, flags of the user's."""
    parts = []
    # It may have ended at once; whoever waits for it will say why.
    with contextlib.suppress(ProcessLookupError):
        policy = _POLICIES.get(os.sched_getscheduler(pid), "kept")
        parts = [f"cores {len(os.sched_getaffinity(pid))}", f"scheduling {policy}"]
    if run.settings.http:
        parts.append(f"HTTP threads {envoy_threads()}")
    named = " ".join(f"--{name}" for name in run.settings.triton_flags)
    parts.append(f"Triton's own defaults but for {named}" if named else "Triton's own defaults")
    return ", ".join(parts)


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
