"""The images that the suite runs, made here by docker, and brought to the cluster's nodes.

    python -m tests.operate.deploy.cluster.images [--out DIR]

It builds them, and with `--out` writes a tar file of each, for nodes that no registry reaches
(`ctr --namespace k8s.io images import FILE`). docs/tests.md says how TRITONKIT_CLUSTER_IMAGES brings them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

__all__ = ["ALL", "MODELS", "PROMETHEUS", "SERVER", "TOOLS", "Delivery", "build", "delivery", "save"]

PROJECT = Path(__file__).resolve().parents[4]
REPOSITORY = PROJECT / "model_repository"
SERVER = "tritonkit/server:0.1.0"
TOOLS = "tritonkit/tools:0.1.0"
PROMETHEUS = "tritonkit/prometheus:local"
"""An image made by deploy/docker/local-base.sh: no registry is needed."""
MODELS = {name: f"tritonkit/models:cluster-{name}" for name in ("one", "two", "broken")}
"""`two` has version 2 of digits, `broken` a version 3 that no server can load."""
ALL = (SERVER, TOOLS, PROMETHEUS, *MODELS.values())
_OPERATOR = "example.missing"
"""The domain of an operator that nobody has."""


def run(*words: str, **variables: str) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=PROJECT, env=os.environ | variables)
    if done.returncode:
        raise SystemExit(f"error: {shlex.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build() -> None:
    """All images, from this checkout and its model repository."""
    if not (REPOSITORY / "digits" / "1").is_dir():
        raise SystemExit(f"error: {REPOSITORY} is not built\n  do: tritonkit build")
    base = dict(line.split("=", 1) for line in run("deploy/docker/local-base.sh").splitlines() if line)[
        "TRITONKIT_BASE"
    ]
    for target, tag in (("server", SERVER), ("tools", TOOLS)):
        run(
            "docker",
            "build",
            "--network",
            "host",
            "--tag",
            tag,
            "--target",
            target,
            "--build-arg",
            f"BASE={base}",
            "--file",
            "deploy/docker/Dockerfile",
            ".",
        )
    changes: dict[str, Callable[[Path], None]] = {"one": lambda folder: None, "two": renumber, "broken": damage}
    for name, change in changes.items():
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work) / "repository"
            shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns("resnet50*"))
            change(folder)
            words = ("--repository", str(folder), "--server", SERVER, "--tag", MODELS[name])
            run(sys.executable, "-m", "tritonkit.cli", "deploy", "image", *words)


def renumber(repository: Path, version: int = 2) -> None:
    """The versions 1 of digits and of its parts become another."""
    for folder in sorted(repository.glob("digits*")):
        (folder / "1").rename(folder / str(version))
        change_manifest(folder / str(version), version=version)


def damage(repository: Path) -> None:
    """Another version of digits, whose network asks for an operator that no server has; its manifest is right."""
    import onnx

    renumber(repository, 3)
    file = repository / "digits_network" / "3" / "model.onnx"
    model = onnx.load(file)
    model.graph.node[0].domain = _OPERATOR
    model.opset_import.append(onnx.helper.make_opsetid(_OPERATOR, 1))
    onnx.save(model, file)
    content = file.read_bytes()
    change_manifest(file.parent, files={file.name: sha256(content).hexdigest()}, sizes={file.name: len(content)})


def change_manifest(folder: Path, **keys: Any) -> None:
    """Write other values into a manifest."""
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def save(folder: Path) -> list[Path]:
    """A tar file of each image."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for tag in ALL:
        file = folder / f"{tag.replace('/', '-').replace(':', '-')}.tar"
        run("docker", "save", "--output", str(file), tag)
        files.append(file)
    return files


@dataclass(frozen=True)
class Delivery:
    """A way to bring images to the nodes, and their names there."""

    bring: Callable[[], None]
    prefix: str = ""

    def name(self, tag: str) -> str:
        """An image's name in the cluster."""
        return self.prefix + tag


def delivery(choice: str) -> Delivery:
    """The delivery that TRITONKIT_CLUSTER_IMAGES requests."""
    kind, _, rest = choice.partition(":")
    if kind == "loaded":
        return Delivery(lambda: None)
    if not rest or kind not in ("kind", "ctr", "registry"):
        raise SystemExit(
            f"error: TRITONKIT_CLUSTER_IMAGES is {choice!r}\n"
            "  wanted: loaded, kind:CLUSTER, ctr:COMMAND or registry:HOST (docs/tests.md)"
        )
    if kind == "kind":
        return Delivery(lambda: _built_and("kind", "load", "docker-image", "--name", rest, *ALL))
    if kind == "ctr":
        return Delivery(lambda: _imported(shlex.split(rest)))
    return Delivery(lambda: _pushed(rest), f"{rest}/")


def _built_and(*words: str) -> None:
    build()
    run(*words)


def _imported(command: list[str]) -> None:
    build()
    with tempfile.TemporaryDirectory() as folder:
        for file in save(Path(folder)):
            run(*command, str(file))


def _pushed(host: str) -> None:
    build()
    for tag in ALL:
        run("docker", "tag", tag, f"{host}/{tag}")
        run("docker", "push", "--quiet", f"{host}/{tag}")


def main() -> None:
    """Build, and write tar files."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.operate.deploy.cluster.images",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    build()
    for image in save(options.out) if options.out else ALL:
        print(image)  # noqa: T201


if __name__ == "__main__":
    main()
