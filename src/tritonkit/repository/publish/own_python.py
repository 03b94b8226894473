"""A user's own Python in batches: the items it is tried with, and the verdicts, kept next to the artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tritonkit.repository.export.artifact import Independence, Signature, sha256_file
from tritonkit.repository.export.samples import Batch, batches, each_item
from tritonkit.repository.modelspec import SampleFiles, Spec, read_examples, resolve_file, resolve_folder
from tritonkit.repository.modelspec.contents import build_python, own_python
from tritonkit.repository.optimize.job import Job
from tritonkit.repository.publish.publish import Rendered
from tritonkit.repository.publish.records import read_record, write_record
from tritonkit.repository.render.own_python import Verdicts, wants_proof

if TYPE_CHECKING:
    from tritonkit.repository.render.values import TensorPlan

__all__ = ["keep_verdicts", "kept_verdicts", "trial_items", "untried"]

RECORD = "own-python.json"
_MOST_ITEMS = 12


def untried(models: Sequence[Rendered]) -> list[str]:
    """The models that still have to be tried."""
    return [model.plan.name for model in models if wants_proof(model.plan)]


def trial_items(spec: Spec, job: Job | None, models: Sequence[Rendered]) -> list[Batch]:
    """Items to try them with, by the names of the pipeline's tensors: samples for the network's inputs, and examples
    for the callers'."""
    called = models[-1].plan
    groups = [_examples(spec, called.inputs)]
    if job is not None and spec.model.quality.samples is not None:
        steps = {step.model: step.input_map for step in called.steps}
        names: Mapping[str, str] = steps.get(spec.network_name, {})
        samples = _of_one_layout(_samples(spec, job))
        groups.append({names.get(name, name): array for name, array in samples.items()})
    return [items for items in groups if items and len(next(iter(items.values()))) > 1]


def _samples(spec: Spec, job: Job) -> list[Batch]:
    if spec.model.network.python is not None:
        return batches(spec, Signature.declared(spec))
    return job.samples


def _of_one_layout(samples: Sequence[Batch]) -> Batch:
    """The first items that share the most common layout, as one batch."""
    import numpy as np

    groups: dict[Any, list[Batch]] = {}
    for item in each_item(samples):
        groups.setdefault(tuple(array.shape for array in item.values()), []).append(item)
    most = max(groups.values(), key=len)[:_MOST_ITEMS]
    return {name: np.concatenate([item[name] for item in most]) for name in most[0]}


def _examples(spec: Spec, inputs: Sequence[TensorPlan]) -> Batch:
    """Items of the callers' inputs, as many as every example has; inputs with a single example are left out."""
    import numpy as np

    tensors = {t.name: t for t in inputs if t.name in spec.model.example}
    texts = {name: read_examples(spec, name) for name in tensors}
    count = min(map(len, texts.values()), default=0)
    items: Batch = {}
    for name, tensor in tensors.items():
        shape = [max(1, size) for size in tensor.client_dims]
        items[name] = np.array([np.full(shape, text, object) for text in texts[name][:count]], object)
    return items


def kept_verdicts(spec: Spec, models: Sequence[Rendered]) -> Verdicts:
    """Verdicts of an earlier build on the same models."""
    own = [model for model in models if wants_proof(model.plan)]
    if not own:
        return {}
    kept = read_record(own[0].artifact.folder / RECORD)
    verdicts = {}
    for model in own:
        entry = kept.get(model.plan.name, {})
        if entry.get("tried") == _fingerprint(spec, model):
            verdicts[model.plan.name] = Independence(entry["state"], entry["seen"])
    return verdicts


def keep_verdicts(spec: Spec, models: Sequence[Rendered], verdicts: Verdicts) -> None:
    """Store the verdicts on these models, which were rendered without them."""
    entries = {
        model.plan.name: asdict(verdicts[model.plan.name]) | {"tried": _fingerprint(spec, model)}
        for model in models
        if model.plan.name in verdicts
    }
    record = models[0].artifact.folder / RECORD
    write_record(record, read_record(record) | entries)


def _fingerprint(spec: Spec, model: Rendered) -> str:
    """Hash of everything that a trial depends on: configuration, files, examples, and the Python that gives samples."""
    plan = model.plan
    files = {**plan.version_files, **plan.model_files}
    facts = {
        "config": model.config,
        "files": {name: sha256_file(file) for name, file in sorted(files.items())},
        "examples": {
            name: [hashlib.sha256(text).hexdigest() for text in read_examples(spec, name)]
            for name in sorted(spec.model.example)
        },
        "samples": {
            name: sha256_file(spec.folder / name)
            for name in sorted({*build_python(spec)} - {*own_python(spec)})
            if (spec.folder / name).is_file()
        },
        "sample_files": _sample_files(spec),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _sample_files(spec: Spec) -> dict[str, Any]:
    """Settings and content of `quality.samples` in files."""
    files = spec.model.quality.samples
    if not isinstance(files, SampleFiles):
        return {}
    key, source = files.source
    path = resolve_folder(str(source), spec, "") if key == "folder" else resolve_file(source, spec, "")
    found = sorted(path.rglob("*")) if key == "folder" else [path]
    return files.model_dump(mode="json") | {"content": [sha256_file(file) for file in found if file.is_file()]}
