"""Results of a report from the cache: real builds only, and nothing that is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tests.repository.optimize.fake_cuda import GPU, fake_environment
from tests.repository.optimize.small_specs import RELU, onnx_file
from tests.repository.report.figures import MACHINE, result
from tritonkit.errors import UsageError
from tritonkit.repository.export import BuildCache
from tritonkit.repository.optimize import evaluate
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.report import collect, render
from tritonkit.repository.report.collect import pareto
from tritonkit.repository.report.rows import rows
from tritonkit.repository.report.sections import section

THREADS = 2
PAIR = ("onnx-fp32", "onnx-tf32")
TF32 = "serving: {variant: onnx-tf32}\n"
TEXT = "name: {name}\ndescription: A ReLU\nnetwork: {{onnx: relu.onnx}}\n{more}"


@pytest.fixture
def relu(write_model: WriteModel, root: Path) -> Path:
    """A project whose model `net` is built and timed, and whose model `other` is not."""
    other = onnx_file(RELU, ["batch", 4])
    write_model(TEXT.format(name="other", more=""), "other", relu__onnx=other)
    spec = write_model(TEXT.format(name="net", more=""), relu__onnx=onnx_file(RELU, ["batch", 4]))
    evaluate(spec, ("onnx-fp32",), BuildCache(root / ".tritonkit" / "cache"), threads=THREADS, timed=True)
    return root


def test_what_was_built_is_read_with_its_figures(relu: Path) -> None:
    """Quality, timing and outcome of the variant, a real profile of it, and the others as not built."""
    (report,) = collect(relu, threads=THREADS)
    assert (report.model, report.description) == ("net", "A ReLU")
    (result,) = report.results
    assert result.variant == "onnx-fp32"
    assert result.cached
    assert result.passed
    assert result.artifact is not None
    assert result.artifact.quality is not None
    assert result.artifact.quality.value == pytest.approx(1)
    assert result.timing is not None
    assert result.timing.batch1_ms > 0
    assert report.served == "onnx-fp32"
    assert report.front == ("onnx-fp32",)
    assert set(report.missing.values()) <= {"not built"}
    assert report.operators is not None
    assert report.operators.problem == ""
    assert [time.kind for time in report.operators.times] == ["Relu"]
    assert 0 < report.operators.times[0].ms < 1000


def test_timings_of_another_number_of_threads_do_not_count(relu: Path) -> None:
    """A figure taken on two cores says nothing on three; there is no slowest variant then."""
    (report,) = collect(relu, threads=THREADS + 1)
    assert report.results[0].timing is None
    assert report.front == ()
    assert report.operators is None


def test_what_was_built_of_another_state_is_listed_as_such(relu: Path) -> None:
    """After the network changed, its old variant is no figure of the new one."""
    (relu / "models" / "net" / "relu.onnx").write_bytes(onnx_file(RELU, ["batch", 5], ["batch", 5]))
    with pytest.raises(UsageError) as caught:
        collect(relu, ("net",), threads=THREADS)
    assert "earlier states" in caught.value.found


def test_nothing_built_names_the_command_to_run(relu: Path) -> None:
    """The error comes for a named model, and for a project without a build."""
    with pytest.raises(UsageError) as caught:
        collect(relu, ("other",), threads=THREADS)
    assert caught.value.todo == "tritonkit build other --variants all"
    (relu / ".tritonkit").rename(relu / "elsewhere")
    with pytest.raises(UsageError) as caught:
        collect(relu, threads=THREADS)
    assert caught.value.todo == "tritonkit build net other --variants all"
    assert "earlier" not in caught.value.found


def test_the_gate_is_applied_as_the_spec_is_now(relu: Path, write_model: WriteModel) -> None:
    """Raising a limit builds nothing again, and the report refuses what misses it."""
    write_model(TEXT.format(name="net", more="quality: {at_least: 1.5}\n"))
    (report,) = collect(relu, threads=THREADS)
    assert report.results[0].outcome is not None
    assert [miss.field for miss in report.results[0].outcome.misses] == ["quality.at_least"]
    assert report.served is None
    assert report.front == ()


def test_a_model_that_cannot_be_profiled_is_still_reported(relu: Path) -> None:
    """Sample data that fails costs the profile, not the page."""
    (report,) = collect(relu, threads=THREADS)
    assert report.results[0].artifact is not None
    file = report.results[0].artifact.folder / "model.onnx"
    whole = file.read_bytes()
    again = [report]

    def spoil(text: str) -> None:
        if "profiling" in text:
            file.write_bytes(whole[:20])

    again += collect(relu, threads=THREADS, say=spoil)
    assert again[1].results[0].passed
    assert again[1].operators is not None
    assert "ONNX Runtime refuses" in again[1].operators.problem


@pytest.fixture
def product(write_model: WriteModel, root: Path, tmp_path: Path) -> GpuJudge:
    """A project whose model was built and timed on a GPU and on the CPU, in FP32 and TF32; the judge."""
    judge = GpuJudge(fake_environment(tmp_path / "venv"), lambda spec, artifact: True)
    spec = write_model(TEXT.format(name="net", more=TF32), relu__onnx=onnx_file(RELU, ["batch", 4]))
    for gpu in (None, judge):
        evaluate(spec, PAIR, BuildCache(root / ".tritonkit" / "cache"), threads=THREADS, timed=True, gpu=gpu)
    return judge


def test_figures_of_a_gpu_stand_next_to_those_of_the_cpu(product: GpuJudge, root: Path) -> None:
    """With the card's name; a variant that a GPU alone runs has only these, and they decide what is published."""
    (report,) = collect(root, threads=THREADS)
    fp32, tf32 = report.gpu_results
    assert [(one.gpu, one.result.variant, one.alone) for one in (fp32, tf32)] == [
        (GPU, "onnx-fp32", False),
        (GPU, "onnx-tf32", True),
    ]
    for one in (fp32, tf32):
        assert one.result.passed
        assert one.result.timing is not None
        assert one.result.timing.gpu == GPU
    on_cpu = report.results[0]
    assert on_cpu.timing is not None
    assert on_cpu.timing.gpu == ""
    assert report.served == "onnx-tf32"
    table = [(row["variant"], row["card"], row["served"]) for row in rows(report)]
    assert table == [("onnx-fp32", "", False), ("onnx-fp32", GPU, False), ("onnx-tf32", GPU, True)]
    assert [row["speedup"] for row in rows(report)][:2] == ["1.00", "1.00"]
    assert all(row["one"] != "–" for row in rows(report))
    (note,) = dict(section(report)["notes"])[f"onnx-tf32 on {GPU}"]
    assert "use_tf32 1" in note
    assert section(report)["summary"][0] == "2 variants are built: 2 passed the gate."
    facts = report.to_dict()["gpu_variants"]
    assert [(one["gpu"], one["variant"], one["timing"]["gpu"]) for one in facts] == [
        (GPU, "onnx-fp32", GPU),
        (GPU, "onnx-tf32", GPU),
    ]
    page = render((report,), MACHINE, "today")
    assert page.count(f'<span class="tag">on {GPU}</span>') == 2


