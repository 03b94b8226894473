"""Sizes of the images that docker compose runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from bench.programs import ROOT

__all__ = ["image_sizes"]

_IMAGE = re.compile(r"^\s+image: \$\{(\w+):-([^}]+)\}", re.MULTILINE)


def image_sizes() -> dict[str, int]:
    """Bytes of each local image of docker-compose.yml, as `docker images` counts them: a shared layer counts for every
    image. Empty if docker does not answer."""
    docker = shutil.which("docker")
    if docker is None:
        return {}
    sizes = {}
    for image in _images():
        done = subprocess.run(
            [docker, "image", "inspect", "--format", "{{.Size}}", image], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            sizes[image] = int(done.stdout)
    return sizes


def _images() -> list[str]:
    """The images' names, with the variables of this shell and of `.env`."""
    file = ROOT / ".env"
    lines = file.read_text().splitlines() if file.is_file() else []
    variables = dict(line.split("=", 1) for line in lines if "=" in line) | os.environ
    named = _IMAGE.findall((ROOT / "docker-compose.yml").read_text())
    return sorted({variables.get(variable, default) for variable, default in named})
