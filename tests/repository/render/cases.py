"""Golden cases: a spec and a signature in one file of `specs/`, and what they render to.

`PYTHONPATH=src python -m tests.repository.render.cases` rewrites every file of `golden/`.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tritonkit.repository.export.artifact import Artifact, Signature, TensorInfo
from tritonkit.repository.modelspec import Spec, load
from tritonkit.repository.render import ModelPlan, Target, plan_models, render_config

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
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


def make_case(feature: str, facts: dict[str, Any], root: Path) -> Case:
    """A case of `model`, `signature`, and optionally `files`, `file`, `variant`, `target` and `cores`."""
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
    spec = load(folder, root)
    artifact = _artifact(spec, facts, folder)
    return Case(feature, spec, artifact, facts.get("target", "cpu"), facts.get("cores", 2))


def _copy_steps(place: Path) -> None:
    for step in (HERE / "steps").glob("*/step.yaml"):
        folder = place / step.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(step, folder / "step.yaml")
        shutil.copyfile(HERE / "steps" / "zeros.py", folder / "model.py")


def _artifact(spec: Spec, facts: dict[str, Any], folder: Path) -> Artifact:
    tensors = facts["signature"]
    signature = Signature(
        inputs=tuple(_tensor(name, *tensor) for name, tensor in tensors["inputs"].items()),
        outputs=tuple(_tensor(name, *tensor) for name, tensor in tensors["outputs"].items()),
        batched=tensors.get("batched", True),
        single=tensors.get("single", False),
    )
    files = {facts.get("file", "model.onnx"): "0" * 64}
    variant = facts.get("variant", "onnx-fp32")
    return Artifact(spec.name, variant, folder, files, signature, None, "0" * 64, {})


def _tensor(name: str, dtype: Any, shape: list[int | str], optional: bool = False) -> TensorInfo:
    sizes = tuple(-1 if isinstance(size, str) else size for size in shape)
    axes = tuple(s if isinstance(s, str) else "" for s in shape)
    return TensorInfo(name, dtype, sizes, axes, optional)


def refresh() -> None:
    """Rewrite the golden files and remove those no case makes."""
    for path in GOLDEN.glob("*.pbtxt"):
        path.unlink()
    for feature in FEATURES:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in read_case(feature, Path(folder)).all_texts().items():
                path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh()
