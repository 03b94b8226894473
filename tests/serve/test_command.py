"""tritonserver's command line and its backend folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.models import VECTOR, ModelText, write_repository
from tritonkit.errors import ServerNotFound
from tritonkit.serve.command import PREFIX, arguments, prepare_backends, python_run, usable_backends, without_own
from tritonkit.serve.core.native_backends import NativeBackend
from tritonkit.serve.install import ServerInstallation
from tritonkit.serve.repository import read_models
from tritonkit.serve.shm import MIB, ShmPlan
from tritonkit.serve.values import Settings


@pytest.fixture
def installation(tmp_path: Path) -> ServerInstallation:
    """An embedded server of empty files."""
    home = tmp_path / "server"
    (home / "backends" / "python" / "__pycache__").mkdir(parents=True)
    (home / "backends" / "python" / "libtriton_python.so").write_text("so")
    (home / "triton_python_backend_stub").write_text("stub")
    return ServerInstallation(
        home / "tritonserver",
        "1",
        home / "backends",
        home / "caches",
        native=False,
        stub=home / "triton_python_backend_stub",
    )


def command(installation: ServerInstallation, folder: Path, **configs: str) -> list[str]:
    """The arguments for models given by their configurations."""
    write_repository(folder, {name: ModelText(text) for name, text in configs.items()})
    shm = ShmPlan((), 3 * MIB, 3 * MIB)
    return arguments(installation, Settings(folder), read_models(folder), 1, folder / "backends", shm)


def test_the_server_is_told_what_it_needs(installation: ServerInstallation, tmp_path: Path) -> None:
    """gRPC on loopback, HTTP and metrics on sockets, exactly these models, its own names and sizes of
    shared memory."""
    words = command(installation, tmp_path / "repo", one=VECTOR, two=VECTOR)
    for word in (
        "--grpc-address=127.0.0.1",
        "--http-address=unix:http.sock",
        "--metrics-address=unix:metrics.sock",
        "--grpc-port=1",
        "--model-control-mode=explicit",
        "--load-model=one",
        "--load-model=two",
        "--disable-auto-complete-config",
        f"--backend-config=python,shm-region-prefix-name={PREFIX}",
        f"--backend-config=python,shm-default-byte-size={3 * MIB}",
    ):
        assert word in words
    assert not [word for word in words if word.startswith(("--cache", "--rate-limit"))]


def test_configurations_go_by_a_name(installation: ServerInstallation, tmp_path: Path) -> None:
    """That of the server's cores, unless the user names another."""
    write_repository(tmp_path / "repo", {"one": ModelText(VECTOR)})
    shm = ShmPlan((), 3 * MIB, 3 * MIB)

    def flags(**own: str) -> list[str]:
        settings = Settings(tmp_path / "repo", triton_flags=own)
        models = read_models(tmp_path / "repo")
        words = arguments(installation, settings, models, 1, tmp_path / "b", shm, config="cores-1")
        return [word for word in words if word.startswith("--model-config-name")]

    assert flags() == ["--model-config-name=cores-1"]
    assert flags(**{"model-config-name": "h100"}) == ["--model-config-name=h100"]


def test_a_cached_model_brings_the_cache(installation: ServerInstallation, tmp_path: Path) -> None:
    """One configuration that enables it is enough; one that says false does not."""
    on = "response_cache { enable: true }"
    off = "response_cache { enable: false }"
    assert not [w for w in command(installation, tmp_path / "a", one=VECTOR + off) if w.startswith("--cache")]
    words = command(installation, tmp_path / "b", one=VECTOR, two=VECTOR + on)
    assert f"--cache-directory={installation.caches}" in words
    assert "--cache-config=local,size=67108864" in words


def test_a_limited_model_brings_the_limiter(installation: ServerInstallation, tmp_path: Path) -> None:
    """Without this argument Triton ignores a model's rate limiter."""
    text = VECTOR + 'instance_group { rate_limiter { resources { name: "R" count: 1 } } }'
    assert "--rate-limit=execution_count" in command(installation, tmp_path / "repo", one=text)


