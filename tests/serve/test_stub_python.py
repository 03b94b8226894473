"""The Python for which a build makes packages of models' own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.releases import NVIDIA_IMAGE_VARIABLE
from tritonkit.serve.install import VENV_VARIABLE
from tritonkit.serve.stub_python import VARIABLE, numpy_of, stub_python


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a server."""
    monkeypatch.setenv(VENV_VARIABLE, str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(NVIDIA_IMAGE_VARIABLE, raising=False)


def test_without_a_server_it_is_this_one(tmp_path: Path) -> None:
    """The image that builds has the Python of the image that serves; a server has no other than these."""
    here = ".".join(map(str, sys.version_info[:2]))
    found = stub_python(tmp_path, "cpu")
    assert found.version == (here if here in ("3.11", "3.12") else "3.11")


@pytest.mark.parametrize(
    ("image", "python"),
    [
        (None, "3.10"),
        ("", "3.10"),
        ("nvcr.io/nvidia/tritonserver:24.10-py3", "3.10"),
        ("registry.example:5000/nvidia/tritonserver:24.11-vllm-python-py3", "3.12"),
        ("nvcr.io/nvidia/tritonserver:26.05-py3@sha256:12", "3.12"),
        ("registry.example:5000/triton:of-ours", "3.10"),
    ],
)
def test_nvidias_image_has_a_python_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str | None, python: str
) -> None:
    """The release that the image's tag names decides, for packages and for a build next to such an image."""
    if image is not None:
        monkeypatch.setenv(NVIDIA_IMAGE_VARIABLE, image)
    assert stub_python(tmp_path, "nvidia").version == python


def test_nvidias_own_installation_has_the_python_of_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder says which release it is."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tritonserver").touch(mode=0o755)
    (tmp_path / "backends").mkdir()
    (tmp_path / "TRITON_VERSION").write_text("2.54.0\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert stub_python(tmp_path, "cpu").version == "3.12"


def test_a_server_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable names its Python, which need not be on this machine; a Python that no server has is refused."""
    monkeypatch.setenv(VARIABLE, "3.13")
    assert stub_python(tmp_path, "gpu").version == "3.13"
    monkeypatch.setenv(VARIABLE, "2.7")
    with pytest.raises(UsageError, match="TRITONKIT_STUB_PYTHON") as caught:
        stub_python(tmp_path, "cpu")
    assert "3.11" in caught.value.wanted


def test_the_numpy_of_a_server(tmp_path: Path) -> None:
    """It is read from the names of installed packages."""
    assert numpy_of(tmp_path) == ""
    (tmp_path / "lib" / "python3.12" / "site-packages" / "numpy-1.26.3.dist-info").mkdir(parents=True)
    assert numpy_of(tmp_path) == "1.26.3"
