"""Preparation and launch of a process that serves a repository."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tritonkit.disk import unwritable
from tritonkit.errors import ServerStartError
from tritonkit.limits import low_memory, too_low
from tritonkit.machine import cores, cores_within, free_memory
from tritonkit.repository.publish.configurations import config_for
from tritonkit.serve import shm
from tritonkit.serve.command import CONFIG_FLAG, arguments, prepare_backends, python_run, usable_backends, without_own
from tritonkit.serve.core.flags import HTTP_SOCKET, METRICS_SOCKET
from tritonkit.serve.core.keys import new_key
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.native_backends import STEPS, why_not
from tritonkit.serve.core.pools import Pools
from tritonkit.serve.core.rest import envoy_threads
from tritonkit.serve.core.stubs import clear_dead_runs
from tritonkit.serve.core.supervisor import LOG_BYTES
from tritonkit.serve.core.threads import thread_variables
from tritonkit.serve.engines import uses_tensorrt
from tritonkit.serve.gpus import OnGpus, doing_without, plan_pools
from tritonkit.serve.install import ServerInstallation, find_server
from tritonkit.serve.managed import run_from_sources
from tritonkit.serve.manifests import warm_up_of
from tritonkit.serve.process import SupervisedProcess
from tritonkit.serve.repository import ServedModel, check_unpadded, config_file, read_models
from tritonkit.serve.runs import new_run_dir, write_owner
from tritonkit.serve.selection import Selection, mark, select
from tritonkit.serve.values import ServeEvent, Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tritonkit.serve.core.native_backends import NativeBackend

__all__ = ["UNGUARDED", "Run", "chosen", "launch", "prepare", "read_again"]

_LEAST_FILES = 256
_LEAST_FILE_BYTES = 64 << 20
"""Smallest limit on file sizes: shared memory between the server and a model's Python is a file too."""

_ENGINES_S = 1800.0
"""Time for TensorRT's engines, which are built at a first start for minutes."""

UNGUARDED = (
    "the native guard is not built (`tritonkit doctor` says how): the admin key can be read in the arguments of"
    " tritonserver, requests may have up to 2 GiB, other users of this machine can read shared memory, and"
    " max_inflight_requests of ensembles bounds nothing"
)
"""Message about the gaps of an environment without the guard."""

STAND_INS = (
    "Python stand-ins serve instead of native backends ({}): small networks are answered more slowly;"
    " `tritonkit doctor` says what to do"
)

_POLICIES = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}


@dataclass(frozen=True)
class Run:
    """Everything that is decided before a process starts; `folder` belongs to this run.

    `selection` has the models, `key` is the run's admin key, and `message_bytes` is its largest request. `config` is
    the name of the models' configurations for its cores. It is empty for an older server, which knows no such names,
    and for models without them. `pools` are empty if no model runs on a GPU.
    """

    settings: Settings
    installation: ServerInstallation
    selection: Selection
    backends: Path
    native: tuple[NativeBackend, ...]
    shm: shm.ShmPlan
    folder: Path
    key: str
    message_bytes: int
    config: str
    pools: Pools
    later: frozenset[str] = frozenset()
    """Models that are loaded by requests once the server runs, in the order of `models`."""
    unwarmed: frozenset[str] = frozenset()
    """Models among `later` whose `model_warmup` fails: they are loaded without it."""
    one_by_one: bool = False
    """Whether models are loaded one after the other, to learn which of them ends the server."""

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """The models to serve, each after the models it calls."""
        return self.selection.models

    @property
    def ready_timeout_s(self) -> float:
        """Seconds until it must be ready: more than usual if TensorRT may build engines first."""
        engines = any(map(uses_tensorrt, self.models.values()))
        return self.settings.ready_timeout_s + (_ENGINES_S if engines else 0.0)

    @property
    def log(self) -> Path:
        """The file with the output of the server and its models."""
        return self.folder / "server.log"


