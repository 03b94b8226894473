"""`tritonkit deploy image`, and its image where a pod's init container runs it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit_here
from tests.docker.conftest import SERVER_USER, docker, run
from tests.repository.publish.test_publish import rendered
from tritonkit.repository.publish.publish import publish

BASE = f"tritonkit-test/empty:{os.getpid()}"
TAG = f"tritonkit-test/models:{os.getpid()}"
POD = (
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--network",
    "none",
    "--user",
    f"{SERVER_USER}:{SERVER_USER}",
    "--tmpfs",
    "/tmp",  # noqa: S108
    "--tmpfs",
    f"/models:uid={SERVER_USER},gid={SERVER_USER}",
    "--memory",
    "256m",
)
"""Options that the rendered pod gives its init container."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two models as they were published, and the first one's version before, which is not served."""
    folder = tmp_path / "model_repository"
    other = rendered(tmp_path / "other", b"other weights", "other")
    for weights in (b"older", b"newer"):
        publish(folder, [rendered(tmp_path / weights.decode(), weights, "net"), other])
    return folder


@pytest.fixture(scope="module")
def base(daemon: None) -> Iterator[str]:
    """An image with nothing in it, in the server's place."""
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    subprocess.run(["docker", "import", "-", BASE], input=empty.getvalue(), check=True)  # noqa: S607
    yield BASE
    docker("image", "rm", BASE)


@pytest.fixture
def tag() -> Iterator[str]:
    """The name of an image that goes at the end."""
    yield TAG
    run("docker", "image", "rm", "--force", TAG)


def members(tag: str, tmp_path: Path) -> dict[str, tarfile.TarInfo]:
    """The files and folders in an image."""
    container = docker("create", tag, "nothing")
    docker("export", "--output", str(tmp_path / "root.tar"), container)
    docker("rm", container)
    with tarfile.open(tmp_path / "root.tar") as archive:
        return {member.name: member for member in archive}


def test_an_image_has_what_is_served_for_the_servers_user(
    base: str, tag: str, repository: Path, tmp_path: Path
) -> None:
    """Neither an older version nor what Python wrote; --out writes it to a file that docker loads."""
    (repository / "net" / "__pycache__").mkdir()
    (repository / "net" / "__pycache__" / "model.pyc").write_bytes(b"")
    out = tmp_path / "models.tar"
    words = ("--repository", str(repository), "--server", base, "--tag", tag, "--out", str(out))
    done = tritonkit_here("deploy", "image", *words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["models"] == {"net": [2], "other": [1]}
    assert docker("image", "inspect", "--format", "{{.Id}}", tag) == f"sha256:{facts['id']}"
    inside = {name: member for name, member in members(tag, tmp_path).items() if "repository" in name}
    files = {name for name, member in inside.items() if member.isfile()}
    assert {"repository/net/config.pbtxt", "repository/net/2/manifest.json"} <= files
    assert not [name for name in inside if "/net/1" in name or "__pycache__" in name]
    assert len(files) == facts["files"]
    assert {(member.uid, member.gid) for member in inside.values()} == {(SERVER_USER, SERVER_USER)}
    assert {oct(member.mode & 0o777) for member in inside.values()} == {"0o644", "0o755"}
    docker("image", "rm", tag)
    assert tag in docker("load", "--input", str(out))
    assert f"images import {out}" in tritonkit_here("deploy", "image", *words, cwd=tmp_path).stderr


def test_a_damaged_repository_gives_no_image(base: str, tag: str, repository: Path, tmp_path: Path) -> None:
    """The file is named; and a repository without a model is none."""
    weights = next((repository / "other" / "1").glob("model.*"))
    weights.write_bytes(b"other weightz")
    words = ("--server", base, "--tag", tag)
    done = tritonkit_here("deploy", "image", "--repository", str(repository), *words, cwd=tmp_path)
    assert str(weights) in failed(done, 4)
    done = tritonkit_here("deploy", "image", "--repository", str(tmp_path), *words, cwd=tmp_path)
    assert "tritonkit build" in failed(done, 2)
    assert run("docker", "image", "inspect", tag).returncode != 0


def test_without_the_servers_image_it_says_how_to_make_it(daemon: None, repository: Path, tmp_path: Path) -> None:
    """Docker has it neither here nor where it pulls from."""
    words = ("--server", "localhost:1/tritonkit/server:none", "--tag", TAG)
    done = tritonkit_here("deploy", "image", "--repository", str(repository), *words, cwd=tmp_path)
    assert "docker compose build triton" in failed(done, 3)


def test_without_a_builder_or_its_daemon_it_says_so(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither docker nor buildah; docker whose daemon is elsewhere; a builder that is not installed."""
    words = ("deploy", "image", "--repository", str(repository), "--tag", TAG)
    program = shutil.which("docker")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "neither docker nor buildah" in failed(tritonkit_here(*words, cwd=tmp_path), 2)
    done = tritonkit_here(*words, "--builder", "buildah", cwd=tmp_path)
    assert "apt-get install buildah" in failed(done, 2)
    if program is not None:
        (tmp_path / "docker").symlink_to(program)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        assert "daemon does not answer" in failed(tritonkit_here(*words, cwd=tmp_path), 3)


@pytest.mark.needs("buildah", "root")
def test_buildah_makes_it_too(repository: Path, tmp_path: Path) -> None:
    """No daemon is needed; the file has the image under the requested name."""
    container = run("buildah", "from", "scratch").stdout.strip()
    base, out = f"localhost/{BASE}", tmp_path / "models.tar"
    words = ("--server", base, "--tag", TAG, "--builder", "buildah", "--out", str(out))
    try:
        assert run("buildah", "commit", container, base).returncode == 0
        done = tritonkit_here("deploy", "image", "--repository", str(repository), *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        with tarfile.open(out) as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest is not None
            assert f"docker.io/{TAG}" in json.loads(manifest.read())[0]["RepoTags"]
    finally:
        run("buildah", "rm", container)
        run("buildah", "rmi", "--force", TAG, base)


@pytest.mark.parametrize("name", ["models", "models:latest", "mod els:1", "-x:1", f"m@sha256:{64 * '0'}"])
def test_a_name_that_is_none_is_refused(repository: Path, tmp_path: Path, name: str) -> None:
    """A name that may be another image tomorrow is refused too."""
    done = tritonkit_here("deploy", "image", "--repository", str(repository), f"--tag={name}", cwd=tmp_path)
    assert "--tag" in failed(done, 2)


def test_pods_take_the_models_out_of_it(server_image: str, tag: str, repository: Path, tmp_path: Path) -> None:
    """The init container's program, under the pod's constraints; an image that was changed is refused."""
    words = ("deploy", "image", "--repository", str(repository), "--server", server_image)
    done = tritonkit_here(*words, "--tag", tag, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    fetch = ("python3", "-IS", "/opt/tritonkit/fetch.py")
    done = run("docker", "run", "--rm", *POD, "--entrypoint", fetch[0], tag, *fetch[1:])
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified in" in done.stdout
    changed = f"FROM {tag}\nRUN printf x >> /repository/other/1/manifest.json\n"
    subprocess.run(["docker", "build", "--quiet", "--tag", tag, "-"], input=changed, text=True, check=True)  # noqa: S607
    done = run("docker", "run", "--rm", *POD, "--entrypoint", fetch[0], tag, *fetch[1:])
    assert done.returncode == 4
    assert "other/1/manifest.json" in done.stderr
