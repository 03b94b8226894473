"""`manifest.json`: in each version folder, the version's origin and quality; in each model's folder, the files next to
the versions. `integrity.verify` compares the files with both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tritonkit.repository.export import Artifact, sha256_file
from tritonkit.repository.export.artifact import Independence
from tritonkit.repository.publish.integrity import read_manifest
from tritonkit.repository.render.values import ModelPlan

__all__ = ["describe", "describe_unversioned", "holds", "is_whole"]


def describe(
    plan: ModelPlan, artifact: Artifact, files: Mapping[str, str], version: int, verdict: Independence | None = None
) -> str:
    """The manifest's text: `files` maps each file of the version to its sha256; `verdict` is on a user's own Python."""
    facts: dict[str, Any] = {
        "model": plan.name,
        "version": version,
        "spec": artifact.model,
        "files": dict(files),
        "sizes": {name: _size(plan, name) for name in sorted(files)},
        "tools": artifact.tools,
    }
    of_artifact = (file.is_relative_to(artifact.folder) for file in plan.version_files.values())
    if plan.version_texts or any(of_artifact):
        facts["variant"] = artifact.variant
        if artifact.number_format:
            facts["number_format"] = artifact.number_format
        facts["source_hash"] = artifact.source_hash
        facts["quality"] = artifact.quality and asdict(artifact.quality)
        facts["start"] = _start(plan, artifact)
        verdict = verdict or artifact.independence
        facts["independent_items"] = verdict and asdict(verdict)
    elif verdict:
        facts["independent_items"] = asdict(verdict)
    return _text(facts)


def _start(plan: ModelPlan, artifact: Artifact) -> dict[str, float] | None:
    """Measured cost of warming up one instance: bytes, and core seconds."""
    if artifact.start is None:
        return None
    batches = [sample.batch_size for sample in plan.warmup] or [1]
    return {
        "memory_bytes": artifact.start.memory_bytes * max(1, plan.max_batch_size),
        "processor_s": round(artifact.start.processor_s * sum(max(1, size) for size in batches), 3),
    }


def _size(plan: ModelPlan, name: str) -> int:
    """Size of a file of the version, in bytes."""
    if name in plan.version_texts:
        return len(plan.version_texts[name])
    return plan.version_files[name].stat().st_size


def describe_unversioned(plan: ModelPlan, files: Mapping[str, bytes]) -> str:
    """The text for a model's folder: `files` are those next to the versions, such as config.pbtxt and labels."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    sizes = {name: len(data) for name, data in files.items()}
    return _text({"model": plan.name, "files": digests, "sizes": sizes})


def _text(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"


def is_whole(version_folder: Path, files: Mapping[str, str]) -> bool:
    """Whether the version holds exactly these files, unchanged."""
    facts = read_manifest(version_folder)
    return facts is not None and facts["files"] == dict(files) and holds(version_folder, files)


def holds(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether a folder holds these files, each with its SHA-256; it may hold others too."""
    try:
        return all(sha256_file(folder / name) == digest for name, digest in files.items())
    except OSError:
        return False
