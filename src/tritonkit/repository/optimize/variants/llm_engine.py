"""The variant of a language model that an engine on GPUs serves: the checkpoint itself, which stays in its place."""

from __future__ import annotations

from pathlib import Path

from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.optimize.job import Job

__all__ = ["make"]


def make(job: Job, folder: Path) -> tuple[str, ...]:
    """Copy the checkpoint's files other than weights; config.json has the network's size.

    Raises:
        BuildError: the checkpoint cannot be read.
    """
    for file in job.checkpoint.carried:
        copy_file(file, folder / file.name)
    return ()
