"""The script that makes the server's environment: which Python it takes, and what a failure leaves."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tritonkit.resources import shipped_modules
from tritonkit.serve.managed import environment_script, run_from_sources

script: Any = environment_script()
server_packages, server_python = shipped_modules(["python_backends"], "server_packages", "server_python")
VERSIONS = server_python.VERSIONS
BASE = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
FITS = sys.version_info[:2] in VERSIONS

fits = pytest.mark.skipif(not FITS, reason="this Python makes no server environment")


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No other Python, no uv, no compiler, no package index."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def write_wheel(folder: Path, *files: str, name: str = "other", version: str = "1.0") -> str:
    """A wheel of a package, `other` 1.0 by default, with these files; its hash."""
    path, facts = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "".join(f"{file},,\n" for file in files))
        for file in files:
            wheel.writestr(file, "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def required(file: Path) -> list[Requirement]:
    """The requirements of a file and of the files that it includes."""
    text = file.read_text()
    included = [file.parent / name for name in re.findall(r"(?m)^-r (\S+)$", text)]
    own = [Requirement(line) for line in re.findall(r"(?m)^\w.*", text)]
    return own + [package for other in included for package in required(other)]


@fits
def test_the_running_python_is_taken_where_it_fits() -> None:
    """In a virtual environment its base is taken, which stays when the environment is removed."""
    chosen = script.choose()
    assert Path(chosen.path).resolve() == BASE
    assert script.why(chosen) == "as this one"


@fits
def test_another_python_on_the_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other Python is taken if the running one has no wheel of the server's numpy."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    name = "python{}.{}".format(*sys.version_info[:2])
    (tmp_path / "bin" / name).symlink_to(BASE)
    assert script.choose().version == "{}.{}.{}".format(*sys.version_info[:3])
    assert "numpy has wheels for" in server_python.why(server_python.Interpreter("python3", "3.9.1", True))


@fits
def test_a_python_of_pyenv_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyenv's own folder of versions is searched, because it puts only one of them on PATH."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    program = tmp_path / "pyenv" / "versions" / "x" / "bin" / "python{}.{}".format(*sys.version_info[:2])
    program.parent.mkdir(parents=True)
    program.symlink_to(BASE)
    assert Path(script.choose().path).resolve() == BASE


def test_no_python_that_fits_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names apt and uv."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(script.InstallError, match=r"no Python 3\.11 or 3\.12") as caught:
        script.choose()
    assert "apt-get install" in caught.value.todo
    assert "pip install uv" in caught.value.todo


def test_another_file_than_pypis_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An index with other files of the locked version, changed or built by somebody, is refused."""
    write_wheel(tmp_path)
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"other==1.0 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(server_packages.InstallError, match=r"another file of other==1\.0") as caught:
        server_packages.install(Path(sys.prefix), lock, lambda text: None)
    assert "--no-hashes" in caught.value.todo


def locked_text(kind: Any) -> str:
    """A lock with the packages to which it refers."""
    reference = "-r requirements-common.lock\n"
    text = str(kind.lock.read_text())
    assert reference in text
    return text.replace(reference, script.COMMON.read_text())


@pytest.mark.parametrize("kind", [script.CPU, script.GPU], ids=["cpu", "gpu"])
def test_the_lock_fits_the_requirements(kind: Any) -> None:
    """One version of each package with hashes, for each Python and machine; `make lock` writes it again."""
    text = locked_text(kind).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}( |$)", line) for line in lines)
    locked = [Requirement(line.partition(" --hash")[0]) for line in lines]
    allowed_versions = {canonicalize_name(package.name): package.specifier for package in required(kind.requirements)}
    for (_, minor), machine in itertools.product(VERSIONS, ("x86_64", "aarch64")):
        environment = {
            "python_version": f"3.{minor}",
            "python_full_version": f"3.{minor}.0",
            "platform_machine": machine,
            "sys_platform": "linux",
            "implementation_name": "cpython",
        }
        here = [package for package in locked if package.marker is None or package.marker.evaluate(environment)]
        pins = {canonicalize_name(package.name): str(package.specifier).removeprefix("==") for package in here}
        assert len(pins) == len(here)
        assert [name for name, allowed in allowed_versions.items() if pins[name] not in allowed] == []


def test_an_environment_gets_its_own_modules(tmp_path: Path) -> None:
    """The modules are installed once, also next to those of an earlier version: the import and its module, no draft."""
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    run_from_sources(tmp_path)
    run_from_sources(tmp_path)
    assert sorted(file.name for file in packages.iterdir()) == ["tritonkit_sources.pth", "tritonkit_sources.py"]
    assert (packages / "tritonkit_sources.pth").read_text() == "import tritonkit_sources\n"
    run_from_sources(tmp_path / "absent")


