"""A choice written into model.yaml: new values in `serving`; comments stay."""

from __future__ import annotations

import difflib
import io
from typing import Any

from tritonkit.errors import SpecError
from tritonkit.extras import need_package
from tritonkit.perf.tune.space import TOKENIZE, Point
from tritonkit.repository.modelspec import Spec

__all__ = ["changed_text", "difference"]


def changed_text(spec: Spec, point: Point, now: Point) -> str:
    """The text of the spec's model.yaml with this choice; settings equal to the present way stay unwritten.

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
    if document.get("serving") is None:
        document["serving"] = {}
    serving = document["serving"]
    if not hasattr(serving, "update"):
        raise SpecError(f"{spec.file} serving", found="it is not a mapping", wanted="a mapping to change")
    if point == now:
        return text
    _set(serving, point, now)
    if point.buckets != now.buckets:
        _pad(document["pipeline"], point)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def difference(spec: Spec, text: str) -> str:
    """The changes as a unified diff; empty if there are none."""
    name = f"models/{spec.name}/{spec.file.name}"
    before = spec.file.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, text.splitlines(keepends=True), name, name, n=2))


def _set(serving: Any, point: Point, now: Point) -> None:
    """Write only what differs, so that the rest keeps its form and its comments."""
    if point.group.variant != now.group.variant or serving.get("variant") == "auto":
        serving["variant"] = point.group.variant
    if point.group.threads != now.group.threads:
        serving["threads"] = point.group.threads
    if point.group.instances != now.group.instances:
        serving.setdefault("instance_group", [{}])[0]["count"] = point.group.instances
    if point.max_batch_size != now.max_batch_size:
        serving["max_batch_size"] = point.max_batch_size
    if point.max_batch_size <= 1:
        if now.max_batch_size > 1:
            serving["dynamic_batching"] = False
        return
    if (point.preferred, point.delay_us) != (now.preferred, now.delay_us) or now.max_batch_size <= 1:
        _batching(serving, point)


def _batching(serving: Any, point: Point) -> None:
    """The `dynamic_batching` settings of the choice."""
    if not hasattr(serving.get("dynamic_batching"), "update"):
        serving["dynamic_batching"] = {}
    batching = serving["dynamic_batching"]
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
