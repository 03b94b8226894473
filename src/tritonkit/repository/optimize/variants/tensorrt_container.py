"""A plan built by `trtexec` in a container of NVIDIA's image: by the TensorRT that will serve it.

No TensorRT is needed on this machine, only docker and a GPU. trtexec's log says which TensorRT and which GPU the plan
is for. Its answers are not compared with the reference, because nothing here can run it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import BuildError
from tritonkit.repository.optimize.container import INPUT, OUTPUT, Container, Program
from tritonkit.repository.optimize.variants.tensorrt_onnx import typed_network
from tritonkit.repository.optimize.variants.tensorrt_plan import NETWORK, PLAN, RECORD, trtexec_command
from tritonkit.repository.optimize.variants.tensorrt_profiles import profiles

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["make"]

_TIMING = "timing.cache"
_UNSAFE = re.compile(r"[^\w.]+")
_FACTS = {
    "tensorrt_version": r"TensorRT version: (\d+\.\d+\.\d+)",
    "gpu": r"Selected Device: (.+)",
    "compute_capability": r"Compute Capability: (\d+\.\d+)",
}
"""Facts of a plan, and the lines of trtexec's log that say them."""


def make(job: Job, folder: Path, *, precision: str, container: Container) -> tuple[str, ...]:
    """Write model.plan, and plan.json with the TensorRT and the GPU that it is for. The log is kept in the cache.

    BuildError if docker, the GPU or trtexec fails.
    """
    spec, signature = job.spec, replace(job.signature, single=job.one_by_one)
    variant = f"tensorrt-{precision}"
    log = folder.parent / f"trtexec-{variant}.log"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        place, output = Path(scratch) / "network", Path(scratch) / "plan"
        place.mkdir()
        output.mkdir()
        typed, notes = typed_network(job, precision, place / NETWORK, thorough=True)
        command = trtexec_command(spec, signature, variant, INPUT / typed.name, OUTPUT / PLAN)
        # Kernel times of earlier builds with this image.
        timing = folder.parent / f"timing-{_UNSAFE.sub('-', container.image)}.cache"
        if timing.is_file():
            shutil.copyfile(timing, output / _TIMING)
        job.say(f"building by trtexec in {container.image}")
        container.run(Program(command, typed.parent, output, log), f"{spec.file} variant {variant}")
        facts = _facts(log, output / PLAN, f"{spec.file} variant {variant}")
        shutil.move(output / PLAN, folder / PLAN)
        if (output / _TIMING).is_file():
            shutil.move(output / _TIMING, timing)
    ranges = [{name: asdict(shapes) for name, shapes in profile.items()} for profile in profiles(spec, signature)]
    record: dict[str, object] = {
        "library": f"tensorrt {facts['tensorrt_version']}",
        "precision": precision,
        "profiles": ranges,
    }
    record |= {**facts, "image": container.image, "tensorrt": spec.model.optimize.tensorrt.model_dump(mode="json")}
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    built = f"built by TensorRT {facts['tensorrt_version']} of {container.image} on {facts['gpu']}"
    return (f"{built}; its answers were not compared with the reference", *notes)


def _facts(log: Path, plan: Path, where: str) -> dict[str, str]:
    """The facts that serving compares; BuildError if there is no plan, or trtexec does not say what it is for."""
    text = log.read_text(errors="replace")
    found = {name: match[1].strip() for name, pattern in _FACTS.items() if (match := re.search(pattern, text))}
    missing = [] if plan.is_file() and plan.stat().st_size else [PLAN]
    missing += [name.replace("_", " ") for name in _FACTS if name not in found]
    if missing:
        raise BuildError(
            where,
            found=f"trtexec ends without an error, and does not give: {', '.join(missing)}",
            wanted="a plan, and the version and GPU that it is for",
            todo=f"read its log ({log}), and choose an image with another release of TensorRT",
        )
    return found
