"""Packages that a model's own Python has for itself: made by uv from a folder of wheels, and the words of refusals."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tests.wheels import write_sdist, write_wheel
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.environments import Environments, Interpreter, read_environment
from tritonkit.repository.environments.uv import index_settings, without_secrets
from tritonkit.repository.modelspec import Spec

SERVER = Interpreter("3.11", "1.26.4")
MODEL = """
name: net
network:
  python: model.py
  inputs: {{x: {{dtype: FP32, shape: [1]}}}}
  outputs: {{y: {{dtype: FP32, shape: [1]}}}}
python: {python}
"""


@pytest.fixture
def environments(tmp_path: Path) -> Environments:
    """The environments of a project, for a server with Python 3.11."""
    return Environments(tmp_path / "environments", lambda: SERVER)


def spec_of(write_model: WriteModel, python: str, **files: str) -> Spec:
    """A model whose Python has these requirements."""
    return write_model(MODEL.format(python=python), model__py="class TritonPythonModel: ...", **files)


def refused(environments: Environments, spec: Spec) -> BuildError:
    """The error of an environment that cannot be made; it names the place in model.yaml, and nothing is left."""
    with pytest.raises(BuildError) as caught:
        environments.make(spec)
    assert caught.value.where.startswith(f"{spec.file} python")
    assert list(environments.folder.glob("*")) == []
    assert list(environments.folder.glob(".draft-*")) == []
    return caught.value


def test_packages_are_made_once(package_index: Path, environments: Environments, write_model: WriteModel) -> None:
    """With what they require; a second build takes them as they are, and other requirements are another environment."""
    write_wheel(package_index, "apples", "1.0", requires=["pears<3"])
    for version in ("2.0", "3.0"):
        write_wheel(package_index, "pears", version)
    said: list[str] = []
    spec = spec_of(write_model, "{requirements: [apples]}")
    made = replace(environments, say=said.append).make(spec)
    folder = made.environments["net"]
    facts = read_environment(folder)
    assert facts is not None
    assert facts.packages == {"apples": "1.0", "pears": "2.0"}
    assert (facts.python, facts.numpy) == ("3.11", "1.26.4")
    files = [file for file in (folder / "site-packages").rglob("*") if file.is_file()]
    assert facts.size_bytes == sum(file.stat().st_size for file in files)
    assert "net: environment of 2 packages" in said[-1]
    assert "apples 1.0, pears 2.0" in said[-1]
    again: list[str] = []
    assert replace(environments, say=again.append).make(spec).environments == made.environments
    assert again == []
    other = environments.make(spec_of(write_model, "{requirements: [pears==3.0]}")).environments["net"]
    assert other != folder
    assert environments.make(spec_of(write_model, "{requirements: [pears==3.0], version: '3.12'}")).environments[
        "net"
    ] not in (other, folder)


def test_numpy_is_the_servers(package_index: Path, environments: Environments, write_model: WriteModel) -> None:
    """It decides which versions are taken, and is left out: Triton's stub has loaded it."""
    for version in ("1.26.4", "2.1.0"):
        write_wheel(package_index, "numpy", version, {"numpy/__init__.py": ""})
    write_wheel(package_index, "apples", "1.0", requires=["numpy"])
    write_wheel(package_index, "apples", "2.0", requires=["numpy>=2"])
    folder = environments.make(spec_of(write_model, "{requirements: [apples]}")).environments["net"]
    facts = read_environment(folder)
    assert facts is not None
    assert facts.packages == {"apples": "1.0"}
    assert not list((folder / "site-packages").glob("numpy*"))


def test_requirements_that_the_servers_numpy_does_not_meet(
    package_index: Path, environments: Environments, write_model: WriteModel
) -> None:
    """One message with the place, the numpy, and uv's own explanation."""
    for version in ("1.26.4", "2.1.0"):
        write_wheel(package_index, "numpy", version, {"numpy/__init__.py": ""})
    write_wheel(package_index, "apples", "2.0", requires=["numpy>=2"])
    error = refused(environments, spec_of(write_model, "{requirements: [apples>=2]}"))
    assert error.found == "they cannot be met together with the server's numpy"
    assert "numpy 1.26.4" in error.wanted
    assert "numpy>=2" in error.details


def test_requirements_that_do_not_fit_each_other(
    package_index: Path, environments: Environments, write_model: WriteModel
) -> None:
    """The message has uv's explanation, and says nothing of numpy."""
    write_wheel(package_index, "apples", "1.0", requires=["pears<3"])
    write_wheel(package_index, "pears", "3.0")
    error = refused(environments, spec_of(write_model, "{requirements: [apples, pears==3.0]}"))
    assert error.found == "they cannot be met together"
    assert "pears<3" in error.details


