"""Fixtures for every room's tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from tritonkit.repository.modelspec import Spec, load

# Before any test imports torch, as in extras.py: spinning threads starve each other on busy cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A job that a script puts into the background ignores interrupts, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# `nohup make test` has it ignored. A handler, unlike that, is not inherited by what the tests start and hang up on.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# A busy machine is no failure of a property: tests are no measurements.
hypothesis.settings.register_profile("tritonkit", deadline=None)
hypothesis.settings.load_profile("tritonkit")

pytest_plugins = [
    "tests.collected",
    "tests.once",
    "tests.parts",
    "tests.fakecuda",
    "tests.fakedriver",
    "tests.fakegpu",
    "tests.custom_operators",
    "tests.stores",
    "tests.wheels",
]

PROJECT = Path(__file__).resolve().parent.parent
_CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1500",
]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long bytes are named by their length. An archive holds the time, and each worker would collect other tests."""
    return f"{len(val)}-bytes" if isinstance(val, bytes) and len(val) > 32 else None


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's folder."""
    return PROJECT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty project: models/, and the real python_backends/ behind a link."""
    (tmp_path / "models").mkdir()
    (tmp_path / "python_backends").symlink_to(PROJECT / "python_backends")
    return tmp_path


WriteModel = Callable[..., Spec]


@pytest.fixture
def write_model(root: Path) -> WriteModel:
    """Write models/NAME/model.yaml and other files, and load it."""

    def write(text: str, name: str = "net", **files: str | bytes) -> Spec:
        folder = root / "models" / name
        folder.mkdir(exist_ok=True)
        (folder / "model.yaml").write_text(text)
        for file, content in files.items():
            path = folder / file.replace("__", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load(folder, root)

    return write


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Debian's Chromium with an empty profile."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium is not None
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*_CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}"]:
        options.add_argument(flag)
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture
def random() -> np.random.Generator:
    """The same random numbers for each test, whatever ran before it."""
    return np.random.default_rng(0)
