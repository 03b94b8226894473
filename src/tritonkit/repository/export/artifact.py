"""An artifact: the files of one variant of a network, with its inputs and outputs and its measured quality."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec import Spec, Tensor
from tritonkit.repository.modelspec.language import LANGUAGE_INPUTS, LANGUAGE_OUTPUTS

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "Artifact",
    "GivenInput",
    "Independence",
    "MeasuredQuality",
    "Signature",
    "StartNeeds",
    "TensorInfo",
    "below",
    "seal",
    "sha256_file",
    "sha256_json",
    "unseal",
    "worsening",
]

_SEAL = "sha256"


@dataclass(frozen=True)
class TensorInfo:
    """One input or output: `shape` is without the batch axis, -1 where the size is free.

    `axes` names the free sizes, position by position; "" where a size is fixed or has no name.
    """

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    axes: tuple[str, ...] = ()
    optional: bool = False
    """Whether a request may leave this input out."""

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> TensorInfo:
        """The description of a tensor that a spec declares."""
        axes = tuple(size if isinstance(size, str) else "" for size in tensor.shape)
        return cls(name, tensor.dtype, tensor.dims, axes, tensor.optional)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """`axes` with an entry for each position, even if no axis has a name."""
        return self.axes or ("",) * len(self.shape)


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a network, read from the artifact or declared by the spec."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    batched: bool
    """Whether axis 0 of every tensor is the batch, and free."""
    single: bool = False
    """Whether every tensor of the file has an axis of size 1 in front that requests leave out: one item at a time."""

    @classmethod
    def declared(cls, spec: Spec) -> Signature:
        """The signature that `network.inputs` and `network.outputs` of a spec declare."""
        network = spec.model.network
        if network.llm:
            inputs = tuple(TensorInfo(*tensor, optional=True) for tensor in LANGUAGE_INPUTS)
            return cls(inputs, tuple(TensorInfo(*tensor) for tensor in LANGUAGE_OUTPUTS), False)
        inputs = tuple(TensorInfo.of(*item) for item in network.inputs.items())
        outputs = tuple(TensorInfo.of(*item) for item in network.outputs.items())
        return cls(inputs, outputs, spec.model.serving.max_batch_size != 0)


def below(reference: float, value: float) -> float:
    """The drop from a reference to a value, rounded so that 1 - 0.99 is 0.01 and not more."""
    return round(reference - value, 9)


def worsening(reference: float, value: float, less_is_better: bool = False) -> float:
    """The distance by which a metric's value is worse than a reference."""
    return below(value, reference) if less_is_better else below(reference, value)


@dataclass(frozen=True)
class MeasuredQuality:
    """Quality of an artifact compared with its reference, on `samples` items."""

    metric: str
    value: float
    reference: float
    max_difference: float
    """Largest absolute difference between an output element and the reference's."""
    samples: int
    drop_low: float | None = None
    """Lower end of the 95 % interval of the metric's drop; None where the metric gives one number."""
    drop_high: float | None = None
    also: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The spec's further metrics: value and reference."""
    differences: dict[str, int] = field(default_factory=dict)
    """Output elements by absolute difference: upper edge of each power of ten -> count."""
    against: str = ""
    """Source of the reference: PyTorch, the teacher, ONNX Runtime without optimizations."""
    parts: dict[str, float] = field(default_factory=dict)
    """R2 of each output, or of each group of its columns, in a spec without a metric; the lowest is `value`."""
    edges: str = ""
    """A sentence on values at the edge of a decision, which were replaced by the reference's; else empty."""
    less_is_better: tuple[str, ...] = ()
    """Names of those metrics of which less is better: they count errors."""

    @property
    def worst(self) -> str:
        """The output, or group of its columns, with the lowest R2; empty if the spec has its own metric."""
        return min(self.parts, key=lambda label: self.parts[label], default="")

    @property
    def rank(self) -> float:
        """The metric, turned around where less is better."""
        return -self.value if self.metric in self.less_is_better else self.value

    @property
    def drop(self) -> float:
        """The distance by which the metric is worse than the reference's."""
        return worsening(self.reference, self.value, self.metric in self.less_is_better)


