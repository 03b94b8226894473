"""Checkpoints as model folders, built and served by a real Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tritonkit import Client
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.scaffold import new_from_hf
from tritonkit.serve import serve

__all__ = ["served"]


@contextmanager
def served(
    project: Path, checkpoints: Mapping[str, Path], change: Callable[[Path], None] = lambda spec: None
) -> Iterator[Client]:
    """A client of a server that has a model for each checkpoint, by the models' names.

    Args:
        change: a function that may change each model.yaml before it is built.
    """
    for name, folder in checkpoints.items():
        new_from_hf(project, name, folder)
        change(project / "models" / name / "model.yaml")
    repository = build_repository(project)
    with (
        serve(repository.path, root=project, grpc_port=0, http_port=0, metrics_port=0) as endpoint,
        Client(endpoint.grpc) as client,
    ):
        yield client
