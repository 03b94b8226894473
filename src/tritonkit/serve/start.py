"""From a repository to a process that serves it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tritonkit.machine import cores, cores_within
from tritonkit.publish.configurations import config_for
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
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.native_backends import STEPS, why_not
from tritonkit.serve.core.rest import envoy_threads
from tritonkit.serve.core.stubs import clear_dead_runs
from tritonkit.serve.core.supervisor import LOG_BYTES
from tritonkit.serve.core.threads import thread_variables
from tritonkit.serve.install import ServerInstallation, find_server
from tritonkit.serve.process import SupervisedProcess
from tritonkit.serve.repository import (
    ServedModel,
    check_files,
    check_unpadded,
    config_file,
    read_models,
)
from tritonkit.serve.runs import new_run_dir
from tritonkit.serve.values import ServeEvent, Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tritonkit.serve.core.native_backends import NativeBackend

__all__ = [
    "UNGUARDED",
    "Run",
    "chosen",
    "launch",
    "prepare",
    "read_again",
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
    own = cores()
    usual = config_for(settings.repository, own, cores_within(own))
    config = str(settings.triton_flags.get(CONFIG_FLAG, usual))
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
    environment = run.installation.environment()
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
        env=environment | thread_variables(cores(), environment),
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
        parts.append(f"HTTP threads {envoy_threads(cores=cores())}")
    named = " ".join(f"--{name}" for name in run.settings.triton_flags)
    parts.append(f"Triton's own defaults but for {named}" if named else "Triton's own defaults")
    return ", ".join(parts)
