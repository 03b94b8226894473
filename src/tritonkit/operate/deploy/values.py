"""`values.yaml` of a rendered tree: what a person decides. All of it has defaults."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tritonkit.disk import unwritable
from tritonkit.errors import RenderError, SpecError, UsageError
from tritonkit.operate.deploy.measured import Expected
from tritonkit.operate.deploy.pinned import Image
from tritonkit.operate.deploy.scaling_values import Keda, Monitoring, Scaling, ToZero
from tritonkit.operate.deploy.traffic_values import Gateway, GatewayApi, Kserve
from tritonkit.repository.modelspec.base import Strict
from tritonkit.repository.modelspec.document import read_document

__all__ = ["FILE", "Gpu", "Images", "ModelCache", "Models", "Values", "read_values", "with_namespace", "write_values"]

FILE = "values.yaml"

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
Label = Annotated[str, Field(pattern=f"^{_LABEL}$")]
"""A name as RFC 1123 has it, which namespaces and claims go by."""
Name = Annotated[str, Field(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
_SOURCES = ("image", "image_volume", "store", "claim")
_OF_A_STORE = ("as_of", "cache", "store_port")
Cores = Annotated[int, Field(ge=1, le=1024, strict=True)]
Replicas = Annotated[int, Field(ge=1, le=10_000, strict=True)]


def _store(url: str) -> str:
    """Refuse text that is not an address of a store, and an address that contains a password."""
    scheme, separator, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        raise ValueError("a password in the address (not shown); wanted it in the environment")
    # `$` would be taken for a variable by the kubelet.
    if not separator or not scheme.isalnum() or not rest or any(c.isspace() or c in "$\"'" for c in url):
        raise ValueError(f"{url!r}; wanted such as s3://bucket/models")
    return url


class Images(Strict):
    """The images of the pods, each pinned."""

    server: Image = "tritonkit/server:0.1.0"
    server_gpu: Image = "tritonkit/server-gpu:0.1.0"
    server_nvidia: Image = "tritonkit/server-nvidia:0.1.0"
    tools: Image = "tritonkit/tools:0.1.0"


class ModelCache(Strict):
    """A volume on which the pods share what they have fetched."""

    size_mib: Annotated[int, Field(ge=64, le=1 << 24, strict=True)] = 4096
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """ReadWriteOnce holds all pods to one node."""
    storage_class: Name | None = None
    """The volume's storage class; None: the cluster's default."""

    @property
    def files_mib(self) -> int:
        """Limit of the files' size: less than the volume, because its file system needs space too."""
        return self.size_mib * 9 // 10


class Models(Strict):
    """The source of the pods' repository: exactly one of these."""

    image: Image | None = None
    """A model image, whose files an init container copies."""
    image_volume: Image | None = None
    """A model image that the cluster itself mounts (image volumes: Kubernetes 1.33 and newer by default)."""
    store: Annotated[str, AfterValidator(_store)] | None = None
    """A store that `tritonkit backup` wrote."""
    as_of: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.-]{3,60}$")] | None = None
    """With a store: the beginning of a backup's ID; by default the latest when a pod starts."""
    store_port: Annotated[int, Field(ge=1, le=65535, strict=True)] | None = None
    """With a store: the TCP port that pods may connect to; by default that of the address."""
    cache: ModelCache | None = None
    """With a store: a volume for fetched files."""
    claim: Name | None = None
    """A PersistentVolumeClaim of the namespace with the repository in it, mounted read-only."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        sources = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ValueError(f"{' and '.join(sources) or 'none'} given; wanted exactly one of {', '.join(_SOURCES)}")
        of_a_store = [name for name in _OF_A_STORE if getattr(self, name) is not None]
        if of_a_store and self.store is None:
            raise ValueError(f"{of_a_store[0]} without store; wanted it with a store only")
        return self

    @property
    def source(self) -> str:
        """The name of the source that is given."""
        return next(name for name in _SOURCES if getattr(self, name) is not None)

    @property
    def fetch_command(self) -> list[str]:
        """The command of the init container."""
        if self.store is not None:
            words = ["tritonkit", "deploy", "fetch", "--from", self.store, "--to", "/models"]
            words += ["--as-of", self.as_of] if self.as_of else []
            if self.cache is not None:
                words += ["--cache", "/cache", "--cache-mib", str(self.cache.files_mib)]
            return words
        # An image volume is the whole image.
        source = ["--source", "/source/repository"] if self.image_volume else []
        return ["python3", "-IS", "/opt/tritonkit/fetch.py", *source]

    @property
    def port(self) -> int:
        """The TCP port of the store."""
        if self.store_port is not None or self.store is None:
            return self.store_port or 443
        scheme, _, rest = self.store.partition("://")
        port = rest.partition("/")[0].rpartition(":")[2]
        named = scheme in ("http", "https") and port.isdecimal()
        return int(port) if named else 80 if scheme == "http" else 443


class Gpu(Strict):
    """GPUs that a pod of the overlays `gpu` and `nvidia` requests."""

    resource: Annotated[str, Field(pattern=r"^nvidia\.com/[a-z0-9][a-z0-9.-]*$")] = "nvidia.com/gpu"
    """A resource of NVIDIA's device plugin: `nvidia.com/mig-1g.10gb` for a part of a GPU."""
    count: Annotated[int, Field(ge=1, le=16, strict=True)] = 1
    product: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")] | None = None
    """The node label `nvidia.com/gpu.product` that pods are held to."""


Component = Literal[
    "hpa", "keda", "prometheus-adapter", "scale-to-zero", "monitoring", "prometheus", "gateway", "gateway-api"
]
REPLICAS = 2
"""Number of replicas if values.yaml has neither a number nor measurements."""
AUTOSCALERS: tuple[Component, ...] = ("hpa", "keda", "prometheus-adapter", "scale-to-zero")
"""Components that set the number of replicas."""


