"""Golden cases: a spec and a signature in one file of `specs/`, and what they render to.

`PYTHONPATH=src python -m tests.repository.render.cases` rewrites every file of `golden/` and `gpu/golden/`.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.repository.render.networks import write_network
from tritonkit.repository.export.artifact import Artifact, Signature, TensorInfo
from tritonkit.repository.modelspec import Spec, load
from tritonkit.repository.render import ModelPlan, Target, plan_models, render_config

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
GPU = HERE / "gpu"
GPU_FEATURES = sorted(path.stem for path in (GPU / "specs").glob("*.yaml"))
GPU_TARGETS: tuple[Target, ...] = ("gpu", "nvidia")
FEATURES = sorted(path.stem for path in (HERE / "specs").glob("*.yaml"))


@dataclass(frozen=True)
class Case:
    """A golden case as the renderer takes it."""

    feature: str
    spec: Spec
    artifact: Artifact
    target: Target
    cores: int

    def plans(self) -> tuple[ModelPlan, ...]:
        """One plan per Triton model of the case."""
        return plan_models(self.spec, self.artifact, self.target, self.cores)

    def texts(self) -> dict[Path, str]:
        """Golden file -> the text rendered now."""
        plans = self.plans()
        return {self._golden(plan, len(plans)): self._render(plan) for plan in plans}

    def all_texts(self) -> dict[Path, str]:
        """These, and the files of the version's folder."""
        files = {name: text for plan in self.plans() for name, text in plan.version_texts.items()}
        return self.texts() | {GOLDEN / f"{self.feature}.{n}": text.decode() for n, text in files.items()}

    def _golden(self, plan: ModelPlan, count: int) -> Path:
        return GOLDEN / (f"{self.feature}.pbtxt" if count == 1 else f"{self.feature}.{plan.name}.pbtxt")

    def _render(self, plan: ModelPlan) -> str:
        source = f"models/{self.spec.name}/model.yaml"
        return render_config(plan, source=source, target=self.target, cores=self.cores)


def read_case(feature: str, root: Path) -> Case:
    """Lay out the project of a case below `root`, with an empty file for the network's weights."""
    facts = yaml.safe_load((HERE / "specs" / f"{feature}.yaml").read_text(encoding="utf-8"))
    return make_case(feature, facts, root)


def make_case(feature: str, facts: dict[str, Any], root: Path, target: Target | None = None) -> Case:
    """A case of `model`, `signature`, and optionally `files`, `file`, `variant`, `target` and `cores`."""
    target = target or facts.get("target", "cpu")
    folder = root / "models" / facts["model"]["name"]
    for name, text in facts.get("files", {}).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(yaml.safe_dump(facts["model"], sort_keys=False), encoding="utf-8")
    for network in ("model.onnx", "model.py"):
        (folder / network).touch()
    _copy_steps(root / "python_backends" / "steps")
    spec = load(folder, root, target)
    artifact = _artifact(spec, facts, folder, _signature(facts["signature"]))
    return Case(feature, spec, artifact, target, facts.get("cores", 2))


def _copy_steps(place: Path) -> None:
    for step in (HERE / "steps").glob("*/step.yaml"):
        folder = place / step.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(step, folder / "step.yaml")
        shutil.copyfile(HERE / "steps" / "zeros.py", folder / "model.py")


def read_gpu_cases(feature: str, root: Path) -> dict[Target, Case]:
    """A case of `gpu/specs/` for each target with GPUs: a spec of its own, or that of a shipped model."""
    facts = yaml.safe_load((GPU / "specs" / f"{feature}.yaml").read_text(encoding="utf-8"))
    return {target: _gpu_case(feature, facts, root, target) for target in GPU_TARGETS}


def _gpu_case(feature: str, facts: dict[str, Any], root: Path, target: Target) -> Case:
    if "shipped" not in facts:
        return make_case(feature, facts, root, target)
    project = HERE.parents[2]
    spec = load(project / "models" / facts["shipped"], project, target)
    root.mkdir(exist_ok=True)
    return Case(feature, spec, _artifact(spec, facts, root, Signature.declared(spec)), target, cores=4)


def gpu_texts(feature: str, root: Path) -> dict[Path, str]:
    """Golden file -> the text rendered now, for both targets."""
    return {
        GPU / "golden" / target / path.name: text
        for target, case in read_gpu_cases(feature, root).items()
        for path, text in case.texts().items()
    }


def _signature(tensors: dict[str, Any]) -> Signature:
    return Signature(
        inputs=tuple(_tensor(name, *tensor) for name, tensor in tensors["inputs"].items()),
        outputs=tuple(_tensor(name, *tensor) for name, tensor in tensors["outputs"].items()),
        batched=tensors.get("batched", True),
        single=tensors.get("single", False),
    )


def _artifact(spec: Spec, facts: dict[str, Any], folder: Path, signature: Signature) -> Artifact:
    if facts.get("network"):
        write_network(facts["network"], signature, folder / "model.onnx")
    given = facts.get("file", "model.onnx")
    files = dict.fromkeys([given] if isinstance(given, str) else given, "0" * 64)
    variant = facts.get("variant", "onnx-fp32")
    return Artifact(spec.name, variant, folder, files, signature, None, "0" * 64, {})


def _tensor(name: str, dtype: Any, shape: list[int | str], optional: bool = False) -> TensorInfo:
    sizes = tuple(-1 if isinstance(size, str) else size for size in shape)
    axes = tuple(s if isinstance(s, str) else "" for s in shape)
    return TensorInfo(name, dtype, sizes, axes, optional)


def refresh() -> None:
    """Rewrite the golden files and remove those no case makes."""
    for path in (*GOLDEN.glob("*.pbtxt"), *GPU.glob("golden/*/*.pbtxt")):
        path.unlink()
    for feature in FEATURES:
        with tempfile.TemporaryDirectory() as folder:
            _write(read_case(feature, Path(folder)).all_texts())
    for feature in GPU_FEATURES:
        with tempfile.TemporaryDirectory() as folder:
            _write(gpu_texts(feature, Path(folder)))


def _write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh()
