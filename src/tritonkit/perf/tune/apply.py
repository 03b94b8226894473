"""A choice written into model.yaml: new values in `serving`; comments stay."""

from __future__ import annotations

import difflib
import io
import json
from dataclasses import dataclass
from typing import Any

from tritonkit.errors import SpecError
from tritonkit.extras import need_package
from tritonkit.perf.tune.space import TOKENIZE, InstanceGroup, Point
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import Target

__all__ = ["changed_text", "difference"]


def changed_text(spec: Spec, point: Point, now: Point, target: Target = "cpu") -> str:
    """The text of the spec's model.yaml with this choice; settings equal to the present way stay unwritten.

    A choice for a target with GPUs, and for one that has settings of its own, is written among `serving.targets`.

    Raises:
        UsageError: ruamel.yaml is not installed.
        SpecError: `serving` is written in a form that cannot be changed by itself.
    """
    need_package("ruamel.yaml", "tritonkit[tune]")
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = spec.file.read_text(encoding="utf-8")
    document = yaml.load(text)
    section = _section(document, spec.entry)
    if section.get("serving") is None:
        section["serving"] = {}
    serving = section["serving"]
    if not hasattr(serving, "update"):
        raise SpecError(f"{spec.file} serving", found="it is not a mapping", wanted="a mapping to change")
    if point == now:
        return text
    _set(_Settings(serving, _own_settings(serving, target)), point, now, target)
    if point.buckets != now.buckets:
        _pad(section["pipeline"], point)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _section(document: Any, entry: str) -> Any:
    """The part of a document that describes a spec: all of it, or an entry of a pipeline, `pipeline.NAME`."""
    for key in filter(None, entry.split(".")):
        named = [part for part in document if isinstance(part, dict) and part.get("name") == key]
        document = named[0] if isinstance(document, list) else document[key]
    return document


def difference(spec: Spec, text: str) -> str:
    """The changes as a unified diff; empty if there are none."""
    name = f"models/{spec.folder.name}/{spec.file.name}"
    before = spec.file.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, text.splitlines(keepends=True), name, name, n=2))


def _own_settings(serving: Any, target: Target) -> Any:
    """The mapping for a target's settings: `targets.TARGET`, or `serving` itself for a CPU that has none of its own."""
    targets = serving.get("targets") or {}
    if target == "cpu" and target not in targets:
        return serving
    own = targets.get(target) or {}
    targets[target] = own
    if serving.get("targets") is not targets:
        serving["targets"] = targets
    return own


@dataclass(frozen=True)
class _Settings:
    """Settings for all targets, and those for one, which may be the same mapping."""

    shared: Any
    own: Any

    def __setitem__(self, name: str, value: Any) -> None:
        self.own[name] = value

    def get(self, name: str) -> Any:
        """The value that holds on the target."""
        return self.own.get(name, self.shared.get(name))

    def part(self, name: str, empty: Any) -> Any:
        """A setting with settings of its own, to be changed; the target gets a copy, because it replaces the whole."""
        present = self.own.get(name)
        if not isinstance(present, dict) and not (isinstance(present, list) and present):
            self.own[name] = json.loads(json.dumps(self.get(name) or empty))
        return self.own[name]


def _set(settings: _Settings, point: Point, now: Point, target: Target) -> None:
    """Write only what differs, so that the rest keeps its form and its comments."""
    group = point.group
    if group.variant != now.group.variant or settings.get("variant") == "auto":
        settings["variant"] = group.variant
    if group.threads != now.group.threads and not group.gpus:
        settings["threads"] = group.threads
    if (group.instances, group.gpus) != (now.group.instances, now.group.gpus):
        _place(settings.part("instance_group", [{}])[0], group, target)
    if point.max_batch_size != now.max_batch_size:
        settings["max_batch_size"] = point.max_batch_size
    if point.max_batch_size <= 1:
        if now.max_batch_size > 1:
            settings["dynamic_batching"] = False
        return
    if (point.preferred, point.delay_us) != (now.preferred, now.delay_us) or now.max_batch_size <= 1:
        _batching(settings.part("dynamic_batching", {}), point)


def _place(instances: Any, group: InstanceGroup, target: Target) -> None:
    """The number of instances, and their device where a target has several kinds."""
    instances["count"] = group.instances
    if target == "cpu":
        return
    instances["kind"] = "gpu" if group.gpus else "cpu"
    if not group.gpus:
        instances.pop("gpus", None)


def _batching(batching: Any, point: Point) -> None:
    """The `dynamic_batching` settings of the choice."""
    if point.preferred:
        batching["preferred_batch_size"] = list(point.preferred)
    else:
        batching.pop("preferred_batch_size", None)
    batching["max_queue_delay"] = f"{point.delay_us}us"


def _pad(pipeline: Any, point: Point) -> None:
    """Set the tokenizer's lengths, in one line."""
    from ruamel.yaml.comments import CommentedSeq

    lengths = CommentedSeq(point.buckets)
    lengths.fa.set_flow_style()
    step = next(step for step in pipeline if hasattr(step, "get") and step.get("step") == TOKENIZE)
    step["parameters"]["buckets"] = lengths
