"""Judge variants for target gpu on the GPU itself, by the library and the options that will serve them.

The files are those of target cpu: they are made, and compared with the reference, on the CPU first. The figures of the
GPU lie next to them, in a record that counts for one GPU, driver and version of ONNX Runtime.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.repository.export.artifact import Artifact, Independence, seal, unseal
from tritonkit.repository.export.batching import hold_to_demand, hold_to_padding
from tritonkit.repository.export.coupling import judge_neighbors
from tritonkit.repository.export.number_format import is_quantized
from tritonkit.repository.export.padded import judge_padded, padding_of
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.cuda_options import cuda_options, session_entries, takes_graphs
from tritonkit.repository.optimize.fingerprint import digest
from tritonkit.repository.optimize.gpu import CudaEnvironment
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.optimize.make import BuildPlan
from tritonkit.repository.optimize.quality import measure
from tritonkit.repository.optimize.runtimes import onnxruntime_cuda
from tritonkit.repository.optimize.variants.onnx_fp32 import FILE

__all__ = ["GpuJudge", "judged_before"]

RECORD = "judged-gpu.json"
_CODE = (Path(__file__), Path(__file__).with_name("cuda_options.py"), Path(onnxruntime_cuda.__file__))


@dataclass(frozen=True)
class GpuJudge:
    """Measures ONNX variants on the GPU of an environment."""

    environment: CudaEnvironment
    serves: Callable[[Spec, Artifact], bool]
    """Function that tells whether target gpu serves a network on the GPU, and not on the CPU next to it."""

    def takes(self, what: BuildPlan, artifact: Artifact | None) -> bool:
        """Whether it judges a variant: an ONNX file that is served on the GPU, whose tensors hold numbers of numpy."""
        form = what.variant.form
        if form is None or not form.runs_on_cuda or artifact is None:
            return False
        signature = artifact.signature
        numbers = all(tensor.dtype in NUMPY_DTYPES for tensor in (*signature.inputs, *signature.outputs))
        return numbers and self.serves(what.spec, artifact)

    def open(self, what: BuildPlan, artifact: Artifact) -> onnxruntime_cuda.CudaRunner:
        """The variant on the GPU, with the options that will serve it."""
        options, file = cuda_options(what.spec, artifact), artifact.folder / FILE
        where = f"{what.spec.file} variant {what.variant}"
        graphs, entries = takes_graphs(artifact.signature), _entries(what, artifact)
        operators = [artifact.folder / name for name in what.spec.model.network.op_library_names]
        return onnxruntime_cuda.CudaRunner(
            self.environment, file, options, where, entries=entries, operators=operators, graphs=graphs
        )

    def judged(self, what: BuildPlan, artifact: Artifact, job: Job, before: Callable[[], object]) -> Artifact:
        """The artifact with its figures on the GPU, measured or as an earlier build recorded them.

        `before` is called before samples are read, which runs Python of the model's folder. BuildError if the network
        does not run there, or its outputs do not match the reference's.
        """
        record = artifact.folder / RECORD
        key = self._key(what, artifact)
        kept = _kept(record, key)
        if kept is not None:
            return Artifact.from_json(kept, artifact.folder)
        before()
        with contextlib.redirect_stdout(sys.stderr):
            job.say(f"judging {what.variant} on the GPU")
            judged = self._measured(what, artifact, job)
        with contextlib.suppress(OSError):  # measured again next time
            record.write_text(seal({"key": key, "artifact": judged.to_json()}))
        return judged

    def _key(self, what: BuildPlan, artifact: Artifact) -> dict[str, Any]:
        """Facts on which the figures depend, in addition to the artifact's own hash."""
        here = {"gpu": self.environment.gpu, "onnxruntime": _installed_version(self.environment.python)}
        return here | _settings(what, artifact)

    def _measured(self, what: BuildPlan, artifact: Artifact, job: Job) -> Artifact:
        form, runner = what.variant.form, self.open(what, artifact)
        assert form is not None  # noqa: S101  `takes` has looked
        options = cuda_options(what.spec, artifact)
        independence = _independence(what, artifact, job, runner)
        exact = form.lossless and options["use_tf32"] == "0" and not job.transformed
        file = artifact.folder / FILE
        lossless = exact and not is_quantized(job.number_format)
        quality = measure(job, runner, lossless=lossless, file=file)
        shown = ", ".join(f"{name} {value}" for name, value in options.items())
        note = f"judged on {self.environment.gpu}, ONNX Runtime {runner.version}: {shown}"
        return replace(artifact, quality=quality, independence=independence, notes=(*artifact.notes, note))


def judged_before(what: BuildPlan, artifact: Artifact) -> tuple[str, Artifact] | None:
    """The GPU that judged a variant last, with the settings that the spec has now, and the artifact with its figures.

    None if there is no such record.
    """
    facts = _read(artifact.folder / RECORD)
    try:
        gpu = facts["key"]["gpu"]
        is_current = _plain(_settings(what, artifact)).items() <= facts["key"].items()
        return (gpu, Artifact.from_json(facts["artifact"], artifact.folder)) if is_current else None
    except (KeyError, TypeError, ValueError, OSError):
        return None


def _settings(what: BuildPlan, artifact: Artifact) -> dict[str, Any]:
    """The facts of a key that no machine changes."""
    return {
        "options": cuda_options(what.spec, artifact),
        "entries": _entries(what, artifact),
        "code": [digest(file) for file in _CODE],
    }


def _entries(what: BuildPlan, artifact: Artifact) -> dict[str, str]:
    """Entries of the session's configuration: those of the file, and the spec's own, which come last."""
    given = what.spec.model.serving.parameters
    own = {key: value for key, value in given.items() if key.startswith("session.")}
    return session_entries(artifact.folder / FILE) | own


def _independence(
    what: BuildPlan, artifact: Artifact, job: Job, runner: onnxruntime_cuda.CudaRunner
) -> Independence | None:
    """The verdict on a batch's items, tried again by the GPU's kernels, which round in other places."""
    verdict = artifact.independence
    if verdict is None or verdict.state != "proven" or not job.batched or job.one_by_one:
        return verdict
    again = judge_neighbors(what.spec, runner.run, job.samples, prepared=job.prepared)
    hold_to_demand(what.spec, again, f"variant {what.variant} on the GPU")
    padding = padding_of(what.spec, artifact.signature)
    if again.holds and padding is not None:
        padded = judge_padded(what.spec, runner.run, job.samples, padding, job.prepared)
        hold_to_padding(what.spec, padded, f"variant {what.variant} on the GPU")
    return replace(again, seen=f"{verdict.seen}; on the GPU: {again.seen}") if again.holds else again


def _installed_version(python: Path) -> str:
    """The version of onnxruntime-gpu in an environment, from its folder of metadata."""
    folders = python.parents[1].glob("lib/python3.*/site-packages/onnxruntime_gpu-*.dist-info")
    return next((folder.name.split("-")[1] for folder in folders), "unknown")


def _kept(record: Path, key: dict[str, Any]) -> str | None:
    """The artifact's text in a record with this key."""
    facts = _read(record)
    text: str | None = facts.get("artifact")
    return text if facts.get("key") == _plain(key) else None


def _read(record: Path) -> dict[str, Any]:
    try:
        return unseal(record.read_text())
    except (OSError, ValueError, RecursionError):
        return {}


def _plain(key: dict[str, Any]) -> dict[str, Any]:
    """A key as it is read back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(key))
    return plain