@dataclass(frozen=True)
class GivenInput:
    """An input of one item: its shape without the batch axis, and its bytes in base64."""

    shape: tuple[int, ...]
    data: str


@dataclass(frozen=True)
class StartNeeds:
    """Time and memory that one item of the largest warm size took in the process that built.

    Args:
        memory_bytes: largest growth of the process; 0 where the kernel does not report it.
        processor_s: seconds of all cores together.
        refuses_zeros: whether the network cannot be run on zeros.
        given: an item to warm up with in place of zeros.
    """

    memory_bytes: int
    processor_s: float
    refuses_zeros: bool = False
    given: dict[str, GivenInput] = field(default_factory=dict)


@dataclass(frozen=True)
class Independence:
    """Whether items get the same answers in a batch as alone, with the evidence.

    `proven` was tried, and `declared` comes from the spec. A `coupled` network computes an item's answer from other
    items too. A `random` one answers the same item differently each time. An `unknown` one could not be tried, and a
    `fixed` one has no free axis for a batch.
    """

    state: Literal["proven", "declared", "coupled", "random", "unknown", "fixed"]
    seen: str = ""
    """A sentence without its full stop: the evidence."""

    @property
    def holds(self) -> bool:
        """Whether requests may share a batch."""
        return self.state in ("proven", "declared")


@dataclass(frozen=True)
class Artifact:
    """One built variant, stored in `folder`; `files` maps each name there to its sha256."""

    model: str
    variant: str
    folder: Path
    files: dict[str, str]
    signature: Signature
    quality: MeasuredQuality | None
    """None for a model.py that is served as it is."""
    source_hash: str
    """Hash of all inputs: spec, code, weights, tools."""
    tools: dict[str, str]
    notes: tuple[str, ...] = ()
    """Remarks for people on how it was made, such as layers that stayed FP32."""
    start: StartNeeds | None = None
    """None for a variant that was not run."""
    independence: Independence | None = None
    """Verdict on the items of a batch; None if nothing was tried, as with max_batch_size 0."""
    number_format: str = ""
    """Number format of a user's ONNX file if it is not FP32, such as `INT8 (QDQ)`; also for that file in another
    engine."""

    @property
    def label(self) -> str:
        """The variant's name for people, such as `onnx-fp32 (the file: INT8 (QDQ))` for a file that is not FP32."""
        return f"{self.variant} (the file: {self.number_format})" if self.number_format else self.variant

    @property
    def form(self) -> str:
        """The variant's name without a transform in front: `onnx-int8` of `pruned+onnx-int8`."""
        return self.variant.rpartition("+")[2]

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum((self.folder / name).stat().st_size for name in self.files)

    def to_json(self) -> str:
        """JSON of all facts but the folder, which the reader knows."""
        facts = asdict(self)
        del facts["folder"]
        return seal(facts)

    @classmethod
    def from_json(cls, text: str, folder: Path) -> Artifact:
        """The artifact that `to_json` wrote; ValueError if the text was changed."""
        facts = unseal(text)
        if invalid := [n for n in facts["files"] if n in ("", ".", "..") or "/" in n or "\0" in n]:
            raise ValueError(f"{invalid[0]!r} is not a file of the artifact's folder")
        return _reader().validate_python({**facts, "folder": folder})


@cache
def _reader() -> TypeAdapter[Artifact]:
    from pydantic import TypeAdapter

    return TypeAdapter(Artifact)


def seal(facts: dict[str, Any]) -> str:
    """JSON with the hash of its content."""
    return json.dumps({**facts, _SEAL: sha256_json(facts)}, indent=1, sort_keys=True) + "\n"


def unseal(text: str) -> dict[str, Any]:
    """The facts that `seal` wrote; ValueError if a byte has changed."""
    facts = json.loads(text)
    if not isinstance(facts, dict) or facts.pop(_SEAL, None) != sha256_json(facts):
        raise ValueError("its content is not what its hash says")
    return facts


def sha256_json(facts: dict[str, Any]) -> str:
    """Hexadecimal SHA-256 of facts as JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
