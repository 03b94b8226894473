"""Speed is compared within one run: variants take turns, and figures of several runs are not put side by side."""

from __future__ import annotations

import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import BuildError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.results import Result
from tritonkit.repository.optimize.runner import OperatorTime
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.optimize.timing import ROUNDS, find_timing
from tritonkit.repository.optimize.variants import FORMS

PAIR = ("onnx-fp32", "openvino-fp32")


class Listening(Progress):
    """Keeps what is said of the measurement of speed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.finished: list[Result] = []

    def timing(self, model: str, count: int) -> None:
        """Its beginning."""
        self.lines.append(f"{model}: {count}")

    def say(self, text: str) -> None:
        """Its parts."""
        if text.startswith("measuring speed"):
            self.lines.append(text)

    def timed(self, results: list[Result]) -> None:  # type: ignore[override]
        """Its end."""
        self.finished = list(results)


@pytest.fixture
def spec(write_model: WriteModel) -> Spec:
    """A network that needs no training."""
    return write_model("name: net\nnetwork: {onnx: net.onnx}\n", net__onnx=onnx_file(RELU, ["b", 4]))


def runs(results: tuple[Result, ...]) -> set[str]:
    """The measurements that the figures are from."""
    return {result.timing.run for result in results if result.timing}


def test_variants_take_turns(spec: Spec, cache: BuildCache) -> None:
    """Every round has each of them once, so that a slow minute of the machine is everybody's."""
    progress = Listening()
    results = evaluate(spec, PAIR, cache, timed=True, progress=progress)
    turns = [f"measuring speed, round {number} of {ROUNDS}: {name}" for number in range(1, ROUNDS + 1) for name in PAIR]
    assert progress.lines == ["net: 2", *turns]
    assert progress.finished == list(results)
    assert len(runs(results)) == 1
    assert all(result.timing and result.timing.batch1_ms > 0 for result in results)


def test_figures_of_one_run_are_kept(spec: Spec, cache: BuildCache) -> None:
    """Figures of fewer variants are kept too: they were measured in the same run."""
    first = evaluate(spec, PAIR, cache, timed=True)
    progress = Listening()
    again = evaluate(spec, PAIR, cache, timed=True, progress=progress)
    [alone] = evaluate(spec, PAIR[:1], cache, timed=True, progress=progress)
    assert progress.lines == []
    assert [r.timing for r in again] == [r.timing for r in first]
    assert alone.timing == first[0].timing


def test_another_variant_has_all_measured_again(spec: Spec, cache: BuildCache) -> None:
    """Figures of last week cannot be compared with those of today."""
    before = evaluate(spec, PAIR[:1], cache, timed=True)
    after = evaluate(spec, PAIR, cache, timed=True)
    assert len(runs(after)) == 1
    assert runs(after) != runs(before)
    assert after[0].artifact is not None
    assert find_timing(after[0].artifact, 1) == after[0].timing


def test_one_that_does_not_run_costs_the_others_nothing(
    spec: Spec, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a result with its problem, as one that cannot be made."""

    class Stumbling:
        def run(self, batch: Batch) -> Batch:
            raise BuildError("net", found="the engine cannot run it")

        def profile(self, batch: Batch, repeats: int) -> list[OperatorTime]:
            raise NotImplementedError

    evaluate(spec, PAIR, cache)
    assert FORMS["openvino-fp32"].runtime == "openvino"
    monkeypatch.setitem(RUNTIMES, "openvino", lambda *_: Stumbling())
    plain, other = evaluate(spec, PAIR, cache, timed=True)
    assert plain.timing is not None
    assert other.problem is not None
    assert other.problem.found == "the engine cannot run it"
    assert not other.passed