@fits
@pytest.mark.slow
def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """If a package cannot be installed, the folder is removed again."""
    lines: list[str] = []
    with pytest.raises(script.InstallError, match=r"requirements\.lock cannot be installed"):
        script.make(tmp_path / "server", lines.append)
    assert not (tmp_path / "server").exists()
    assert any("0.8 GB" in line for line in lines)


def test_an_environment_is_whole_by_its_marker(tmp_path: Path) -> None:
    """The marker is written last, and names the requirements."""
    marker = tmp_path / script.MARKER
    assert not script.is_whole(tmp_path)
    for text, whole in (
        ("{", False),
        ("[]", False),
        (json.dumps({"made_from": "other"}), False),
        (json.dumps({"made_from": script.fingerprint()}), True),
        (json.dumps({"made_from": script.fingerprint(), "gpu": "cuda13"}), False),
        (json.dumps({"made_from": script.fingerprint(script.GPU), "gpu": "cuda13"}), True),
    ):
        marker.write_text(text)
        assert script.is_whole(tmp_path) is whole


@pytest.mark.parametrize("words", [("--gpu", "--cpu"), ("--no-gpu", "--gpu")])
def test_an_environment_has_one_kind(words: tuple[str, str], tmp_path: Path) -> None:
    """The script refuses both kinds together, before it writes anything."""
    done = subprocess.run(
        [sys.executable, script.__file__, str(tmp_path / "server"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "not allowed with argument" in done.stderr
    assert not (tmp_path / "server").exists()


def test_what_cannot_be_compiled_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The line says what the server does without the library, and what to install."""
    sources = tmp_path / "python_backends"
    shutil.copytree(script.HERE / "native", sources / "native", ignore=shutil.ignore_patterns("prebuilt"))
    monkeypatch.setattr(script, "HERE", sources)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(BASE)
    lines: list[str] = []
    script._compile(tmp_path / "venv", lines.append)
    guard, backends = lines
    assert guard.startswith("guard not compiled: the server runs unguarded; install gcc")
    assert backends.startswith("native backends not compiled: their Python stand-ins serve")
    assert len("".join(lines).splitlines()) == 1
    assert not (tmp_path / "venv" / script.GUARD).exists()


def test_a_disk_that_is_full_is_said_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk leaves nothing behind."""
    monkeypatch.setattr(script, "CPU", replace(script.CPU, size_gb=1e9))
    with pytest.raises(script.InstallError, match="GB free"):
        script.make(tmp_path / "server", print)
    assert os.listdir(tmp_path) == ["bin"]  # noqa: PTH208


def test_room_for_pytorch_is_counted_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment without it would have room."""
    monkeypatch.setattr(script, "CPU", replace(script.CPU, torch_room_gb=1e9))
    with pytest.raises(script.InstallError, match="GB free"):
        script.make(tmp_path / "server", print, torch=True)
    assert os.listdir(tmp_path) == ["bin"]  # noqa: PTH208


@pytest.mark.parametrize(("cuda", "for_gpu"), [("None", False), ("'13.0'", True)])
def test_a_pytorch_without_cuda_is_none_for_a_gpu(cuda: str, for_gpu: bool, tmp_path: Path) -> None:
    """It serves on the CPU alone, so it is installed again."""
    assert not script._has_torch(tmp_path, script.CPU)
    file = tmp_path / "lib" / "python3.12" / "site-packages" / "torch" / "version.py"
    file.parent.mkdir(parents=True)
    file.write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n")
    assert script._has_torch(tmp_path, script.CPU)
    assert script._has_torch(tmp_path, script.GPU) == for_gpu


def test_a_pytorch_that_stays_without_cuda_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message has the command that removes it."""
    monkeypatch.setattr(script, "install", lambda *words: None)
    monkeypatch.setattr(script, "GPU", replace(script.GPU, torch_room_gb=0))
    with pytest.raises(script.InstallError, match="PyTorch is there, and has no CUDA") as caught:
        script._add_torch(tmp_path, print, script.GPU)
    assert "pip uninstall torch" in caught.value.todo


@pytest.mark.parametrize(("kind", "version"), [(script.CPU, "2.13.0+cpu"), (script.GPU, "2.13.0")], ids=["cpu", "gpu"])
def test_a_gpu_gets_pypis_pytorch(kind: Any, version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A build for CPUs, which another index or folder has, goes before it elsewhere."""
    for build in ("2.13.0", "2.13.0+cpu"):
        write_wheel(tmp_path, name="torch", version=build)
    (torch,) = (package for package in required(kind.torch) if package.name == "torch")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(tmp_path / "got"), str(torch)]
    subprocess.run(words, check=True)
    assert [file.name for file in (tmp_path / "got").iterdir()] == [f"torch-{version}-py3-none-any.whl"]


def test_what_an_interrupted_installation_left_is_removed_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its half of an environment takes no room from the next one, and the environment that it put aside is back."""
    monkeypatch.setattr(script, "CPU", replace(script.CPU, size_gb=1e9))
    for name in ("server.draft", "server.draft-before"):
        (tmp_path / name).mkdir()
        (tmp_path / name / script.MARKER).write_text(name)
    with pytest.raises(script.InstallError, match="GB free"):
        script.make(tmp_path / "server", print)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "server"]
    assert (tmp_path / "server" / script.MARKER).read_text() == "server.draft-before"


def test_a_disk_that_fills_up_is_not_taken_for_an_index_out_of_reach() -> None:
    """The advice is about room, where pip has none left while it unpacks."""
    text = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    error = server_packages._not_installed(script.GPU.lock, text)
    assert str(error) == "requirements-gpu.lock cannot be installed: the disk is full"
    assert "PIP_INDEX_URL" not in error.todo


@fits
@pytest.mark.slow
def test_a_link_to_an_environment_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder that it names is made again, on its own disk; nothing is left next to either."""
    lock = tmp_path / "CPU.lock"
    lock.write_text(f"other==1.0 --hash=sha256:{write_wheel(tmp_path)}\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(script, "CPU", replace(script.CPU, lock=lock))
    place, link = tmp_path / "disk" / "server", tmp_path / "link"
    place.mkdir(parents=True)
    link.symlink_to(place)
    assert script.make(link, print)
    assert (link.is_symlink(), link.resolve(), script.is_whole(place)) == (True, place, True)
    assert [path.name for path in place.parent.iterdir()] == ["server"]
    assert not (tmp_path / "link.draft").is_symlink()


def test_the_environments_share_all_but_onnx_runtime() -> None:
    """ONNX Runtime comes for CPUs or for CUDA and never as both; other packages have the same versions in both."""
    cpu, gpu = (dict(re.findall(r"(?m)^(\S+)==(\S+)", locked_text(kind))) for kind in (script.CPU, script.GPU))
    assert set(cpu) - set(gpu) == {"onnxruntime"}
    assert {name for name in set(gpu) - set(cpu) if not name.startswith("nvidia-")} == {"onnxruntime-gpu"}
    assert {name: gpu[name] for name in cpu if name in gpu} == {name: cpu[name] for name in cpu if name in gpu}


@fits
@pytest.mark.slow
def test_an_environment_that_lacks_a_library_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The marker names CUDA's libraries, so that one that is gone is noticed; the others are not looked at."""
    lock, libraries = tmp_path / "GPU.lock", ("nvidia/cu13/lib/libcublas.so.13", "other/lib/libother.so")
    lock.write_text(f"other==1.0 --hash=sha256:{write_wheel(tmp_path, *libraries)}\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(script, "GPU", replace(script.GPU, lock=lock))
    folder, lines = tmp_path / "server", list[str]()
    assert script.make(folder, print, gpu=True)
    assert script.missing_libraries(folder) == []
    for library in libraries:
        next(folder.rglob(library)).unlink()
    assert script.missing_libraries(folder) == ["libcublas.so.13"]
    assert script.make(folder, lines.append)
    assert any("lacks libcublas.so.13: it is made again; packages that were added" in line for line in lines)
    assert (script.missing_libraries(folder), script.kind_of(folder).gpu) == ([], "cuda13")


@fits
@pytest.mark.slow
def test_a_change_that_fails_keeps_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment for CPUs serves until the one for a GPU is complete; then its own programs run in its place."""
    locks = {name: tmp_path / f"{name}.lock" for name in ("CPU", "GPU")}
    good = f"other==1.0 --hash=sha256:{write_wheel(tmp_path)}\n"
    locks["CPU"].write_text(good)
    locks["GPU"].write_text("absent==1.0 --hash=sha256:00\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    for name, lock in locks.items():
        monkeypatch.setattr(script, name, replace(getattr(script, name), lock=lock))
    folder, lines = tmp_path / "server", list[str]()
    assert script.make(folder, lines.append)
    with pytest.raises(script.InstallError, match=r"GPU\.lock cannot be installed"):
        script.make(folder, lines.append, gpu=True)
    assert (script.is_whole(folder), script.kind_of(folder).gpu) == (True, "")
    locks["GPU"].write_text(good)
    assert script.make(folder, lines.append, gpu=True)
    assert json.loads((folder / script.MARKER).read_text())["gpu"] == "cuda13"
    assert any("is for CPUs: it is replaced by one for an NVIDIA GPU" in line for line in lines)
    assert any("1.7 GB to download, 3 GB on the disk" in line for line in lines)
    assert not any(".draft" in line for line in lines)
    subprocess.run([folder / "bin" / "pip", "--version"], capture_output=True, check=True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("server")) == ["server"]
    script.make(folder, lines.append)
    assert script.kind_of(folder).gpu == "cuda13"