@pytest.mark.parametrize(("text", "missing"), [("plums", "plums"), ("apples==3.0", "apples==3.0")])
def test_packages_that_the_index_has_not(
    package_index: Path, environments: Environments, write_model: WriteModel, text: str, missing: str
) -> None:
    """A wrong name or version is named, also next to numpy."""
    write_wheel(package_index, "apples", "1.0")
    write_wheel(package_index, "numpy", "1.26.4", {"numpy/__init__.py": ""})
    error = refused(environments, spec_of(write_model, f"{{requirements: [{text}, numpy]}}"))
    assert error.found == f"the index has no {missing}"


def test_requirements_that_the_server_meets(
    package_index: Path, environments: Environments, write_model: WriteModel
) -> None:
    """An environment without packages is one too."""
    write_wheel(package_index, "numpy", "1.26.4", {"numpy/__init__.py": ""})
    said: list[str] = []
    replace(environments, say=said.append).make(spec_of(write_model, "{requirements: [numpy]}"))
    assert said[-1] == "net: environment of 0 packages, 0 B"


def test_code_of_packages_runs_only_where_it_is_allowed(
    package_index: Path, environments: Environments, write_model: WriteModel
) -> None:
    """A source distribution is refused; `sources: true` needs the server's own Python."""
    write_sdist(package_index, "apples", "1.0")
    error = refused(environments, spec_of(write_model, "{requirements: [apples]}"))
    assert error.found == f"a package has no wheel for Python 3.11 on {SERVER.machine}"
    assert "sources: true" in error.todo
    error = refused(environments, spec_of(write_model, "{requirements: [apples], sources: true}"))
    assert "is not on this machine" in error.found
    here = replace(environments, interpreter=lambda: replace(SERVER, program=Path(sys.executable)))
    error = refused(here, spec_of(write_model, "{requirements: [apples], sources: true}"))
    assert error.found == "a package cannot be built"


@pytest.mark.parametrize(
    "tag", ["cp310-cp310-manylinux_2_17_x86_64", "cp311-cp311-win_amd64", "cp311-cp311-manylinux_2_40_x86_64"]
)
def test_wheels_for_other_servers(
    package_index: Path, environments: Environments, write_model: WriteModel, tag: str
) -> None:
    """Another Python, another system, a newer C library: the message says what the server is."""
    write_wheel(package_index, "apples", "1.0", tag=tag)
    error = refused(environments, spec_of(write_model, "{requirements: [apples]}"))
    assert error.found == f"a package has no wheel for Python 3.11 on {SERVER.machine}"


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12"])
def test_the_wheel_of_the_servers_python_is_taken(
    package_index: Path, tmp_path: Path, write_model: WriteModel, python: str
) -> None:
    """NVIDIA's images have another one than tritonkit's, which this Python need not be."""
    for version in ("3.10", "3.11", "3.12"):
        tag = f"cp{version.replace('.', '')}"
        files = {"apples.py": f'MADE_FOR = "{version}"\n'}
        write_wheel(package_index, "apples", "1.0", files, tag=f"{tag}-{tag}-manylinux_2_17_{SERVER.machine}")
    environments = Environments(tmp_path / "environments", lambda: Interpreter(python))
    folder = environments.make(spec_of(write_model, "{requirements: [apples]}")).environments["net"]
    assert (folder / "site-packages" / "apples.py").read_text() == f'MADE_FOR = "{python}"\n'
    made = read_environment(folder)
    assert made is not None
    assert made.python == python


def test_a_lock_is_held_to_its_hashes(package_index: Path, environments: Environments, write_model: WriteModel) -> None:
    """A file with another hash than the lock names is not installed; with the right one it is."""
    from hashlib import sha256

    digest = sha256(write_wheel(package_index, "apples", "1.0").read_bytes()).hexdigest()
    lock = "# a comment\napples==1.0 \\\n    --hash=sha256:{digest}\n"
    python = "{requirements: apples.lock}"
    error = refused(environments, spec_of(write_model, python, apples__lock=lock.format(digest="0" * 64)))
    assert "another hash" in error.found
    made = environments.make(spec_of(write_model, python, apples__lock=lock.format(digest=digest)))
    assert (made.environments["net"] / "site-packages" / "apples.py").is_file()


