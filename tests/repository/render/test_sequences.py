"""Sequences: how many are open at a time, and the first value of what Triton keeps for each."""

from __future__ import annotations

from typing import Any

import pytest

from tritonkit.repository.modelspec.sequences import MOST_SEQUENCES, SequenceBatching
from tritonkit.repository.render import ModelPlan, render_config
from tritonkit.repository.render.message import parse_text
from tritonkit.repository.render.values import TensorPlan

STATE = {"input": "h", "output": "h_next", "dtype": "FP32", "shape": (4,)}
READY = {"READY": {"kind": "ready"}}
START = {"START": {"kind": "start"}}


def rendered(**sequences: Any) -> Any:
    """The configuration's sequence_batching."""
    x = TensorPlan("x", "FP32", (4,))
    batching = SequenceBatching.model_validate(sequences)
    plan = ModelPlan("net", "onnxruntime", 8, (x,), (x,), section="model.yaml serving", sequence_batching=batching)
    return parse_text(render_config(plan, source="model.yaml", target="cpu", cores=2), "here").sequence_batching


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"state": [STATE]}, "oldest"),
        ({"state": [STATE], "control_input": START}, "oldest"),
        ({"state": [STATE], "control_input": READY}, "direct"),
        ({"state": [STATE], "direct": {}}, "direct"),
        ({}, "direct"),
        ({"oldest": {"max_candidate_sequences": 3}}, "oldest"),
    ],
)
def test_many_sequences_are_open_where_triton_keeps_their_state(given: dict[str, Any], kind: str) -> None:
    """A network that keeps state itself, in slots or in an instance, needs each sequence to stay in its slot."""
    sequences = rendered(**given)
    assert sequences.WhichOneof("strategy_choice") == kind
    if kind == "oldest" and "oldest" not in given:
        assert sequences.oldest.max_candidate_sequences == MOST_SEQUENCES


def test_a_sequence_begins_with_zeros() -> None:
    """Without a first value, Triton would hand over uninitialized memory."""
    (state,) = rendered(state=[STATE]).state
    (first,) = state.initial_state
    assert (first.name, first.zero_data, list(first.dims)) == ("h", True, [4])
    (of_a_file,) = rendered(state=[STATE | {"initial": "initial_state/h"}]).state
    assert of_a_file.initial_state[0].data_file == "h"


@pytest.mark.parametrize(("control", "named"), [({}, ("h",)), (READY, ("h",)), (START, ())])
def test_a_state_that_cannot_begin_with_zeros_is_named(control: dict[str, Any], named: tuple[str, ...]) -> None:
    """Triton takes no first value for a free axis; a network that sees the start does without it."""
    given = {"state": [STATE | {"shape": (-1,)}], "control_input": control}
    assert SequenceBatching.model_validate(given).without_first_value == named
    assert not rendered(**given).state[0].initial_state