def test_figures_of_a_gpu_count_for_the_settings_of_the_spec(
    product: GpuJudge, root: Path, write_model: WriteModel
) -> None:
    """With other options of the CUDA provider, or without a record that can be read, there are none."""
    (report,) = collect(root, threads=THREADS)
    artifact = report.results[0].artifact
    assert artifact is not None
    (artifact.folder / "judged-gpu.json").write_text("{}")
    (report,) = collect(root, threads=THREADS)
    assert [one.result.variant for one in report.gpu_results] == ["onnx-tf32"]
    more = "serving: {variant: onnx-tf32, parameters: {gpu_mem_limit: '1000000'}}\n"
    write_model(TEXT.format(name="net", more=more))
    (report,) = collect(root, threads=THREADS)
    assert (report.gpu_results, report.served) == ((), None)


def test_the_front_holds_what_no_other_beats(tmp_path: Path) -> None:
    """The fastest comes first; equal figures, refused and untimed variants are left out."""
    figures = [
        ("slow-good", 0.99, 3.0),
        ("fast-fair", 0.98, 1.0),
        ("slow-fair", 0.98, 2.0),
        ("fastest-bad", 0.5, 0.5),
        ("slower-twin", 0.99, 3.5),
        ("middle", 0.985, 2.0),
    ]
    results = [result(tmp_path, name, 10, value, ms, ms * 4) for name, value, ms in figures]
    assert pareto(results) == ("fast-fair", "middle", "slow-good")