def test_an_index_that_cannot_be_reached(
    package_index: Path, environments: Environments, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says so, and the password of its address is nowhere in it."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:hunter2@127.0.0.1:9/simple")
    error = refused(environments, spec_of(write_model, "{requirements: [apples]}"))
    assert error.found == "the package index cannot be reached"
    assert "hunter2" not in str(error) + error.details


def test_two_builds_at_once_make_one_environment(
    package_index: Path, environments: Environments, write_model: WriteModel
) -> None:
    """The second waits for the first, and takes what it made."""
    write_wheel(package_index, "apples", "1.0")
    spec = spec_of(write_model, "{requirements: [apples]}")
    said: list[str] = []
    heard = replace(environments, say=said.append)
    with ThreadPoolExecutor(4) as pool:
        folders = {made.environments["net"] for made in pool.map(heard.make, [spec] * 4)}
    assert len(folders) == 1
    assert [line for line in said if "making" in line] == [said[0]]


def test_what_a_killed_build_left_is_made_again(
    package_index: Path, environments: Environments, write_model: WriteModel
) -> None:
    """An environment without its facts is not taken, and the drafts of builds that ended are removed."""
    write_wheel(package_index, "apples", "1.0")
    spec = spec_of(write_model, "{requirements: [apples]}")
    folder = environments.make(spec).environments["net"]
    (folder / "environment.json").unlink()
    (environments.folder / ".draft-left").mkdir()
    assert environments.make(spec).environments["net"] == folder
    assert read_environment(folder) is not None
    assert [path.name for path in environments.folder.iterdir()] == [folder.name]


@pytest.mark.parametrize(
    "text",
    [
        "--index-url https://x",
        "-e .",
        "./apples",
        "apples @ file:///apples.whl",
        "apples @ https://u:p@x/apples.whl",
        "",
    ],
)
def test_requirements_that_name_other_places(write_model: WriteModel, text: str) -> None:
    """Options, paths and passwords are refused in a list and in a file, before anything runs."""
    for python, file in ((f"{{requirements: [{json.dumps(text)}]}}", "apples"), ("{requirements: r.txt}", text)):
        with pytest.raises(SpecError) as caught:
            spec_of(write_model, python, r__txt=file)
        assert "u:p@" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{requirements: no.txt}", "there is no file 'no.txt'"),
        ("{requirements: ../r.txt}", "leaves the model's folder"),
        ("{requirements: []}", "at least one"),
        ("{requirements: [apples], version: '2.7'}", "3.11"),
    ],
)
def test_requirements_that_cannot_be_read(write_model: WriteModel, text: str, found: str) -> None:
    """One message with the place in model.yaml."""
    with pytest.raises(SpecError) as caught:
        spec_of(write_model, text)
    assert "model.yaml" in caught.value.where
    assert found in str(caught.value)


def test_a_lock_with_a_gap(write_model: WriteModel) -> None:
    """Hashes of some packages only would not hold the others to anything."""
    lock = f"apples==1.0 --hash=sha256:{'0' * 64}\npears==2.0\n"
    with pytest.raises(SpecError, match=r"has hashes, and none for pears==2\.0"):
        spec_of(write_model, "{requirements: r.lock}", r__lock=lock)


def test_the_index_is_that_of_pips_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unless uv has one of its own; a variable goes before a file."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://file/simple\nextra-index-url =\n  https://a\n  https://b\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    settings, options = index_settings()
    assert settings["UV_DEFAULT_INDEX"] == "https://file/simple"
    assert settings["UV_INDEX"] == "https://a https://b"
    assert options == ["--index-strategy", "unsafe-best-match"]  # as pip itself takes several indexes
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    settings, options = index_settings()
    assert settings["UV_DEFAULT_INDEX"] == "https://variable/simple"
    assert options == ["--no-index", "--index-strategy", "unsafe-best-match"]
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own/simple")
    assert index_settings() == ({}, [])


def test_passwords_are_left_out_of_words() -> None:
    """uv's words may have the address of an index."""
    assert (
        without_secrets("at https://user:pass@host/simple, https://user:p@ss@host/simple or http://host/x@1")
        == "at https://...@host/simple, https://...@host/simple or http://host/x@1"
    )


def test_the_numpy_of_servers_is_the_one_of_their_lock(project: Path) -> None:
    """A build without a server on the machine takes the numpy and Python that servers have."""
    lock = (project / "python_backends" / "requirements-common.lock").read_text()
    assert f"numpy=={Interpreter().numpy} " in lock
    dockerfile = (project / "deploy" / "docker" / "Dockerfile").read_text()
    assert f"\nARG BASE=python:{Interpreter().version}." in dockerfile
