"""`model.yaml` as a value."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from tritonkit.releases import to_release
from tritonkit.repository.modelspec.base import (
    MAX_SIZE,
    FileReference,
    Hook,
    InnerPath,
    ModelName,
    Strict,
    Target,
    Tensor,
)
from tritonkit.repository.modelspec.fields import Ensemble
from tritonkit.repository.modelspec.graph import check_pipeline
from tritonkit.repository.modelspec.items import Items, PipelineMap
from tritonkit.repository.modelspec.language import LanguageModel
from tritonkit.repository.modelspec.optimize import Optimize
from tritonkit.repository.modelspec.python import OwnPackages
from tritonkit.repository.modelspec.quality import Quality, SampleFiles, Tolerance, ready_metric
from tritonkit.repository.modelspec.serving import Serving

__all__ = ["Example", "FreeAxis", "ModelFile", "Network", "PipelineModel", "PipelineNetwork", "PipelineStep"]

Scalar = bool | int | float | str


def _release(value: object) -> str:
    """Refuse a number, because YAML reads 25.10 as 25.1, which is another release."""
    if not isinstance(value, str):
        raise ValueError(f"found {value}; wanted a release in quotes, such as '24.10'")
    to_release(value)
    return value


TritonRelease = Annotated[str, BeforeValidator(_release)]


class FreeAxis(Strict):
    """Sizes that a free axis may take."""

    min: Annotated[int, Field(ge=1, le=MAX_SIZE, strict=True)] = 1
    max: Annotated[int, Field(ge=2, le=MAX_SIZE, strict=True)]
    multiple_of: Annotated[int, Field(ge=1, le=MAX_SIZE, strict=True)] = 1
    """A number that divides every size, for networks that halve an image several times; min defaults to it."""
    warm: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Sizes that warm-up covers; by default min and max."""
    pad: dict[str, int | float] = {}
    """Values that fill up inputs with this axis, by input. Requests of different sizes then share a batch as long as
    its longest request, and outputs with this axis are cut back. For targets cpu and gpu."""

    @model_validator(mode="before")
    @classmethod
    def _smallest_multiple(cls, given: Any) -> Any:
        if isinstance(given, dict) and "multiple_of" in given and "min" not in given:
            return {**given, "min": given["multiple_of"]}
        return given

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name, size in (("min", self.min), ("max", self.max), *(("warm", w) for w in self.warm)):
            if size % self.multiple_of:
                raise ValueError(f"{name} has {size}; wanted a multiple of {self.multiple_of}")
        if self.min >= self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; wanted min below max")
        if outside := [size for size in self.warm if not self.min <= size <= self.max]:
            raise ValueError(f"warm has {outside[0]}; wanted {self.min} to {self.max}")
        return self

    def at_least(self, size: int) -> int:
        """The smallest allowed size that is not below a given one, at most `max`."""
        return min(self.max, max(self.min, -(-size // self.multiple_of) * self.multiple_of))

    def at_most(self, size: int) -> int:
        """The largest allowed size that is not above a given one, at least `min`."""
        return max(self.min, min(self.max, size // self.multiple_of * self.multiple_of))


_SOURCES = ("torch", "onnx", "python", "llm", "file", "folder")


class Network(Strict):
    """The source of the network: exactly one of torch, onnx, python, llm, file and folder."""

    torch: Hook | None = None
    """Function without arguments that returns a torch.nn.Module."""
    train: Hook | None = None
    """Function that takes the module and trains it in place; the build seeds every generator."""
    weights: FileReference | None = None
    """A .safetensors file, or a checkpoint read with weights_only."""
    onnx: FileReference | None = None
    """An existing ONNX file."""
    python: InnerPath | None = None
    """A model.py for Triton's Python backend, served unchanged."""
    files: tuple[FileReference, ...] = ()
    """More files for the version folder of a python model."""
    calls: tuple[ModelName, ...] | None = None
    """Models that a python model calls while it answers (BLS). They are loaded before it, and with it."""
    llm: LanguageModel | None = None
    """A causal language model; its inputs and outputs are always the same (docs/llm.md)."""
    file: FileReference | None = None
    """A network in another format, served as it is: TorchScript (.pt), torch.export (.pt2), OpenVINO (.xml next to its
    .bin), TensorRT (.plan)."""
    backend: Literal["openvino", "python", "pytorch", "tensorrt"] | None = None
    """The backend that serves `file`; needed only where neither its name nor its content tells."""
    folder: InnerPath | None = None
    """A folder with one model in Triton's layout (config.pbtxt, and a version's files in 1/), served as it is."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    free_axes: dict[str, FreeAxis] = {}
    """Axes named in a shape, with the sizes they may take."""
    fill: dict[str, bool | int | float] = {}
    """Inputs of an ONNX file that callers do not send, with the value that fills each, such as token_type_ids: 0."""
    opset: Annotated[int, Field(ge=17, le=23)] = 18

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [key for key in _SOURCES if getattr(self, key) is not None]
        if len(sources) != 1:
            named = f"{', '.join(_SOURCES[:-1])} and {_SOURCES[-1]}"
            raise ValueError(f"found {' and '.join(sources) or 'none'} of {named}; wanted one")
        if self.llm and (self.inputs or self.outputs or self.free_axes):
            raise ValueError("inputs, outputs and free_axes are given; wanted none of them for llm")
        if (self.train or self.weights) and not self.torch:
            raise ValueError("train and weights belong to torch")
        if self.fill and not self.onnx:
            raise ValueError("fill belongs to onnx; wanted the input left out of inputs")
        if both := sorted(set(self.fill) & set(self.inputs)):
            raise ValueError(f"fill and inputs both have {both[0]}; wanted it in one of them")
        if self.train and self.weights:
            raise ValueError("both train and weights are given; wanted one")
        if self.folder and (self.inputs or self.outputs or self.free_axes):
            raise ValueError(
                "inputs, outputs and free_axes are given; wanted none of them for folder: its config.pbtxt"
            )
        if self.backend and not self.file:
            raise ValueError("backend belongs to file")
        if sources[0] in ("torch", "python") and not self.inputs:
            raise ValueError(f"{sources[0]} needs inputs: names, dtypes and shapes")
        if self.calls is not None and not self.python:
            raise ValueError("calls belongs to python: no other network calls models")
        if self.python and not self.outputs:
            raise ValueError("python needs outputs: names, dtypes and shapes")
        if self.torch and not self.outputs:
            raise ValueError("torch needs outputs: names in the order the module returns them")
        if names := [name for name, tensor in self.outputs.items() if tensor.optional]:
            raise ValueError(f"output {names[0]} is optional; only inputs can be optional")
        names = [name for name, tensor in self.inputs.items() if tensor.optional]
        if names and not self.python:
            raise ValueError(
                f"input {names[0]} is optional; wanted that for a python network alone: the graph of"
                f" {sources[0]} needs all its inputs"
            )
        return self._axes_known()

    def _axes_known(self) -> Self:
        for name, tensor in self.inputs.items():
            for axis in tensor.shape:
                if isinstance(axis, str) and axis not in self.free_axes:
                    raise ValueError(f"input {name} has the axis {axis!r}; wanted it under free_axes")
                if axis == -1 and self.torch:
                    raise ValueError(f"input {name} has an axis -1; wanted a name described under free_axes")
        for axis in self.free_axes if self.torch else ():
            if not axis.isidentifier() or axis == "batch":
                raise ValueError(f"free_axes has the name {axis!r}; wanted letters, digits and _, and not `batch`")
        return self._padding_known()

    def _padding_known(self) -> Self:
        padded = [axis for axis, free in self.free_axes.items() if free.pad]
        if len(padded) > 1:
            raise ValueError(f"free_axes has pad for {' and '.join(padded)}; wanted one axis")
        if padded and self.python:
            raise ValueError("free_axes has pad; a python network forms its batches itself")
        for axis in padded if self.torch else ():
            having = [name for name, tensor in self.inputs.items() if axis in tensor.shape]
            if set(self.free_axes[axis].pad) != set(having):
                raise ValueError(
                    f"free_axes.{axis}.pad has {sorted(self.free_axes[axis].pad)}; wanted all inputs with that"
                    f" axis: {sorted(having)}"
                )
        return self


class PipelineStep(Strict):
    """A pre- or post-processing step around the network."""

    step: str
    """Name of a folder of python_backends/steps/, or of steps/ in the model's folder."""
    name: ModelName | None = None
    """Suffix of the Triton model's name; the step's name by default."""
    parameters: dict[str, Scalar | list[Scalar] | FileReference] = {}
    inputs: dict[str, str] = {}
    """Step input -> pipeline tensor, where the names differ."""
    outputs: dict[str, str] = {}
    """Step output -> pipeline tensor, where the names differ."""
    calls: tuple[ModelName, ...] | None = None
    """Models that the step's Python calls while it answers (BLS). They are loaded before it, and with it."""
    python: OwnPackages | None = None
    """Packages of a step of one's own, in place of those of its step.yaml."""
    serving: Serving = Serving()

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name or self.step

    def on(self, target: Target) -> PipelineStep:
        """The step with the settings that hold on a target."""
        return self.model_copy(update={"serving": self.serving.on(target)})


class Example(Strict):
    """One item of a text or file input."""

    text: str | None = None
    file: FileReference | None = None
    more: tuple[str, ...] = ()
    """Further items of the same kind, texts or files, with which the build tries your own steps in batches."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("wanted exactly one of text and file")
        return self


class PipelineNetwork(Strict):
    """A network of a pipeline in addition to `network`. It is built, judged and tuned as the spec SPEC_NAME."""

    name: ModelName
    network: Network
    inputs: dict[str, str] = {}
    """Network input -> pipeline tensor, where the names differ."""
    outputs: dict[str, str] = {}
    """Network output -> pipeline tensor, where the names differ."""
    python: OwnPackages | None = None
    """Packages of `network.python`."""
    quality: Quality = Quality()
    optimize: Optimize = Optimize()
    serving: Serving = Serving()
    example: dict[str, Example] = {}
    """Real data for the network's BYTES inputs."""

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name


class PipelineModel(Strict):
    """The model of another spec of the project, as its callers see it: its pipeline belongs to it."""

    model: ModelName
    """The name of the spec."""
    name: ModelName | None = None
    """The entry's name, where a pipeline has one model twice; the model's name by default."""
    inputs: dict[str, str] = {}
    """Input of the model -> pipeline tensor, where the names differ."""
    outputs: dict[str, str] = {}
    """Output of the model -> pipeline tensor, where the names differ."""

    @property
    def key(self) -> str:
        """The entry's name in its pipeline."""
        return self.name or self.model


def _kind(given: object) -> str:
    """The kind of an entry by the key that it has, so that an error is about the kind that was meant."""
    if isinstance(given, str):
        return "the word network"
    keys = given if isinstance(given, dict) else type(given).model_fields if isinstance(given, Strict) else {}
    return next((f"a {kind}" for kind in ("network", "map", "model") if kind in keys), "a step")


def _of_one_kind(given: object) -> object:
    """Refuse an entry that is of no kind, or of several."""
    keys = [key for key in _KINDS if key in given] if isinstance(given, dict) else []
    if len(keys) > 1:
        raise ValueError(f"found {' and '.join(keys)} in one entry; wanted one of them")
    if not (keys or given == "network" or isinstance(given, dict | Strict)):
        raise ValueError(f"found {given!r}; wanted `network`, or a mapping with one of {', '.join(_KINDS)}")
    return given


_KINDS = ("step", "network", "map", "model")
PipelineEntry = Annotated[
    Annotated[Literal["network"], Tag("the word network")]
    | Annotated[PipelineStep, Tag("a step")]
    | Annotated[PipelineNetwork, Tag("a network")]
    | Annotated[PipelineMap, Tag("a map")]
    | Annotated[PipelineModel, Tag("a model")],
    Discriminator(_kind),
    BeforeValidator(_of_one_kind),
]
Items.model_rebuild()
PipelineMap.model_rebuild()


class ModelFile(Strict):
    """The whole of `model.yaml`."""

    name: ModelName
    """The name that clients call and that the folder has."""
    description: str = ""
    default: bool = True
    """Whether it is built when no model is named."""
    network: Network = Field(default_factory=Network.model_construct)
    """The network; left out where the pipeline has networks of its own alone."""
    python: OwnPackages | None = None
    """Packages of `network.python`; a step has its own."""
    quality: Quality = Quality()
    optimize: Optimize = Optimize()
    serving: Serving = Serving()
    pipeline: tuple[PipelineEntry, ...] = ()
    """Steps, networks and models in order, each after those whose tensors it takes, with `network` in its place;
    without a pipeline, only the network is served."""
    ensemble: Ensemble = Ensemble()
    """Additional settings of a pipeline's ensemble; the parts have their own `serving`."""
    triton: TritonRelease = "24.10"
    """Oldest release of Triton that is to serve it, numbered as NVIDIA numbers its containers, in quotes; later fields
    are refused. The embedded server and tritonkit's images are 24.10."""
    example: dict[str, Example] = {}
    """Real data for BYTES inputs, used to warm up steps."""

    def on(self, target: Target) -> ModelFile:
        """The same with the settings that hold on a target."""
        pipeline = tuple(
            part.on(target) if isinstance(part, PipelineStep | PipelineMap) else part for part in self.pipeline
        )
        return self.model_copy(update={"serving": self.serving.on(target), "pipeline": pipeline})

    def places_on(self, target: Target) -> dict[str, str]:
        """The places of settings that a target has of its own: `serving.threads` -> `serving.targets.gpu.threads`."""
        parts = enumerate(self.pipeline)
        steps = {
            f"pipeline.{n}.serving": part.serving for n, part in parts if isinstance(part, PipelineStep | PipelineMap)
        }
        return {
            f"{section}.{name}": f"{section}.targets.{target}.{name}"
            for section, serving in {"serving": self.serving, **steps}.items()
            for name in serving.own(target).model_fields_set
        }

    @property
    def has_network(self) -> bool:
        """Whether the spec has a network itself; else its pipeline consists of other networks and models."""
        return not self.pipeline or "network" in self.pipeline

    @property
    def hooks(self) -> dict[str, Hook]:
        """The functions of the folder that a build calls: field of `model.yaml` -> module:function."""
        network, quality, optimize = self.network, self.quality, self.optimize
        teacher = optimize.teacher
        hooks = {
            "network.torch": network.torch,
            "network.train": network.train,
            "network.llm.train": network.llm.train if network.llm else None,
            "quality.samples": quality.samples,
            **{field: metric for field, metric in quality.metrics.items() if ready_metric(metric) is None},
            "optimize.calibration": optimize.calibration,
            "optimize.training": optimize.training,
            "optimize.student": optimize.student,
            "optimize.teacher.torch": teacher.torch if teacher else None,
            "optimize.teacher.train": teacher.train if teacher else None,
        }
        return {field: hook for field, hook in hooks.items() if isinstance(hook, str)}

    @property
    def sample_files(self) -> dict[str, SampleFiles]:
        """The data in files that a build reads, by their fields of model.yaml."""
        given = {"quality.samples": self.quality.samples, "optimize.calibration": self.optimize.calibration}
        return {field: files for field, files in given.items() if isinstance(files, SampleFiles)}

    @model_validator(mode="after")
    def _python_is_own(self) -> Self:
        if self.python and not self.network.python:
            raise ValueError(
                "python has requirements, and network is no Python; wanted them for a step, in its step.yaml"
            )
        if self.python and self.serving.default_model_filename:
            raise ValueError("serving.default_model_filename is given; wanted none next to python.requirements")
        return self

    @model_validator(mode="after")
    def _calls_others(self) -> Self:
        steps = [part for part in self.pipeline if isinstance(part, PipelineStep)]
        for calls in (self.network.calls, *(part.calls for part in steps)):
            if calls and self.name in calls:
                raise ValueError(f"calls has {self.name!r}, the model itself; wanted other models")
        return self

    @model_validator(mode="after")
    def _as_it_is(self) -> Self:
        """Refuse settings that a network which is served as it is does not have."""
        network, quality = self.network, self.quality
        if network.file is None and network.folder is None:
            return self
        source = "file" if network.folder is None else "folder"
        if self.optimize != Optimize() or "variant" in self.serving.model_fields_set:
            raise ValueError(
                f"optimize or serving.variant is given; wanted neither: network.{source} is served as it is"
            )
        input_alone = {"samples": None, "max_samples": None, "tolerance": Tolerance()}
        if quality.model_copy(update=input_alone) != Quality():
            raise ValueError(f"quality has more than samples; wanted samples alone: network.{source} has no variants")
        if network.folder is not None and (self.serving != Serving() or self.pipeline or quality.samples):
            raise ValueError(
                "serving, pipeline or quality is given; wanted none of them for network.folder: its config.pbtxt says"
                " how it is served"
            )
        return self

    @model_validator(mode="after")
    def _pipeline_fits(self) -> Self:
        check_pipeline(self)
        if not self.pipeline and self.ensemble != Ensemble():
            raise ValueError("ensemble is given without a pipeline; wanted it under serving")
        if self.network.llm and (self.quality.metric or self.quality.also):
            raise ValueError("quality has a metric; wanted none for llm: it is the log-likelihood of a token")
        return self
