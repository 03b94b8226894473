"""Finding a server, and saying what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.raw import library_path
from tritonkit.errors import ServerNotFound
from tritonkit.serve import install, libpython
from tritonkit.serve.install import VENV_VARIABLE, environment_at, find_server
from tritonkit.serve.libpython import check_glibc, find_libpython, need_libpython
from tritonkit.serve.managed import cache_folder, managed_place, remove


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server on PATH, in the environment, the working directory or this checkout."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv(VENV_VARIABLE, raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(install, "clone", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_venv(folder: Path, python: str = "3.11", stub: str = "3.11") -> Path:
    """The parts of a server environment that matter, with a libpython of its own."""
    packages = folder / "lib" / f"python{python}" / "site-packages"
    triton = packages / "pytriton" / "tritonserver"
    for file in (
        triton / "bin" / "tritonserver",
        triton / "backends" / "python" / "libtriton_python.so",
        triton / "python_backend_stubs" / stub / "triton_python_backend_stub",
        packages / "nvidia_pytriton-0.7.0.dist-info" / "METADATA",
        folder / "base" / "lib" / f"libpython{python}.so.1.0",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (folder / "pyvenv.cfg").write_text(f"home = {folder}/base/bin\nversion = {python}.7\n")
    return folder


def test_no_server_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the command: the Makefile's in a clone, tritonkit's own elsewhere."""
    with pytest.raises(ServerNotFound) as caught:
        find_server(tmp_path)
    assert "tritonkit server install" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    monkeypatch.setattr(install, "clone", lambda: tmp_path)
    with pytest.raises(ServerNotFound, match="make setup"):
        find_server(tmp_path)


def test_the_environment_below_the_project_is_found(tmp_path: Path) -> None:
    """All its parts are named by their places."""
    venv = write_venv(tmp_path / ".venv-server")
    server = find_server(tmp_path)
    assert server.binary.is_file()
    assert server.stub is not None
    assert server.stub.is_file()
    assert server.python_bin == venv / "bin"
    assert (server.python, server.version, server.native) == ("3.11", "nvidia-pytriton 0.7.0", False)
    assert venv / "base" / "lib" in server.libraries


def test_the_variable_goes_before_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRITONKIT_SERVER_VENV names another environment."""
    write_venv(tmp_path / ".venv-server")
    other = write_venv(tmp_path / "other", python="3.12", stub="3.12")
    monkeypatch.setenv(VENV_VARIABLE, str(other))
    assert find_server(tmp_path).python == "3.12"


def test_nvidias_own_goes_before_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tritonserver on PATH keeps its backends and its version."""
    write_venv(tmp_path / ".venv-server")
    home = tmp_path / "opt" / "tritonserver"
    (home / "bin").mkdir(parents=True)
    (home / "backends").mkdir()
    (home / "bin" / "tritonserver").touch(mode=0o755)
    (home / "TRITON_VERSION").write_text("2.61.0\n")
    monkeypatch.setenv("PATH", str(home / "bin"))
    server = find_server(tmp_path)
    assert (server.native, server.version, server.backends) == (True, "2.61.0", home / "backends")
    (home / "backends").rmdir()
    with pytest.raises(ServerNotFound, match="backends"):
        find_server(tmp_path)


def test_an_environment_without_the_wheel_is_incomplete(tmp_path: Path) -> None:
    """The folder is there and holds no server."""
    (tmp_path / "venv").mkdir()
    with pytest.raises(ServerNotFound, match="nvidia-pytriton"):
        environment_at(tmp_path / "venv")


def test_a_python_without_a_stub_is_refused(tmp_path: Path) -> None:
    """The Pythons that there are stubs for are listed."""
    with pytest.raises(ServerNotFound, match=r"3\.11") as caught:
        environment_at(write_venv(tmp_path, python="3.14"))
    assert "3.14" in caught.value.found


def test_another_environments_packages_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH would put numpy 2 before the server's own; its bin comes first on PATH."""
    for variable in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(variable, "/elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    venv = write_venv(tmp_path / "venv")
    env = environment_at(venv).environment()
    assert not {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"} & set(env)
    assert env["PATH"].startswith(f"{venv}/bin:")
    assert env["LD_LIBRARY_PATH"].endswith(f"{venv}/base/lib:/mine")


def test_a_server_that_a_test_starts_itself_has_the_same_libraries(tmp_path: Path) -> None:
    """The stub of Python 3.12 is linked to a library that may lie in no folder of the system."""
    venv = write_venv(tmp_path / "venv", python="3.12", stub="3.12")
    packages = venv / "lib" / "python3.12" / "site-packages"
    assert library_path(packages) == f"{packages / 'nvidia_pytriton.libs'}:{venv / 'base' / 'lib'}"


def test_libpython_of_the_interpreter_comes_first(tmp_path: Path) -> None:
    """Its own folder comes first, then the loader's cache, which must have the requested version."""
    library = tmp_path / "libpython3.99.so.1.0"
    cache = (
        "\tlibpython3.9.so.1.0 (libc6,x86-64) => /wrong\n"
        "\tlibpython3.99.so.1.0 (libc6,x86-64) => /somewhere/libpython3.99.so.1.0\n"
    )
    assert find_libpython("3.99", [tmp_path], cache) == Path("/somewhere/libpython3.99.so.1.0")
    library.touch()
    assert find_libpython("3.99", [tmp_path], cache) == library
    assert find_libpython("3.98", [tmp_path], cache) is None


def test_a_missing_libpython_names_the_package(tmp_path: Path) -> None:
    """The Debian package is the way out most people have."""
    with pytest.raises(ServerNotFound, match=r"apt-get install libpython3\.98"):
        need_libpython("3.98", [tmp_path])


@pytest.mark.parametrize("version", ["2.31", "2.34", "unknown"])
def test_an_old_c_library_is_refused(version: str) -> None:
    """Debian 11 has 2.31; the server's binaries want 2.35. A libc that is not glibc counts as old."""
    with pytest.raises(ServerNotFound, match=r"glibc 2\.35"):
        check_glibc(version)


def test_a_newer_c_library_will_do() -> None:
    """Versions are numbers: 2.100 is newer than 2.35."""
    assert check_glibc("2.100") == "2.100"
    assert tuple(map(int, check_glibc().split("."))) >= libpython.GLIBC


def test_a_managed_environment_is_found_once_it_is_whole(tmp_path: Path) -> None:
    """Without the file that is written last it was interrupted, and is not taken."""
    venv = write_venv(managed_place())
    with pytest.raises(ServerNotFound, match="server install"):
        find_server(tmp_path)
    (venv / "tritonkit.json").write_text(json.dumps({"made_from": venv.name}))
    assert find_server(tmp_path).python_bin == venv / "bin"
    write_venv(tmp_path / ".venv-server")
    assert find_server(tmp_path).python_bin == tmp_path / ".venv-server" / "bin"


def test_a_managed_environment_of_other_requirements_is_not_taken(tmp_path: Path) -> None:
    """Its marker names what it was made from."""
    venv = write_venv(managed_place())
    (venv / "tritonkit.json").write_text(json.dumps({"made_from": "0123456789abcdef"}))
    with pytest.raises(ServerNotFound, match="server install"):
        find_server(tmp_path)


def test_removing_leaves_nothing() -> None:
    """Every managed environment goes, those of other versions too."""
    write_venv(managed_place())
    write_venv(managed_place().with_name("0123456789abcdef"))
    assert len(remove()) == 2
    assert not list(cache_folder().iterdir())
    assert remove() == []