class Canary(Strict):
    """Pods with the next version of the models, which get a part of the requests."""

    models: Models
    weight: Annotated[int, Field(ge=0, le=100, strict=True)] = 10
    """Percent of the requests; with 0 only requests that name the canary reach it."""
    replicas: Replicas = 1


class Values(Strict):
    """The content of values.yaml."""

    namespace: Label = "tritonkit"
    images: Images = Images()
    models: Models = Models(image="tritonkit/models:1")
    replicas: Replicas | None = None
    """Pods, without an autoscaler; as many as `measured` needs, or 2, by default."""
    cpu: Cores | None = None
    """Whole cores of a pod; by default those of `measured`, or those that the repository was rendered for."""
    measured: tuple[Expected, ...] = ()
    """Measurements of models, and the expected requests."""
    pin: bool = True
    """Whether a pod's server keeps to as many cores of its node as it may use."""
    priority_class: Name | None = None
    """A PriorityClass of the cluster."""
    client_namespaces: tuple[Label, ...] = ()
    """Namespaces whose pods may call, in addition to this one."""
    monitoring_namespace: Label = "monitoring"
    """The namespace whose pods may read metrics."""
    gpu: Gpu = Gpu()
    scaling: Scaling = Scaling()
    keda: Keda = Keda()
    to_zero: ToZero = ToZero()
    monitoring: Monitoring = Monitoring()
    gateway: Gateway = Gateway()
    canary: Canary | None = None
    gateway_api: GatewayApi | None = None
    kserve: Kserve = Kserve()
    production: tuple[Component, ...] = ("hpa",)
    """Components of the overlay `production`."""

    @property
    def most_replicas(self) -> int:
        """The largest number of pods at a time."""
        replicas = self.replicas or REPLICAS
        scaled = set(AUTOSCALERS) & set(self.production)
        return max(replicas, self.scaling.max) if scaled else replicas

    @property
    def model_cache(self) -> ModelCache | None:
        """The cache of the models, or of the canary's models."""
        return self.models.cache or (self.canary.models.cache if self.canary else None)

    @property
    def of_canary(self) -> Values:
        """Values with which the canary's pods are rendered."""
        assert self.canary is not None  # noqa: S101
        return self.model_copy(update={"models": self.canary.models, "replicas": self.canary.replicas})

    @property
    def http_hosts(self) -> tuple[str, ...]:
        """Host names for REST: those of the Services, as pods write them, of `to_zero` and of a Gateway's route."""
        releases = ("triton", "triton-canary") if self.canary else ("triton",)
        services = [name for release in releases for name in (release, f"{release}-clusterip")]
        routed = (self.gateway_api.http_host,) if self.gateway_api else ()
        names = [name for service in services for name in self.names_of(service)]
        return (*names, *self.to_zero_hosts, *routed)

    @property
    def to_zero_hosts(self) -> tuple[str, ...]:
        """The names for which KEDA's interceptor wakes the server."""
        return (*self.names_of("triton-waking"), *self.to_zero.hosts)

    def names_of(self, service: str) -> tuple[str, ...]:
        """A Service's name as pods of this namespace and of others write it."""
        ends = ("", *(f".{self.namespace}{end}" for end in ("", ".svc", ".svc.cluster.local")))
        return tuple(f"{service}{end}" for end in ends)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.scaling.window_s < 4 * self.monitoring.scrape_s:
            raise ValueError(
                f"scaling.window_s is {self.scaling.window_s}, monitoring.scrape_s is {self.monitoring.scrape_s};"
                " wanted a window of at least four scrapes"
            )
        if "gateway-api" in self.production and self.gateway_api is None:
            raise ValueError("production has gateway-api; wanted gateway_api, with its Gateway's name")
        autoscalers = [name for name in AUTOSCALERS if name in self.production]
        if len(autoscalers) > 1:
            raise ValueError(f"production has {' and '.join(autoscalers)}; wanted one of them: each sets the replicas")
        return self


def read_values(file: Path) -> Values:
    """The values of a file; the defaults if it does not exist.

    Raises:
        SpecError: the file cannot be read, or has an unknown key or a value out of range.
    """
    if not file.exists():
        return Values()
    try:
        return read_document(file, Values)
    except SpecError as error:
        raise SpecError(
            error.where,
            found=error.found,
            wanted=error.wanted,
            todo="correct it; docs/kubernetes.md says what may stand there",
            details=error.details,
        ) from None


def with_namespace(values: Values, namespace: str | None, file: Path) -> Values:
    """The values with the namespace from the command line; unchanged if that is None.

    Raises:
        UsageError: the file names another namespace, or the name is not valid.
    """
    if namespace is None or namespace == values.namespace:
        return values
    if file.exists():
        raise UsageError(f"--namespace {namespace}", found=f"{file} says {values.namespace}", todo="change it there")
    if not re.fullmatch(_LABEL, namespace):
        raise UsageError(
            f"--namespace {namespace}",
            found="no namespace's name",
            wanted="at most 63 small letters, digits and hyphens",
        )
    return values.model_copy(update={"namespace": namespace})


def write_values(file: Path, namespace: str) -> list[Path]:
    """Write the file with comments if it does not exist; returns the files written.

    Raises:
        RenderError: the folder cannot be written.
    """
    if file.exists():
        return []
    text = files("tritonkit.operate.deploy").joinpath(FILE).read_text()
    try:
        file.write_text(text.replace("NAMESPACE", namespace))
    except OSError as error:
        raise unwritable(file.parent, error, RenderError) from error
    return [file]
