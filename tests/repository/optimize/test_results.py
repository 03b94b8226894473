"""The variants of a spec side by side, and which of them is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import BuildError, GateError, SpecError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import evaluate, plan
from tritonkit.repository.optimize.gate import judge
from tritonkit.repository.optimize.progress import Progress
from tritonkit.repository.optimize.results import Result, choose, wanted_variants
from tritonkit.repository.optimize.timing import VariantTiming
from tritonkit.repository.optimize.variants import FORMS, Form

TEXT = """
name: net
network:
  torch: network:build
  train: network:train
  inputs: {x: {dtype: FP32, shape: [4]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
"""
NETWORK = """
from pathlib import Path
import torch

def build():
    return torch.nn.Linear(4, 2)

def train(module):
    with Path(TRACE).open("a") as file:
        file.write("trained ")
"""
DATA = """
import numpy as np

def score(outputs, reference):
    count = sum(len(batch["y"]) for batch in outputs)
    return np.ones(count) if outputs is reference else np.arange(count) != 0

def broken(outputs, reference):
    return np.array([0.5, float("nan")])

def nearly(outputs, reference):
    return 1.0 if outputs is reference else 0.99

def few(outputs, reference):
    return np.ones(3)
"""


def write(write_model: WriteModel, more: str = "") -> Spec:
    """A Relu, and data that score one item wrong."""
    net = onnx_file(RELU, ["batch", 4])
    return write_model("name: net\nnetwork: {onnx: m.onnx}\n" + more, m__onnx=net, data__py=DATA)


def write_trained(write_model: WriteModel, tmp_path: Path) -> Spec:
    """A small trained network, which leaves a trace of each training."""
    code = NETWORK.replace("TRACE", repr(str(tmp_path / "trace")))
    return write_model(TEXT, network__py=code)


def fail(job: object, folder: Path) -> tuple[str, ...]:
    """A form whose library stumbles."""
    raise RuntimeError("no kernel for this operator")


def test_a_variant_that_cannot_be_made_is_a_result(
    write_model: WriteModel, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are made, and the table can say what was wrong with this one."""
    monkeypatch.setitem(FORMS, "stumbling", Form(fail, "onnxruntime"))
    spec = write(write_model)
    fp32, bad = evaluate(spec, ("onnx-fp32", "stumbling"), cache)
    assert fp32.passed
    assert isinstance(bad.problem, BuildError)
    assert "RuntimeError: no kernel for this operator" in bad.problem.found
    assert choose(spec, (fp32, bad)).variant == "onnx-fp32"


@pytest.mark.slow
def test_training_happens_once_for_all_variants(write_model: WriteModel, tmp_path: Path, cache: BuildCache) -> None:
    """Trained weights are kept: another export of the same network does not train again."""
    spec = write_trained(write_model, tmp_path)
    evaluate(spec, ("onnx-fp32",), cache)
    evaluate(spec, ("onnx-fp32",), BuildCache(cache.folder))
    cached = plan(spec, cache).cached
    assert cached is not None
    (cached.folder / "model.onnx").unlink()
    evaluate(spec, ("onnx-fp32",), cache)
    assert (tmp_path / "trace").read_text() == "trained "
    evaluate(spec, ("onnx-fp32",), cache, force=True)
    assert (tmp_path / "trace").read_text() == "trained trained "


def test_a_drop_within_chance_is_said_to_be_so(write_model: WriteModel, cache: BuildCache) -> None:
    """One item of eight is lost: too much for the limit, and no more than chance explains."""
    spec = write(write_model, "quality: {metric: data:score}\n")
    (result,) = evaluate(spec, ("onnx-fp32",), cache)
    assert result.artifact is not None
    assert result.artifact.quality is not None
    assert result.artifact.quality.drop == pytest.approx(1 / result.artifact.quality.samples)
    assert result.outcome is not None
    assert result.outcome.within_noise
    with pytest.raises(GateError, match="chance explains"):
        choose(spec, (result,))


@pytest.mark.parametrize(("bar", "passes"), [(0.01, True), (0.009, False)])
def test_a_drop_as_large_as_the_bar_passes(
    write_model: WriteModel, cache: BuildCache, bar: float, passes: bool
) -> None:
    """1 - 0.99 is 0.01, though not in binary fractions."""
    spec = write(write_model, f"quality: {{metric: data:nearly, max_drop: {bar}}}\n")
    (result,) = evaluate(spec, ("onnx-fp32",), cache)
    assert result.passed is passes


@pytest.mark.parametrize(("hook", "message"), [("broken", "nan"), ("few", "3 scores for 8 items")])
def test_a_metric_must_give_numbers_for_the_items(
    write_model: WriteModel, cache: BuildCache, hook: str, message: str
) -> None:
    """NaN and a wrong count are the metric's mistake, not the variant's."""
    spec = write(write_model, f"quality: {{metric: data:{hook}}}\n")
    (result,) = evaluate(spec, ("onnx-fp32",), cache)
    assert result.problem is not None
    assert message in result.problem.found


def test_the_sample_budget_counts_items(write_model: WriteModel, cache: BuildCache) -> None:
    """`max_samples` cuts real samples, also within a batch."""
    data = "import numpy as np\ndef given():\n    return [{'x': np.ones((4, 4), np.float32)}] * 3\n"
    write(write_model)
    quality = "quality: {samples: data:given, max_samples: 6}\n"
    spec = write_model("name: net\nnetwork: {onnx: m.onnx}\n" + quality, data__py=data)
    (result,) = evaluate(spec, ("onnx-fp32",), cache)
    assert result.artifact is not None
    assert result.artifact.quality is not None
    assert result.artifact.quality.samples == 6


def test_size_and_latency_are_held_against_fp32(write_model: WriteModel, cache: BuildCache) -> None:
    """A variant must be as much smaller and faster as the spec asks, and the refusal says by how much."""
    bars = "quality: {max_size_ratio: 0.5, max_latency_ratio: 0.8}\n"
    spec = write(write_model, bars)
    (base,) = evaluate(spec, ("onnx-fp32",), cache)
    assert base.artifact is not None
    (other,) = evaluate(spec, ("onnx-fp32",), BuildCache(cache.folder))
    assert other.artifact is not None
    outcome = judge(
        spec,
        other.artifact,
        base.artifact,
        VariantTiming(1, 9.0, 1, 9.0, "run"),
        VariantTiming(1, 10.0, 1, 10.0, "run"),
    )
    fields = {miss.field: miss.found for miss in outcome.misses}
    assert set(fields) == {"quality.max_size_ratio", "quality.max_latency_ratio"}
    assert "0.90 times" in fields["quality.max_latency_ratio"]


def timed(spec: Spec, cache: BuildCache, variant: str, ms: float, runtime: str | None = "onnxruntime") -> Result:
    """The network under another variant's name, as fast as that, run by that engine."""
    (result,) = evaluate(spec, ("onnx-fp32",), cache)
    return replace(result, variant=variant, timing=VariantTiming(1, ms, 1, ms, "run"), runtime=runtime)


def test_auto_takes_the_fastest_that_passes(write_model: WriteModel, cache: BuildCache) -> None:
    """Faster ones that cannot be made, or that no server runs, do not count."""
    spec = write(write_model, "serving: {variant: auto}\n")
    results = (
        timed(spec, cache, "onnx-fp32", 3.0),
        timed(spec, cache, "quick", 1.0),
        timed(spec, cache, "ahead", 0.1, runtime=None),
        Result(spec.name, "stumbling", False, problem=BuildError("x", found="y")),
    )
    quick = results[1].artifact
    assert choose(spec, results) is quick


def test_auto_without_a_choice_says_what_each_lost(write_model: WriteModel, cache: BuildCache) -> None:
    """None passes: the error names the bar that each missed."""
    more = "quality: {metric: data:score}\nserving: {variant: auto}\n"
    spec = write(write_model, more)
    with pytest.raises(GateError) as caught:
        choose(spec, evaluate(spec, wanted_variants(spec, ()), cache))
    assert "onnx-fp32: score is 0.875" in caught.value.details


def test_names_are_resolved(write_model: WriteModel) -> None:
    """`spec` and `all` stand for lists, onnx-fp32 comes first, nothing comes twice."""
    spec = write(write_model, "optimize: {variants: [onnx-fp32]}\n")
    assert [*map(str, wanted_variants(spec, ()))] == ["onnx-fp32"]
    assert [*map(str, wanted_variants(spec, ("spec",)))] == ["onnx-fp32"]
    assert str(wanted_variants(spec, ("all",))[0]) == "onnx-fp32"
    with pytest.raises(SpecError, match="unknown variant"):
        wanted_variants(spec, ("onnx-fp23",))


def test_progress_is_told_in_order(write_model: WriteModel, tmp_path: Path, cache: BuildCache) -> None:
    """Start, phrases, done; a second build is done without starting."""
    lines: list[str] = []

    class Listening(Progress):
        def start(self, plan: object) -> None:
            lines.append("start")

        def say(self, text: str) -> None:
            lines.append(text)

        def done(self, result: Result) -> None:
            lines.append(f"done {result.cached}")

    spec = write_trained(write_model, tmp_path)
    for _ in range(2):
        evaluate(spec, ("onnx-fp32",), cache, progress=Listening())
    assert lines == [
        "start",
        "training the network",
        "exporting to ONNX",
        "proving that items are independent",
        "measuring quality",
        "done False",
        "done True",
    ]


def make_ahead(job: object, folder: Path) -> tuple[str, ...]:
    """A form for another machine's runtime."""
    (folder / "model.plan").write_bytes(b"plan")
    return ()


def test_what_was_not_measured_has_not_passed(
    write_model: WriteModel, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that cannot run here is made and kept, and neither refused nor passed."""
    monkeypatch.setitem(FORMS, "ahead", Form(make_ahead, None))
    spec = write(write_model)
    _, ahead = evaluate(spec, ("onnx-fp32", "ahead"), cache, timed=True)
    assert ahead.problem is None
    assert ahead.outcome is not None
    assert not ahead.outcome.misses
    assert not ahead.measured
    assert not ahead.passed
    assert ahead.to_dict()["passed"] is False


@pytest.mark.parametrize("variant", ["teacher", "pruned", "distilled"])
def test_an_onnx_file_has_no_other_network(write_model: WriteModel, cache: BuildCache, variant: str) -> None:
    """A copy of the file under a transform's name would pass for what it is not."""
    spec = write_model("name: net\nnetwork: {onnx: net.onnx}\n", net__onnx=onnx_file(RELU, ["b", 4]))
    (result,) = evaluate(spec, (variant,), cache)
    assert result.problem is not None
    assert "an ONNX file, which cannot be trained" in result.problem.found
