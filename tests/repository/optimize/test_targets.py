"""The targets of a build that can serve a variant."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import WriteModel
from tests.fakedriver import FakeDriver
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.errors import RenderError, SpecError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize import gpu
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.optimize.results import wanted_variants
from tritonkit.repository.optimize.variants import FORMS, TARGETS, for_target, servable
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.render.gpu_memory import Card
from tritonkit.serve import judge
from tritonkit.serve.core import devices


def of_variant(write_model: WriteModel, variant: str) -> Spec:
    """A Relu that is served in a form."""
    text = f"name: net\nnetwork: {{onnx: net.onnx}}\nserving: {{variant: {variant}}}\n"
    return write_model(text, net__onnx=onnx_file(RELU, ["b", 4]))


def test_a_variant_that_a_target_cannot_serve_is_refused(write_model: WriteModel) -> None:
    """The message says which variants it can serve, and which target can serve this one."""
    spec = of_variant(write_model, "onnx-tf32")
    assert for_target(spec, "gpu") is spec
    with pytest.raises(SpecError) as caught:
        for_target(spec, "cpu")
    assert "onnx-tf32, which --target cpu cannot serve" in caught.value.found
    assert "onnx-fp32" in caught.value.wanted
    assert "onnx-tf32" not in caught.value.wanted
    assert "--target gpu" in caught.value.todo


@pytest.mark.parametrize("target", TARGETS)
def test_all_variants_are_those_of_the_target(write_model: WriteModel, target: str) -> None:
    """`all` leaves out what could not be served; a name is built for any target."""
    spec = of_variant(write_model, "onnx-fp32")
    names = {variant.name for variant in wanted_variants(spec, ("all",), target)}
    assert names & FORMS.keys() == {name for name in FORMS if servable(name, target)}
    assert "onnx-tf32" in {variant.name for variant in wanted_variants(spec, ("onnx-tf32",), target)}


def test_a_build_says_why_it_judged_on_the_cpu(write_model: WriteModel, root: Path) -> None:
    """Figures of a CPU are not those of the GPU that serves."""
    of_variant(write_model, "onnx-fp32")
    built = build_repository(root, ("net",), target="gpu", out=root / "out", gpu="there is none")
    assert "target gpu: variants were judged on the CPU: there is none" in built.notes


def test_a_build_says_that_the_gate_has_not_judged_the_answers(write_model: WriteModel, root: Path) -> None:
    """A variant that only a GPU can run passes no gate without one; all others do."""
    of_variant(write_model, "onnx-tf32")
    [note] = [note for note in build_repository(root, ("net",), target="gpu", out=root / "out").notes if "tf32" in note]
    assert note.startswith("net: onnx-tf32 is served, and the gate has not judged its answers")
    of_variant(write_model, "onnx-fp32")
    notes = build_repository(root, ("net",), target="gpu", out=root / "out").notes
    assert not [note for note in notes if "has not judged" in note]


def test_a_gpu_is_named_with_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures count for both."""
    monkeypatch.setattr(gpu, "find_gpu", lambda: "NVIDIA Fake 80GB")
    monkeypatch.setattr(gpu, "_DRIVER", tmp_path / "version")
    assert gpu.described_gpu() == "NVIDIA Fake 80GB, driver unknown"
    (tmp_path / "version").write_text("580.159.04\n")
    assert gpu.described_gpu() == "NVIDIA Fake 80GB, driver 580.159.04"


def test_the_judge_is_the_servers_environment(
    fake_driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lack is a reason to judge on the CPU."""
    fake_driver.answer(monkeypatch)
    python: Path | None = None
    monkeypatch.setattr(judge, "find_server", lambda root: SimpleNamespace(python_bin=python))
    assert judge.find_build_gpu(tmp_path).judge == "tritonserver on PATH is not tritonkit's own"
    python = tmp_path / "bin"
    reason = judge.find_build_gpu(tmp_path).judge
    assert isinstance(reason, str)
    assert "its CUDA provider is not installed (tritonkit server install --gpu)" in reason
    monkeypatch.setattr(judge, "why_no_provider", lambda environment: "")
    monkeypatch.setattr(judge, "cuda_libraries", lambda environment: (environment / "libcudart.so.13",))
    found = judge.find_build_gpu(tmp_path).judge
    assert isinstance(found, GpuJudge)
    assert found.environment.python == tmp_path / "bin" / "python"
    assert found.environment.libraries == (str(tmp_path / "libcudart.so.13"),)
    assert found.environment.gpu == "NVIDIA H100 80GB HBM3, driver 580.159.04"


@pytest.mark.parametrize(
    ("facts", "reason"), [({"devices": 0}, "CUDA sees no GPU"), ({"hangs": 1}, "the NVIDIA driver hangs: no answer")]
)
def test_without_a_gpu_that_answers_the_cpu_judges(
    fake_driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, int], reason: str
) -> None:
    """The driver is asked once, and for a bounded time; there is no card that would have to hold the networks."""
    fake_driver.answer(monkeypatch, **facts)
    monkeypatch.setattr(devices, "_ASK_S", 0.5 if "hangs" in facts else 60.0)
    found = judge.find_build_gpu(tmp_path)
    assert found.card is None
    assert isinstance(found.judge, str)
    assert found.judge.startswith(reason)


def test_a_network_that_this_machines_gpu_cannot_hold_is_refused(
    write_model: WriteModel, root: Path, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights count once, because instances without graphs share them; nothing counts on the CPU."""
    fake_driver.answer(monkeypatch, bytes=50)
    card = judge.find_build_gpu(root).card
    assert card == Card("NVIDIA H100 80GB HBM3", 50)
    serving = "serving: {max_batch_size: 64, instance_group: [{kind: gpu, count: 2}]}"
    text = f"name: net\nnetwork: {{onnx: net.onnx}}\n{serving}\n"
    spec = write_model(text, net__onnx=onnx_file(RELU, ["b", 4]))
    build = partial(build_repository, root, ("net",), target="gpu", out=root / "out", card=card)
    with pytest.raises(RenderError) as caught:
        build()
    assert caught.value.exit_code == 3
    assert caught.value.where == f"{spec.file} serving"
    assert "net takes 75 B of a GPU at least, for 2 instances (weights 75 B)" in caught.value.found
    assert "NVIDIA H100 80GB HBM3, has 50 B" in caught.value.found
    assert "CUDA_VISIBLE_DEVICES= tritonkit build" in caught.value.todo
    assert build(card=replace(card, memory_bytes=100)).served == {"net": "onnx-fp32"}
    write_model(text.replace("gpu", "cpu"), net__onnx=onnx_file(RELU, ["b", 4]))
    assert build(force=True).served == {"net": "onnx-fp32"}


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_has_no_card(tmp_path: Path) -> None:
    """Nothing is refused there: the repository is for another machine."""
    assert judge.find_build_gpu(tmp_path).card is None
