"""A project to load, made-up models behind a real gRPC connection, and Locust as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.conftest import serve
from tests.conftest import PROJECT
from tests.waiting import PATIENCE_S
from tritonkit.repository.export import load_hook
from tritonkit.repository.modelspec import load
from tritonkit.testing import FakeModel

__all__ = ["serve"]

FakeDigits = Callable[..., FakeModel]


def locust(*arguments: str, root: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    """Run Locust without its web page on a project's locustfile."""
    command = [sys.executable, "-m", "locust", "-f", str(root / "loadtest" / "locustfile.py")]
    return subprocess.run(
        [*command, "--headless", "--only-summary", "--loglevel", "WARNING", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=root,
        env={k: v for k, v in os.environ.items() if not k.startswith("LOCUST_")},
    )


def lines_of(done: subprocess.CompletedProcess[str], start: str) -> list[str]:
    """Lines of standard error that begin so."""
    return [line for line in done.stderr.splitlines() if line.startswith(start)]


@pytest.fixture(scope="session")
def labels() -> dict[bytes, str]:
    """The held-out PNG images of the digits and their labels."""
    hook = load_hook(load(PROJECT / "models" / "digits", PROJECT), "data:held_out_images", "test")
    return dict(hook(360))


@pytest.fixture
def fake_digits(labels: dict[bytes, str]) -> FakeDigits:
    """A model that knows every label; after a number of images it reads all of them wrong. It puts the images it has
    seen into a list, if it is given one."""

    def make(right_images: int = 2**31, pngs: list[bytes] | None = None) -> FakeModel:
        pngs = [] if pngs is None else pngs

        def read(inputs: Any) -> Any:
            best = []
            for png in inputs["image"].ravel():
                pngs.append(png)
                best.append([labels[png] if len(pngs) <= right_images else "?", "x"])
            return {"label": best, "score": np.ones((len(best), 2), np.float32)}

        return FakeModel(
            inputs={"image": ("BYTES", [1])},
            outputs={"label": ("BYTES", [2]), "score": ("FP32", [2])},
            function=read,
            max_batch_size=64,
        )

    return make