def prepare(settings: Settings) -> Run:
    """Check and lay out all that a start needs.

    Raises:
        UsageError, ServerNotFound, ServerStartError: the errors of the functions it calls.
    """
    _hold_to_limits()
    selection, config = _read(settings)
    selection.check()
    installation = find_server(settings.project)
    if installation.python_bin is not None and not installation.runs_sources_alone:
        run_from_sources(installation.python_bin.parent)
    on_gpus, config = _usable(installation, selection, config)
    clear_dead_runs()
    compiled = {} if settings.backend == "python" else installation.native_backends()
    compiled = without_own(compiled, settings.stand_ins)
    demanded = settings.backend == "native" and not installation.native
    native = usable_backends(compiled, demanded=demanded)
    selection, plan = _with_room(settings, installation, native, on_gpus.selection, on_gpus.gpus)
    models = tuple(selection.models.values())
    folder = new_run_dir(settings.project)
    backends = _prepare_backends(installation, settings, folder, native)
    _announce(settings, installation, models, compiled, native)
    for note in on_gpus.notes:
        settings.emit(ServeEvent("short_of_memory", note))
    for error in selection.refused.values():
        settings.emit(ServeEvent("not_served", error.in_a_line()))
    return Run(
        settings,
        installation,
        selection,
        backends,
        native,
        plan,
        folder,
        new_key(),
        _message_bytes(settings, models),
        config,
        plan_pools(models, on_gpus.gpus),
        later=_callers(models),
    )


def _hold_to_limits() -> None:
    """Raise ServerStartError if no server could start within the inherited limits."""
    if limits := too_low(_LEAST_FILES, _LEAST_FILE_BYTES):
        raise ServerStartError(
            "tritonserver",
            found=f"a limit that it inherits from this shell is too low: {limits}",
            wanted=f"at least {_LEAST_FILES} open files, and files of {_LEAST_FILE_BYTES >> 20} MiB",
            todo="raise it, and start again: ulimit -n 4096; ulimit -f unlimited",
        )


def _prepare_backends(
    installation: ServerInstallation, settings: Settings, folder: Path, native: Sequence[NativeBackend]
) -> Path:
    try:
        return prepare_backends(installation, settings.stand_ins, folder / "backends", native)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise unwritable(folder, error, ServerStartError) from error


def read_again(run: Run) -> Run:
    """The same run with the models that its repository holds now: others may have been published since.

    Free space in shared memory and on GPUs is not checked: other servers, which may have grown, must not prevent a
    restart.

    Raises:
        UsageError, ServerStartError: a model does not exist any more, or cannot be served.
        OSError: the repository cannot be read.
    """
    settings, installation = run.settings, run.installation
    selection, config = _read(settings)
    on_gpus, config = _usable(installation, selection, config, by_memory=False)
    selection, gpus = on_gpus.selection, on_gpus.gpus
    for name, before in run.selection.killers.items():
        if name in selection.models and mark(selection.models[name]) == before:
            selection = selection.without_killer(name, run.selection.refused[name])
    selection.check()
    models = tuple(selection.models.values())
    return replace(
        run,
        selection=selection,
        shm=_shm_plan(settings, installation, run.native, models, gpus),
        pools=plan_pools(models, gpus),
        message_bytes=_message_bytes(settings, models),
        config=config,
        later=_callers(models) | (run.unwarmed & {model.name for model in models}),
        one_by_one=False,
    )


def _read(settings: Settings) -> tuple[Selection, str]:
    """The models to serve, and the name of their configurations for this machine's cores."""
    own = cores()
    usual = config_for(settings.repository, own, cores_within(own))
    config = str(settings.triton_flags.get(CONFIG_FLAG, usual))
    refused: dict[str, ServerStartError] = {}
    models = read_models(settings.repository, settings.models, config, refused)
    return select(models, refused, settings.models, settings.require), config


def _usable(
    installation: ServerInstallation, selection: Selection, config: str, *, by_memory: bool = True
) -> tuple[OnGpus, str]:
    """The models that this kind of server can serve here, and the name of the configurations to pass to it, if any."""
    on_gpus = doing_without(installation, selection, by_memory=by_memory)
    selection = on_gpus.selection
    selection.check()
    if not installation.native:
        return on_gpus, config
    for model in tuple(selection.models.values()):
        try:
            check_unpadded([model])
        except ServerStartError as error:
            selection = selection.without(model.name, error)
    selection.check()
    models = selection.models.values()
    named = any(config_file(model.folder, config).stem == config for model in models)
    return replace(on_gpus, selection=selection), config if named else ""


