"""Pipelines that read a document in windows: no batch axis for requests, batches of windows for the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.repository.render.cases import Case, make_case
from tritonkit.errors import BuildError, RenderError, UsageError
from tritonkit.perf.tune.candidates import refuse
from tritonkit.repository.export.ready.prepared import Flow
from tritonkit.repository.render import ModelPlan

NETWORK = {"input_ids": ["INT64", ["length"]], "attention_mask": ["INT64", ["length"]]}
TOKENIZE = {"tokenizer": "tokenizer.json", "offsets": True, "windows": True}
JOIN = {"labels": "labels.txt", "windows": True}
SHOW = {"step": "aggregate_tokens", "parameters": JOIN}


def case(
    root: Path,
    before: dict[str, Any] | None = None,
    after: tuple[Any, ...] = (SHOW,),
    *,
    serving: dict[str, Any] | None = None,
    step_serving: dict[str, Any] | None = None,
    **more: Any,
) -> Case:
    """A model `names` that finds entities of a text in windows."""
    tokenize = {"step": "tokenize", "parameters": TOKENIZE | (before or {}), "serving": step_serving or {}}
    network = {"onnx": "model.onnx", "free_axes": {"length": {"max": 64}}}
    facts = {
        "model": {
            "name": "names",
            "network": network,
            "serving": serving or {},
            "pipeline": [tokenize, "network", *after],
        },
        "signature": {"inputs": NETWORK, "outputs": {"logits": ["FP32", ["length", 3]]}},
        "files": {"tokenizer.json": "{}", "labels.txt": "O\nB-PER\nI-PER\n"},
        **more,
    }
    return make_case("names", facts, root)


def by_name(case: Case) -> dict[str, ModelPlan]:
    """The plans by model name."""
    return {plan.name: plan for plan in case.plans()}


def test_a_request_is_a_document_and_the_network_batches(tmp_path: Path) -> None:
    """Only the network has a batch axis; a step's tensors have an axis of windows."""
    plans = by_name(case(tmp_path))
    assert {name: plan.max_batch_size for name, plan in plans.items()} == {
        "names_tokenize": 0,
        "names_network": 64,
        "names_aggregate_tokens": 0,
        "names": 0,
    }
    assert plans["names_network"].dynamic_batching is not None
    assert str(plans["names_tokenize"].outputs[0]) == "input_ids INT64 [-1,-1]"
    assert str(plans["names_network"].inputs[0]) == "input_ids INT64 [-1]"
    assert str(plans["names_aggregate_tokens"].inputs[0]) == "logits FP32 [-1,-1,-1]"
    assert [str(one) for one in plans["names"].inputs] == ["text BYTES [1]"]
    assert str(plans["names"].outputs[0]) == "entity BYTES [64]"


def test_the_default_batch_takes_all_windows(tmp_path: Path) -> None:
    """OpenVINO's default of 8 grows to the largest document."""
    plans = by_name(case(tmp_path, {"max_windows": 20}, variant="openvino-fp32", file="model.xml"))
    assert plans["names_network"].max_batch_size == 20


@pytest.mark.parametrize(("size", "most"), [({"max_batch_size": 8}, 16), ({}, 100)])
def test_a_document_must_fit_into_a_batch(tmp_path: Path, size: dict[str, Any], most: int) -> None:
    """A network that takes fewer windows than a document may have is refused."""
    with pytest.raises(RenderError) as error:
        by_name(case(tmp_path, {"max_windows": most}, serving=size))
    assert error.value.found.endswith(f"for names_network, and a document has up to {most} windows")
    assert error.value.where.endswith("serving.max_batch_size")


def test_batches_of_documents_are_refused(tmp_path: Path) -> None:
    """A step that takes documents cannot have a batch axis."""
    with pytest.raises(RenderError, match="with windows a request of names_tokenize is one document"):
        by_name(case(tmp_path, step_serving={"max_batch_size": 4}))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, (), "names_tokenize gives windows, and no step takes them"),
        ({"windows": False}, (SHOW,), "no step gives windows, and no step takes them"),
    ],
)
def test_windows_have_two_ends(tmp_path: Path, before: dict[str, Any], after: tuple[Any, ...], found: str) -> None:
    """Both the tokenizer and a step behind the network must have windows."""
    with pytest.raises(RenderError) as error:
        by_name(case(tmp_path, before, after))
    assert error.value.found == found


def test_one_end_alone_is_refused(tmp_path: Path) -> None:
    """A last step that reads single texts does not fit windows."""
    alone = {"step": "aggregate_tokens", "parameters": {"labels": "labels.txt"}}
    with pytest.raises(RenderError, match="no step takes them"):
        by_name(case(tmp_path, after=(alone,)))


def test_samples_do_not_run_through_windows(tmp_path: Path) -> None:
    """A build that would prepare samples with such a step says what to give instead."""
    flow = Flow(case(tmp_path).spec, "quality.samples")
    with pytest.raises(BuildError, match="step tokenize has windows: true") as error:
        flow.run(0, [{}])
    assert error.value.where.endswith("quality.samples")


def test_tune_refuses_windows(tmp_path: Path) -> None:
    """It counts a request as one item of the network."""
    with pytest.raises(UsageError, match="any number of windows"):
        refuse(case(tmp_path).spec)
