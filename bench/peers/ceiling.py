"""The highest rate that tritonkit could reach: the same server, with a backend that computes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.ceiling import add_ceiling

__all__ = ["command"]


def command(values: Mapping[str, str], home: Path) -> list[str]:
    """Makes the repository below `home`; the words that serve it under the network's own name."""
    repository = home / "ceiling-repository"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(Path(values["REPOSITORY"]) / values["MODEL"], repository / values["MODEL"])
    name = add_ceiling(repository, values["MODEL"])
    shutil.rmtree(repository / values["MODEL"])
    folder = (repository / name).rename(repository / values["MODEL"])
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace(f'"{name}"', f'"{values["MODEL"]}"'))
    return [
        f"{values['bin']}/python",
        "-m",
        "tritonkit",
        "serve",
        "--root",
        values["ROOT"],
        "--repository",
        str(repository),
        "--model",
        values["MODEL"],
        "--http",
        "--http-port",
        values["HTTP_PORT"],
        "--grpc-port",
        values["GRPC_PORT"],
        "--metrics-port",
        values["METRICS_PORT"],
    ]
