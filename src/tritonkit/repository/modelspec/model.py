"""`model.yaml` as a value."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from tritonkit.releases import to_release
from tritonkit.repository.modelspec.base import Hook, ModelName, Strict, Target
from tritonkit.repository.modelspec.entries import Example, PipelineEntry, PipelineMap, PipelineStep
from tritonkit.repository.modelspec.fields import Ensemble
from tritonkit.repository.modelspec.graph import check_pipeline
from tritonkit.repository.modelspec.network import Network
from tritonkit.repository.modelspec.optimize import Optimize
from tritonkit.repository.modelspec.python import OwnPackages
from tritonkit.repository.modelspec.quality import Quality, SampleFiles, Tolerance, ready_metric
from tritonkit.repository.modelspec.serving import Serving

__all__ = ["ModelFile"]


def _release(value: object) -> str:
    """Refuse a number, because YAML reads 25.10 as 25.1, which is another release."""
    if not isinstance(value, str):
        raise ValueError(f"found {value}; wanted a release in quotes, such as '24.10'")
    to_release(value)
    return value


TritonRelease = Annotated[str, BeforeValidator(_release)]


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
