"""`tensorrt-fp32`, `tensorrt-fp16`, `tensorrt-int8`, `tensorrt-fp8`: serialized plans.

With a GPU, `tensorrt` builds the plan, which is measured and served by Triton's tensorrt backend. Without a GPU, the
same converter runs with `tensorrt_rtx`. This checks that the network parses and that its profiles hold. The plan, for
TensorRT-RTX's own runtime, is kept in the cache and never served. `tensorrt_container.py` builds plans by docker.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.gpu import find_capability
from tritonkit.repository.optimize.variants.tensorrt_build import build_plan
from tritonkit.repository.optimize.variants.tensorrt_library import FP8_CAPABILITY, Library, choose_library
from tritonkit.repository.optimize.variants.tensorrt_onnx import PRECISIONS, typed_network
from tritonkit.repository.optimize.variants.tensorrt_profiles import profiles

if TYPE_CHECKING:
    from tritonkit.repository.export.artifact import Signature
    from tritonkit.repository.optimize.job import Job

__all__ = ["NETWORK", "PLAN", "RECORD", "make_fp8", "make_fp16", "make_fp32", "make_int8", "trtexec_command"]

PLAN = "model.plan"
RECORD = "plan.json"
"""The file next to a plan that says which TensorRT and which GPU it is for (`serve/core/plans.py` reads it)."""
NETWORK = "network.onnx"
_VARIANTS = tuple(f"tensorrt-{precision}" for precision in PRECISIONS)


def _make(job: Job, folder: Path, precision: str) -> tuple[str, ...]:
    """Write the plan, and plan.json with the machines it is for.

    Without a GPU, also write network.onnx, from which the real plan can be built elsewhere. For FP32 that is the
    model.onnx of onnx-fp32.
    """
    library = choose_library()
    if precision == "fp8":
        library = replace(library, oldest=FP8_CAPABILITY)
    spec, signature = job.spec, replace(job.signature, single=job.one_by_one)
    ranges = profiles(spec, signature)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        file = Path(scratch if library.gpu else folder) / NETWORK
        typed, notes = typed_network(job, precision, file, thorough=library.gpu is not None)
        job.say(f"building with {library.name}")
        # Next to the model's artifacts, so that later builds find it.
        timing = folder.parent / f"timing-{library.name.replace(' ', '-')}.cache"
        data, facts = build_plan(spec, library, typed, ranges, timing)
    with (folder / library.file).open("wb") as stream:
        stream.write(data)
    record = {"library": library.name, "precision": precision, **facts}
    if library.gpu:
        record |= {"tensorrt_version": library.module.__version__, "gpu": library.gpu}
        record["compute_capability"] = find_capability()
    record["tensorrt"] = spec.model.optimize.tensorrt.model_dump(mode="json")
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    return (*_notes(spec, library, record), *notes)


def make_fp32(job: Job, folder: Path) -> tuple[str, ...]:
    """A plan of the network as it is."""
    return _make(job, folder, "fp32")


def make_fp16(job: Job, folder: Path) -> tuple[str, ...]:
    """A plan in half precision, with FP32 inputs and outputs."""
    return _make(job, folder, "fp16")


def make_int8(job: Job, folder: Path) -> tuple[str, ...]:
    """A plan with layers in INT8 and ranges from `optimize.calibration`."""
    return _make(job, folder, "int8")


def make_fp8(job: Job, folder: Path) -> tuple[str, ...]:
    """A plan with layers in FP8 by Model Optimizer, with ranges from `optimize.calibration`."""
    return _make(job, folder, "fp8")


def _notes(spec: Spec, library: Library, record: dict[str, Any]) -> tuple[str, ...]:
    count, settings = len(record["profiles"]), spec.model.optimize.tensorrt
    about = f"{count} optimization profile{'' if count == 1 else 's'}" if count else "fixed shapes"
    if library.gpu:
        built = f"built by {library.name} on {library.gpu}: {about}"
        if not settings.version_compatible:
            return (built,)
        flag = "--backend-config=tensorrt,version-compatible=true"
        return built, f"Triton loads it with {flag} only"
    left_out = ["version_compatible"] if settings.version_compatible else []
    left_out += ["hardware_compatibility"] if settings.hardware_compatibility != "none" else []
    return (
        f"no GPU here: {library.file} was built by {library.name} for compute capabilities"
        f" {', '.join(record['compute_capabilities'])}, {about}; it is kept in the cache and not served",
        "for a plan that Triton serves, on the GPU machine: pip install tensorrt && tritonkit build"
        f" {spec.name} --variants tensorrt-{record['precision']} --target nvidia, or with docker: --in-container",
        *((f"{' and '.join(left_out)}: left to that build",) if left_out else ()),
    )


def trtexec_command(
    spec: Spec, signature: Signature, variant: str, onnx: Path, plan: Path = Path("model.plan")
) -> list[str]:
    """The `trtexec` command line, as a list of arguments, that builds the variant's plan from its
    typed ONNX file: network.onnx of a build without a GPU; for tensorrt-fp32, onnx-fp32's model.onnx.

    Sizes of the memory limit are in bytes ("B"; trtexec's samples/common/sampleOptions.cpp).
    """
    if variant not in _VARIANTS:
        raise BuildError(f"variant {variant!r}", found="it is not a TensorRT plan", wanted=", ".join(_VARIANTS))
    settings = spec.model.optimize.tensorrt
    command = ["trtexec", f"--onnx={onnx}", f"--saveEngine={plan}", "--stronglyTyped"]
    for place, profile in enumerate(profiles(spec, signature)):
        command.append(f"--profile={place}")
        for key in ("min", "opt", "max"):
            shapes = ",".join(f"{name}:{'x'.join(map(str, getattr(shape, key)))}" for name, shape in profile.items())
            command.append(f"--{key}Shapes={shapes}")
    if settings.memory_limit is not None:
        command.append(f"--memPoolSize=workspace:{settings.memory_limit}B")
    if settings.hardware_compatibility != "none":
        level = {"ampere_plus": "ampere+", "same_compute_capability": "sameComputeCapability"}
        command.append(f"--hardwareCompatibilityLevel={level[settings.hardware_compatibility]}")
    if settings.version_compatible:
        command.append("--versionCompatible")
    return [*command, "--timingCacheFile=timing.cache", "--skipInference"]
