"""Steps that keep something between the requests of a sequence: how they are rendered, and what cannot go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.repository.render.test_wiring import by_name, decode, pipeline
from tritonkit.client.wire.signature import INDEPENDENT_ITEMS
from tritonkit.errors import RenderError
from tritonkit.repository.modelspec.sequences import MOST_SEQUENCES, Direct, Oldest
from tritonkit.repository.render import ModelPlan

STATE = {"input": "h", "output": "hn", "dtype": "FP32", "shape": [3]}
INPUTS = {"input": ["FP32", ["frames", 576]], "h": ["FP32", [3]]}
OUTPUTS = {"speech": ["FP32", ["frames"]], "hn": ["FP32", [3]]}


def frames(**serving: Any) -> dict[str, Any]:
    """The shipped step, before a network with the input `input`."""
    return {"step": "frames", "outputs": {"frames": "input"}, "serving": serving}


def plans(root: Path, step: dict[str, Any], state: bool = True, **serving: Any) -> dict[str, ModelPlan]:
    """A pipeline of the step and a network, with or without state of its own."""
    sequences = {"sequence_batching": {"max_sequence_idle": "7s", "state": [STATE]}} if state else {}
    inputs, outputs = (dict(list(side.items())[: 1 + state]) for side in (INPUTS, OUTPUTS))
    return by_name(pipeline([step, "network"], root, inputs, outputs, serving={**sequences, **serving}))


def strategies(planned: dict[str, ModelPlan]) -> list[tuple[int, Direct | Oldest] | None]:
    """Idle time and strategy of each model."""
    batchings = [plan.sequence_batching for plan in planned.values()]
    return [(one.max_sequence_idle, one.strategy) if one else None for one in batchings]


def test_a_step_has_as_many_sequences_as_the_network_for_as_long(tmp_path: Path) -> None:
    """A stream that one of them forgets, the other forgets too; the ensemble has no batching of its own."""
    step, network, ensemble = strategies(plans(tmp_path / "a", frames()))
    assert step == network == (7_000_000, Oldest(max_candidate_sequences=MOST_SEQUENCES))
    assert ensemble is None
    given = {"oldest": {"max_candidate_sequences": 3}, "state": [STATE]}
    step, network, _ = strategies(plans(tmp_path / "b", frames(), sequence_batching=given))
    assert step == network == (1_000_000, Oldest(max_candidate_sequences=3))


def test_the_network_may_keep_nothing(tmp_path: Path) -> None:
    """The step's streams are Triton's default then, or as the step's own section says."""
    step, network, _ = strategies(plans(tmp_path / "a", frames(), state=False))
    assert step == (1_000_000, Oldest(max_candidate_sequences=MOST_SEQUENCES))
    assert network is None
    own = {"max_sequence_idle": "9s", "direct": {}}
    assert strategies(plans(tmp_path / "b", frames(sequence_batching=own), state=False))[0] == (9_000_000, Direct())


def test_requests_of_streams_are_not_joined(tmp_path: Path) -> None:
    """An item depends on those before it: neither Triton's batcher nor the client may put any two together."""
    planned = plans(tmp_path, frames(), state=False, independent_items=True)
    assert planned["demo_frames"].dynamic_batching is None
    assert INDEPENDENT_ITEMS in planned["demo_network"].parameters
    assert INDEPENDENT_ITEMS not in planned["demo_frames"].parameters | planned["demo"].parameters


@pytest.mark.parametrize(
    ("own", "network", "where", "words"),
    [
        (
            {"sequence_batching": {"state": [STATE]}},
            {},
            "pipeline.0.serving.sequence_batching",
            "state or control_input",
        ),
        ({"dynamic_batching": {}}, {}, "pipeline.0.serving.dynamic_batching", "frames keeps state"),
        ({"response_cache": True}, {}, "pipeline.0.serving.response_cache", "frames keeps state"),
        ({"idempotent": True}, {}, "pipeline.0.serving.idempotent", "frames keeps state"),
        ({}, {"response_cache": True}, "serving.response_cache", "frames keeps state"),
        ({}, {"idempotent": True}, "serving.idempotent", "frames keeps state"),
    ],
)
def test_settings_that_streams_do_not_bear_are_refused(
    own: dict[str, Any], network: dict[str, Any], where: str, words: str, tmp_path: Path
) -> None:
    """An answer out of a cache, or to a request that came twice, would be of another place in the stream."""
    with pytest.raises(RenderError) as caught:
        plans(tmp_path, frames(**own), state=False, **network)
    assert caught.value.where.endswith(f" {where}")
    assert words in caught.value.found


def test_a_step_that_keeps_nothing_has_no_sequences(tmp_path: Path) -> None:
    """The error names the step and the key that would say otherwise."""
    with pytest.raises(RenderError) as caught:
        pipeline([decode(serving={"sequence_batching": {}}), "network"], tmp_path).plans()
    assert caught.value.where.endswith("pipeline.0.serving.sequence_batching")
    assert caught.value.found == "it is given for decode, which keeps nothing between requests"
    assert "keeps_sequences: true" in caught.value.wanted


def test_a_pipeline_knows_whether_it_keeps_sequences(tmp_path: Path) -> None:
    """Releases and tuning ask that, of the step as of the network."""
    facts = [
        ([frames(), "network"], {}, True),
        (["network"], {"sequence_batching": {"state": [STATE]}}, True),
        ([decode(), "network"], {}, False),
    ]
    for number, (parts, serving, keeps) in enumerate(facts):
        case = pipeline(parts, tmp_path / str(number), serving=serving)
        assert case.spec.keeps_sequences is keeps
