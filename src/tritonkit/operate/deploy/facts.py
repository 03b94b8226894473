"""Resources and times of a pod, computed from the repository that it serves."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import RenderError
from tritonkit.machine import cores_within
from tritonkit.operate.deploy.measured import Profile
from tritonkit.operate.deploy.values import AUTOSCALERS, REPLICAS, Values
from tritonkit.repository.publish.configurations import config_for, rendered_cores
from tritonkit.repository.publish.integrity import read_manifest
from tritonkit.resources import shipped
from tritonkit.serve.command import python_run
from tritonkit.serve.manifests import ContainerNeeds, container_needs, warm_up_of
from tritonkit.serve.repository import read_models
from tritonkit.serve.shm import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.serve.repository import ServedModel

__all__ = ["AGE_S", "DRAIN_S", "STOP_S", "Facts", "read_facts"]

STOP_S = 15
"""Seconds of preStop: until the pod has left every endpoint list and its callers' connections have ended."""
AGE_S = 10
"""Age at which gRPC asks a connection to end. gRPC varies it by a tenth, and it must stay below STOP_S even so."""
DRAIN_S = 53
"""Longest time that entry.py takes after SIGTERM: 20 s for ensembles, 28 s for the rest, 5 s for one that hangs."""
MARGIN_S = 12
PERIOD_S = 5
"""Seconds between two startup probes."""
_START_S, _MODEL_S, _BYTES_PER_S = 60, 10, 10 * MIB
_LONG_WARM_S = 30
"""Seconds of a warm-up that the time for each model covers, on a node whose cores are free."""
_TIMES_MEASURED = 4
"""Factor on a measured start that a pod may take, because other pods' starts may keep the node's cores busy."""
_FETCH_MIB = 512
_CORES = 2


@dataclass(frozen=True)
class Facts:
    """Figures of a repository.

    Args:
        needs: memory and shared memory, as for a container of Docker.
        models: the number of its models.
        file_bytes: the size of its files.
        cores: whole cores of a pod.
        cores_from: the reason for that number.
        replicas: pods, without an autoscaler.
        replicas_from: the reason for that number.
        measured_s: the sum of all measured starts.
        unmeasured: the number of models without such a measurement, not counting parts of a measured model.
        warm_s: the time that their warm-ups take beyond the usual allowance, according to their builds.
        config: the name of the models' configurations for that number of cores; empty if that is `config.pbtxt`.
        names: the models' names.
    """

    needs: ContainerNeeds
    models: int
    file_bytes: int
    cores: int
    cores_from: str
    unmeasured: int
    measured_s: float = 0.0
    warm_s: float = 0.0
    replicas: int = REPLICAS
    replicas_from: str = ""
    config: str = ""
    names: tuple[str, ...] = ()

    @property
    def memory_mib(self) -> int:
        """Request and limit of a pod's memory."""
        return self.needs.memory_bytes // MIB

    @property
    def shm_mib(self) -> int:
        """The size of /dev/shm."""
        return math.ceil(self.needs.shm_bytes / MIB)

    @property
    def fetch_mib(self) -> int:
        """Request and limit of the init container's memory: it reads files in pieces, those of a store some ahead."""
        return _FETCH_MIB

    @property
    def file_mib(self) -> int:
        """The size of the repository's files."""
        return math.ceil(self.file_bytes / MIB)

    @property
    def volume_mib(self) -> int:
        """Space for the repository: its files twice, because a new version is written next to the old one."""
        return max(64, 2 * self.file_mib)

    @property
    def startup_s(self) -> int:
        """Seconds that a start may take."""
        models_s = _MODEL_S * self.unmeasured + self.warm_s + _TIMES_MEASURED * self.measured_s
        least = _START_S + models_s + self.file_bytes / _BYTES_PER_S
        return math.ceil(least / 30) * 30

    @property
    def startup_failures(self) -> int:
        """Startup probes that may fail."""
        return self.startup_s // PERIOD_S

    @property
    def period_s(self) -> int:
        """Seconds between two startup probes."""
        return PERIOD_S

    @property
    def stop_s(self) -> int:
        """Seconds of preStop."""
        return STOP_S

    @property
    def age_s(self) -> int:
        """The age at which a connection is asked to end."""
        return AGE_S

    @property
    def drain_s(self) -> int:
        """Seconds that entry.py gets after SIGTERM."""
        return DRAIN_S

    @property
    def grace_s(self) -> int:
        """Seconds from the order to end until the kubelet kills."""
        return STOP_S + DRAIN_S + MARGIN_S

    @property
    def progress_s(self) -> int:
        """Seconds that one step of a rolling update may take: fetching, starting, and the end of an old pod."""
        return 2 * self.startup_s + self.grace_s

    @property
    def needs_json(self) -> str:
        """The content of /handover/needs.json, which entry.py reads, in one line."""
        return json.dumps(asdict(self.needs), sort_keys=True)

    def to_dict(self) -> dict[str, object]:
        """The figures for programs."""
        names = [name for name, value in vars(Facts).items() if isinstance(value, property)]
        computed = {name: getattr(self, name) for name in names if name != "needs_json"}
        return {**asdict(self), **computed}


