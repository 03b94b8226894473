"""A search's results on disk: the same again for the same question, nothing for another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tests.perf.tune.test_search import SLO, Machine, search
from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.tune import Known, Objective, load_state, save_state, state_file
from tritonkit.repository.modelspec import Spec, load

HASHES = {"onnx-fp32": "abc"}
MOST = Objective()


@pytest.fixture
def spec(root: Path, write_model: WriteModel) -> Spec:
    """Costs of a small model."""
    write_model("name: net\nnetwork: {onnx: model.onnx}\n", model__onnx="")
    return load(root / "models" / "net", root)


def test_what_was_saved_is_known_again(root: Path, spec: Spec) -> None:
    """Costs, points and their runs."""
    outcome = search(Machine())
    file = state_file(root, spec)
    save_state(file, spec, SLO, HASHES, MOST, outcome.costs, outcome.evaluations)
    loaded = load_state(file, spec, SLO, HASHES, MOST)
    assert loaded.costs == outcome.costs
    assert tuple(loaded.evaluations) == outcome.evaluations


def test_a_server_at_an_address_is_another_machine(root: Path, spec: Spec) -> None:
    """Results for one server do not hold for the embedded one, nor for one elsewhere."""
    outcome = search(Machine(interrupt_after=5))
    file = state_file(root, spec)
    there = "a:8001 with 4 cores"
    save_state(file, spec, SLO, HASHES, MOST, outcome.costs, outcome.evaluations, there)
    assert load_state(file, spec, SLO, HASHES, MOST, there).costs == outcome.costs
    assert load_state(file, spec, SLO, HASHES, MOST) == Known()
    assert load_state(file, spec, SLO, HASHES, MOST, "b:8001 with 4 cores") == Known()


def test_another_question_begins_anew(root: Path, spec: Spec) -> None:
    """Another target, other files, a file that is damaged or not there."""
    outcome = search(Machine(interrupt_after=5))
    file = state_file(root, spec)
    assert load_state(file, spec, SLO, HASHES, MOST) == Known()
    save_state(file, spec, SLO, HASHES, MOST, outcome.costs, outcome.evaluations)
    assert load_state(file, spec, Slo({99.0: 10.0}), HASHES, MOST) == Known()
    assert load_state(file, spec, SLO, {"onnx-fp32": "other"}, MOST) == Known()
    text = file.read_text()
    for damaged in (text[:-20], "[]", text.replace('"instances"', '"x"')):
        file.write_text(damaged)
        assert load_state(file, spec, SLO, HASHES, MOST) == Known()


def test_another_objective_knows_what_runs_cost(root: Path, spec: Spec) -> None:
    """And none of the ways that were measured for the other."""
    outcome = search(Machine(interrupt_after=5))
    file = state_file(root, spec)
    save_state(file, spec, SLO, HASHES, MOST, outcome.costs, outcome.evaluations)
    for other in (Objective("latency"), Objective("cost", 20.0)):
        assert load_state(file, spec, SLO, HASHES, other) == Known(dict(outcome.costs))