def _with_room(
    settings: Settings,
    installation: ServerInstallation,
    native: Collection[NativeBackend],
    selection: Selection,
    gpus: int,
) -> tuple[Selection, shm.ShmPlan]:
    """The selection without models that need, each by itself, more shared memory than there is; and its plan."""
    needs = _shm_plan(settings, installation, native, tuple(selection.models.values()), gpus).models
    for need in needs:
        try:
            alone = shm.ShmPlan((need,), need.bytes_each, need.stubs * need.bytes_each)
            shm.check_room(alone, settings.shared_memory)
        except ServerStartError as error:
            selection = selection.without(need.model, error)
    selection.check()
    plan = _shm_plan(settings, installation, native, tuple(selection.models.values()), gpus)
    shm.check_room(plan, settings.shared_memory)
    return selection, plan


def _callers(models: Sequence[ServedModel]) -> frozenset[str]:
    """The Python models that call others, and the ensembles made of them. Triton loads all models at the same time, and
    these need the others when they are warmed up."""
    callers: set[str] = set()
    for model in models:
        if model.calls or callers & set(model.parts):
            callers.add(model.name)
    return frozenset(callers)


def _shm_plan(
    settings: Settings,
    installation: ServerInstallation,
    native: Collection[NativeBackend],
    models: Sequence[ServedModel],
    gpus: int,
) -> shm.ShmPlan:
    served_from = installation.backends if installation.native else settings.stand_ins
    # A native network needs no shared memory; a step keeps its stub.
    without_stubs = {backend.name for backend in native} - {STEPS}
    return shm.plan(models, python_run(served_from) - without_stubs, max(1, gpus))


def _message_bytes(settings: Settings, models: Sequence[ServedModel]) -> int:
    given = (settings.max_request_mib or 0) * shm.MIB
    return given or shm.largest_message(models)


def _announce(
    settings: Settings,
    installation: ServerInstallation,
    models: Sequence[ServedModel],
    compiled: Mapping[str, NativeBackend],
    native: Sequence[NativeBackend],
) -> None:
    """Report which server and backends will serve the models, and the gaps of this environment."""
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
    if limits := low_memory():
        text = f"tritonserver and the Python that it starts inherit a limit: {limits}; they may need more"
        settings.emit(ServeEvent("short_of_memory", text))
    _warn_of_memory(settings, models)


def _warn_of_memory(settings: Settings, models: Sequence[ServedModel]) -> None:
    """Warn if warming up takes more memory than is free, by the builds' measurements."""
    needs = {model.name: sum(warm_up_of(model, version)[0] for version in model.versions) for model in models}
    free = free_memory()
    if free and sum(needs.values()) > free:
        most = max(needs, key=lambda name: needs[name])
        text = (
            f"warming up takes about {sum(needs.values()) / shm.MIB:.0f} MiB by the builds' figures, and"
            f" {free / shm.MIB:.0f} MiB are free: a smaller max_batch_size takes less, above all of {most}"
        )
        settings.emit(ServeEvent("short_of_memory", text))


def launch(run: Run, grpc_port: int) -> SupervisedProcess:
    """Start the process."""
    models = tuple(run.models.values())
    first = tuple(model for model in models if model.name not in run.later)
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
            [model.name for model in first],
            run.pools,
        )
        + (["--model-load-thread-count=1"] if run.one_by_one else []),
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
    write_owner(run.folder, triton.supervisor_pid)
    return triton


def chosen(run: Run, pid: int) -> str:
    """A description of how the process `pid` runs: cores, scheduling, the proxy's threads, the user's flags."""
    parts = []
    # It may have ended already; the code that waits for it reports why.
    with contextlib.suppress(ProcessLookupError):
        policy = _POLICIES.get(os.sched_getscheduler(pid), "kept")
        parts = [f"cores {len(os.sched_getaffinity(pid))}", f"scheduling {policy}"]
    if run.settings.http:
        parts.append(f"HTTP threads {envoy_threads(cores=cores())}")
    named = " ".join(f"--{name}" for name in run.settings.triton_flags)
    parts.append(f"Triton's own defaults but for {named}" if named else "Triton's own defaults")
    return ", ".join(parts)
