"""Settings for serving a model. Names are Triton's own (`model_config.proto`), times carry units."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec.base import InnerPath, Strict, Target
from tritonkit.repository.modelspec.document import located
from tritonkit.repository.modelspec.fields import BatchInput, BatchOutput, Fields, ModelOperations, SecondaryDevice
from tritonkit.repository.modelspec.language import Generation
from tritonkit.repository.modelspec.sequences import SequenceBatching
from tritonkit.repository.modelspec.units import Microseconds, NaturalInt, PositiveInt, QueueDelay

__all__ = [
    "Accelerator",
    "Cuda",
    "DynamicBatching",
    "Instances",
    "Optimization",
    "QueuePolicy",
    "RateLimiter",
    "Resource",
    "Serving",
    "TargetServing",
    "VersionPolicy",
    "WarmupInput",
    "WarmupSample",
]


class QueuePolicy(Strict):
    """Rules for requests that wait."""

    timeout_action: Literal["reject", "delay"] = "reject"
    default_timeout: Annotated[Microseconds, Field(serialization_alias="default_timeout_microseconds")] = 0
    """Longest wait in the queue; 0us for none."""
    allow_timeout_override: bool = False
    """Whether a request may bring a shorter timeout."""
    max_queue_size: NaturalInt = 0
    """Requests beyond this many waiting ones are rejected; 0 for no limit."""


class DynamicBatching(Strict):
    """Join single requests into batches on the server."""

    preferred_batch_size: tuple[PositiveInt, ...] = ()
    max_queue_delay: QueueDelay = 0
    preserve_ordering: bool = False
    priority_levels: NaturalInt = 0
    default_priority_level: NaturalInt = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[PositiveInt, QueuePolicy] = {}

    @model_validator(mode="after")
    def _priorities_agree(self) -> Self:
        levels = self.priority_levels
        if levels and not 1 <= self.default_priority_level <= levels:
            raise ValueError(f"default_priority_level is {self.default_priority_level}; wanted 1 to {levels}")
        if beyond := [level for level in self.priority_queue_policy if level > levels]:
            raise ValueError(f"priority_queue_policy names level {beyond[0]}; priority_levels is {levels}")
        return self

    @model_validator(mode="after")
    def _order_can_be_kept(self) -> Self:
        """Refuse combinations that Triton's ValidateModelConfig (core, src/model_config_utils.cc) refuses."""
        if not self.preserve_ordering:
            return self
        if self.priority_levels > 1:
            raise ValueError(f"preserve_ordering is on with {self.priority_levels} priority_levels; wanted at most 1")
        policies = [self.default_queue_policy, *self.priority_queue_policy.values()]
        if any(p and p.default_timeout and p.timeout_action == "delay" for p in policies):
            raise ValueError(
                "preserve_ordering is on and a queue policy delays requests; wanted timeout_action: reject"
            )
        return self


class Resource(Strict):
    """Units of a named resource that an instance holds while it runs."""

    name: str
    count: PositiveInt
    global_: Annotated[bool, Field(alias="global")] = False
    """Shared by all devices instead of one pool per device."""


class RateLimiter(Strict):
    """Limits on the instances that may run at the same time."""

    resources: tuple[Resource, ...] = ()
    priority: NaturalInt = 0


class Instances(Strict):
    """A group of equal instances of a model."""

    kind: Literal["auto", "cpu", "gpu", "model"] | None = None
    """Device of the instances; by default the build's target decides."""
    count: PositiveInt | None = None
    """Number of instances; by default as many as the cores allow for the thread count."""
    name: str = ""
    gpus: tuple[NaturalInt, ...] = ()
    secondary_devices: tuple[SecondaryDevice, ...] = ()
    profile: tuple[str, ...] = ()
    """TensorRT optimization profiles by name."""
    passive: bool = False
    host_policy: str | None = None
    rate_limiter: RateLimiter | None = None

    @model_validator(mode="after")
    def _gpus_belong_to_gpu(self) -> Self:
        if self.gpus and self.kind in ("cpu", "model"):
            raise ValueError(f"gpus are given for kind {self.kind}; wanted kind gpu, or no gpus")
        return self


class VersionPolicy(Strict):
    """The versions that are served, and thus those that the build keeps."""

    latest: PositiveInt | None = None
    all: Literal[True] | None = None
    specific: tuple[PositiveInt, ...] = ()

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if sum((self.latest is not None, bool(self.all), bool(self.specific))) != 1:
            raise ValueError("wanted exactly one of latest, all and specific")
        return self


class WarmupInput(Strict):
    """Data for one input of a warm-up request: zeros, random values, or a file of the model's folder."""

    data: Literal["zero", "random"] | None = None
    file: InnerPath | None = None
    dtype: DataType
    shape: tuple[NaturalInt, ...]

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.file is None):
            raise ValueError("wanted exactly one of data and file")
        return self


class WarmupSample(Strict):
    """A request that Triton sends to a model before it calls it ready."""

    name: str
    batch_size: NaturalInt = 1
    count: NaturalInt = 0
    """Number of times it is sent; Triton takes 0 as once."""
    inputs: dict[str, WarmupInput]


class Accelerator(Strict):
    """An execution accelerator inside a backend, such as TensorRT or OpenVINO in ONNX Runtime."""

    name: str
    parameters: dict[str, str] = {}


class GraphSpecInput(Strict):
    """Shape of one input for which a CUDA graph is captured."""

    dim: tuple[PositiveInt, ...]


class GraphLowerBound(Strict):
    """The smallest batch size and input shapes a captured CUDA graph may also serve."""

    batch_size: NaturalInt
    input: dict[str, GraphSpecInput] = {}