def read_facts(repository: Path, values: Values, profile: Profile | None = None) -> Facts:
    """The facts of a repository.

    Args:
        profile: the measurements of its models.

    Raises:
        UsageError: there is no repository, or no model in it.
        ServerStartError: a configuration cannot be read.
        RenderError: a model has no version, or a plan for another GPU than values.yaml names. Or the measurements are
            of another model, or need other cores or more replicas than values.yaml says.
    """
    profile = profile or Profile()
    models = read_models(repository)
    for model in models:
        if not model.versions:
            raise RenderError(
                str(model.folder),
                found="the model has no version that is served",
                wanted="a built repository: its files' sizes are needed",
                todo="tritonkit build",
            )
        _check_gpu(model, values.gpu.product)
    names = tuple(sorted(model.name for model in models))
    cores, cores_from = _cores(values, profile, rendered_cores(repository))
    replicas, replicas_from = _replicas(values, profile)
    files = [file for model in models for file in model.folder.rglob("*") if file.is_file()]
    return Facts(
        needs=container_needs(models, python_run(shipped("python_backends/backends"))),
        models=len(models),
        file_bytes=sum(file.stat().st_size for file in files),
        cores=cores,
        cores_from=cores_from,
        unmeasured=_unmeasured(models, profile, repository),
        measured_s=sum(profile.start_s.values()),
        warm_s=math.ceil(sum(_warm_s(model, cores) for model in models if model.name not in profile.start_s)),
        replicas=replicas,
        replicas_from=replicas_from,
        config=config_for(repository, cores, cores_within(cores)),
        names=names,
    )


def _cores(values: Values, profile: Profile, rendered: int | None) -> tuple[int, str]:
    if values.cpu and profile.cores not in (0, values.cpu):
        raise RenderError(
            "cpu in values.yaml",
            found=str(values.cpu),
            wanted=f"{profile.cores}, with which `measured` was measured",
            todo="leave cpu out, or measure with that number of cores: taskset --cpu-list ... tritonkit plan ...",
        )
    cores_by_reason = {
        "cpu in values.yaml": values.cpu,
        "those with which the models were measured": profile.cores,
        "the cores that the repository was rendered for": rendered,
    }
    reason = next((why for why, cores in cores_by_reason.items() if cores), "the repository says none")
    return cores_by_reason.get(reason) or _CORES, reason


def _replicas(values: Values, profile: Profile) -> tuple[int, str]:
    needed = profile.replicas
    bounds = {"replicas": values.replicas}
    if set(AUTOSCALERS) & set(values.production):
        bounds["scaling.max"] = values.scaling.max
    for key, bound in bounds.items():
        if bound is not None and bound < needed:
            raise RenderError(
                f"{key} in values.yaml",
                found=str(bound),
                wanted=f"at least {needed}, which the requests in `measured` need",
                todo="leave replicas out" if key == "replicas" else "raise it",
            )
    if values.replicas:
        return values.replicas, "replicas in values.yaml"
    if needed:
        return needed, "for the requests in `measured` of values.yaml, spare ones included"
    return REPLICAS, "values.yaml has neither a number nor measurements"


def _unmeasured(models: Sequence[ServedModel], profile: Profile, repository: Path) -> int:
    parts: dict[str, set[str]] = {}
    for model in models:  # each after its parts, which may have parts themselves
        parts[model.name] = {model.name}.union(*(parts.get(part, {part}) for part in model.parts))
    for name in profile.start_s:
        if name not in parts:
            raise RenderError(
                "measured in values.yaml",
                found=f"a measurement of {name}",
                wanted=f"one of a model in {repository}: {', '.join(sorted(parts))}",
            )
    return len(parts.keys() - set().union(*(parts[name] for name in profile.start_s)))


def _warm_s(model: ServedModel, cores: int) -> float:
    """Seconds that a warm-up takes beyond the usual time, on a given number of cores."""
    seconds = sum(warm_up_of(model, version)[1] for version in model.versions)
    return _TIMES_MEASURED * max(0.0, seconds / cores - _LONG_WARM_S)


def _check_gpu(model: ServedModel, product: str | None) -> None:
    """Refuse a plan for another GPU. A node's label is the driver's name for the GPU, with hyphens for spaces."""
    for version in model.versions:
        manifest = read_manifest(model.folder / str(version)) or {}
        tools = manifest.get("tools")
        built = tools.get("gpu", "none") if isinstance(tools, dict) else "none"
        name = str(built).replace(" ", "-")
        if name == "none" or product is None or re.sub("-(SHARED|MIG-.*)$", "", product) == name:
            continue
        raise RenderError(
            f"{model.folder / str(version)}",
            found=f"it is a plan for {built}",
            wanted=f"one for {product}, which gpu.product in values.yaml names",
            todo="build the model on that GPU, or name the one it was built on",
        )