def test_backends_are_real_files(installation: ServerInstallation, tmp_path: Path) -> None:
    """Triton refuses links that lead out of its backend folder; what they point to is copied."""
    source = tmp_path / "elsewhere"
    (source / "__pycache__").mkdir(parents=True)
    (source / "model.py").write_text("model")
    (tmp_path / "mine" / "backends").mkdir(parents=True)
    (tmp_path / "mine" / "backends" / "shared.py").touch()
    (tmp_path / "mine" / "backends" / "twin").symlink_to(source)
    folder = prepare_backends(installation, tmp_path / "mine" / "backends", tmp_path / "run")
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    assert set(files) == {
        "python",
        "python/libtriton_python.so",
        "python/triton_python_backend_stub",
        "twin",
        "twin/model.py",
        "twin/shared.py",
    }
    assert not [path for path in files.values() if path.is_symlink()]
    assert python_run(tmp_path / "mine" / "backends") == {"python", "twin"}


def test_a_native_backend_takes_the_place_of_its_stand_in(installation: ServerInstallation, tmp_path: Path) -> None:
    """Its library alone lies there, and Triton is told where its engine is; the other stand-ins stay."""
    stand_ins = tmp_path / "mine" / "backends"
    for name in ("onnxruntime", "pytorch"):
        (stand_ins / name).mkdir(parents=True)
        (stand_ins / name / "model.py").touch()
    library = tmp_path / "libtriton_onnxruntime.so"
    library.write_bytes(b"compiled")
    native = NativeBackend("onnxruntime", library, tmp_path / "libonnxruntime.so")
    folder = prepare_backends(installation, stand_ins, tmp_path / "run", [native])
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    assert files == {"onnxruntime/libtriton_onnxruntime.so", "python/libtriton_python.so", "pytorch/model.py"}
    assert python_run(folder) == {"python", "pytorch"}
    repository = write_repository(tmp_path / "repo", {"one": ModelText(VECTOR)})
    words = arguments(
        installation, Settings(repository), read_models(repository), 1, folder, ShmPlan((), MIB, MIB), [native]
    )
    assert f"--backend-config=onnxruntime,library={native.engine}" in words


def test_which_backends_are_native(tmp_path: Path) -> None:
    """Usable backends are native; if native ones are demanded, none may be missing."""
    good = NativeBackend("onnxruntime", tmp_path / "a.so", tmp_path / "engine")
    bad = NativeBackend("openvino", tmp_path / "b.so", tmp_path / "engine", "it is too old")
    steps = NativeBackend("python", tmp_path / "p.so", tmp_path / "engine")
    backends = {"python": steps, "onnxruntime": good, "openvino": bad}
    assert usable_backends(backends, demanded=False) == (steps, good)
    assert usable_backends({}, demanded=False) == ()
    with pytest.raises(ServerNotFound, match=r"native backend openvino.*it is too old"):
        usable_backends(backends, demanded=True)
    with pytest.raises(ServerNotFound, match=r"native backend onnxruntime.*not compiled"):
        usable_backends({}, demanded=True)


def test_a_backend_of_the_projects_own_is_not_replaced(project: Path, tmp_path: Path) -> None:
    """One that it wrote under the same name serves; the shipped stand-ins, behind a link too, give way."""
    native = NativeBackend("onnxruntime", tmp_path / "a.so", tmp_path / "engine")
    backends = {"onnxruntime": native}
    (tmp_path / "link").symlink_to(project / "python_backends" / "backends")
    assert without_own(backends, tmp_path / "link") == backends
    assert without_own(backends, tmp_path) == backends
    (tmp_path / "onnxruntime").mkdir()
    assert "its own" in without_own(backends, tmp_path)["onnxruntime"].wrong


def test_nvidias_backends_stay_where_they_are(tmp_path: Path) -> None:
    """There the native backends serve, and our stand-ins are not copied."""
    native = ServerInstallation(tmp_path, "1", tmp_path / "theirs", tmp_path, native=True)
    mine = tmp_path / "mine" / "backends" / "onnxruntime"
    mine.mkdir(parents=True)
    (mine / "model.py").touch()
    assert prepare_backends(native, tmp_path / "mine" / "backends", tmp_path / "run") == tmp_path / "theirs"
    assert python_run(native.backends) == {"python"}