class GraphSpec(Strict):
    """A batch size and input shapes for which a CUDA graph is captured."""

    batch_size: NaturalInt
    input: dict[str, GraphSpecInput] = {}
    graph_lower_bound: GraphLowerBound | None = None


class Cuda(Strict):
    """CUDA settings of an instance."""

    graphs: bool = False
    busy_wait_events: bool = False
    output_copy_stream: bool = False
    graph_spec: tuple[GraphSpec, ...] = ()


class Optimization(Strict):
    """`optimization` of Triton's configuration."""

    graph_level: Literal[-1, 0, 1, 2] | None = None
    """ONNX Runtime: -1 basic, 1 extended, 2 off, 0 or unset all."""
    priority: Literal["default", "max", "min"] = "default"
    cuda: Cuda | None = None
    cpu_execution_accelerator: tuple[Accelerator, ...] = ()
    gpu_execution_accelerator: tuple[Accelerator, ...] = ()
    input_pinned_memory: bool | None = None
    output_pinned_memory: bool | None = None
    gather_kernel_buffer_threshold: NaturalInt = 0
    eager_batching: bool = False


class TargetServing(Fields):
    """Settings for serving one Triton model on one target; each replaces the setting of the same name for all."""

    variant: str = "onnx-fp32"
    """The form of the network that is published; `auto`: the fastest that passes the gate."""
    max_batch_size: NaturalInt | None = None
    """Largest batch; 0 for a model without a batch axis."""
    max_batch_tokens: PositiveInt | None = None
    """Most positions of a run, which are its rows times its longest row, the padding with them. For networks with
    `free_axes.AXIS.pad`; max_batch_size still bounds the rows."""
    independent_items: bool = False
    """Declares that each item of a batch gets the answer it would get alone; otherwise the build proves this before it
    switches batching on."""
    dynamic_batching: DynamicBatching | Literal[False] | None = None
    """On by default for a model that batches and keeps no sequences; false turns it off."""
    sequence_batching: SequenceBatching | None = None
    instance_group: tuple[Instances, ...] = ()
    threads: PositiveInt | None = None
    """Threads of one instance; instances x threads never exceeds the cores."""
    version_policy: VersionPolicy = VersionPolicy(latest=1)
    response_cache: bool = False
    model_warmup: Literal["auto", "off"] | tuple[WarmupSample, ...] = "auto"
    """auto: batch 1 and every preferred batch size, at every warm size of a free axis."""
    optimization: Optimization = Optimization()
    decoupled: bool = False
    """`model_transaction_policy`: a request may get any number of responses."""
    generation: Generation = Generation()
    """Settings of a language model (network.llm)."""
    idempotent: bool = False
    """Whether a request may run twice because the model changes nothing. Clients then send it again even if a lost
    server may have begun with it, and may hedge it."""
    batch_input: tuple[BatchInput, ...] = ()
    batch_output: tuple[BatchOutput, ...] = ()
    default_model_filename: str = ""
    """The file of the version folder that the backend opens; the backend chooses if unset."""
    cc_model_filenames: dict[str, str] = {}
    """The file of the version folder for GPUs of each CUDA compute capability (8.6)."""
    model_operations: ModelOperations = ModelOperations()
    parameters: dict[str, str] = {}

    @model_validator(mode="after")
    def _idempotent_without_state(self) -> Self:
        if self.idempotent and self.sequence_batching is not None:
            raise ValueError(
                "idempotent is on with sequence_batching: a model with state cannot run a request twice;"
                " wanted one of them"
            )
        return self

    @model_validator(mode="after")
    def _batching_agrees(self) -> Self:
        dynamic = self.dynamic_batching
        if dynamic and self.sequence_batching is not None:
            raise ValueError("both dynamic_batching and sequence_batching are given; wanted one")
        if dynamic and self.max_batch_size == 0:
            raise ValueError("dynamic_batching needs a max_batch_size above 0")
        oldest = self.sequence_batching.oldest if self.sequence_batching else None
        batching = dynamic or oldest
        largest = max((batching.preferred_batch_size if batching else ()), default=0)
        if self.max_batch_size is not None and largest > self.max_batch_size:
            raise ValueError(f"preferred_batch_size has {largest}; max_batch_size is {self.max_batch_size}")
        return self

    @model_validator(mode="after")
    def _cache_can_work(self) -> Self:
        """Refuse combinations that Triton's ValidateModelConfig (core, src/model_config_utils.cc) refuses."""
        if self.response_cache and self.decoupled:
            raise ValueError("response_cache is on for a decoupled model, which Triton refuses; wanted one of them")
        if self.response_cache and self.sequence_batching is not None:
            raise ValueError("response_cache is on with sequence_batching, which Triton refuses; wanted one of them")
        return self


class Serving(TargetServing):
    """Settings for serving one Triton model. Unset fields are chosen from the artifact and the cores."""

    targets: dict[Target, TargetServing] = {}
    """Settings that hold for one target of a build only: each replaces the whole setting of the same name above."""

    @model_validator(mode="after")
    def _hold_on_targets(self) -> Self:
        for target in self.targets:
            try:
                self.on(target)
            except ValidationError as error:
                raise located(error, ("targets", target)) from None
        return self

    def own(self, target: Target) -> TargetServing:
        """The settings that hold on a target only."""
        return self.targets.get(target, TargetServing())

    def on(self, target: Target) -> Serving:
        """The settings that hold on a target, without those of other targets."""
        own = self.own(target)
        return Serving.model_validate({**_given(self), **_given(own), "targets": {}}) if self.targets else self


def _given(settings: TargetServing) -> dict[str, Any]:
    """The settings that are written, as they were read."""
    return {name: getattr(settings, name) for name in settings.model_fields_set}
