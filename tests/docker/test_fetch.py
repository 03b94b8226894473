"""The init container of pods whose models come from a store: its image, a pod's constraints, real stores."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docker.conftest import SERVER_USER, run
from tests.repository.publish.test_publish import rendered
from tests.stores import S3_VARIABLES, HttpFolder
from tritonkit.operate.deploy.values import ModelCache, Models
from tritonkit.operate.store import Store, back_up, open_store
from tritonkit.repository.publish.publish import publish

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
POD = (
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--network",
    "host",
    "--user",
    f"{SERVER_USER}:{SERVER_USER}",
    "--tmpfs",
    "/tmp",  # noqa: S108
    "--cpus",
    "1",
    "--memory",
    "512m",
    "--memory-swap",
    "512m",
)
"""Options of the rendered pod, and the host's network, on which the stores are."""
FILE_BYTES = 80 << 20
"""Larger than what its library reads ahead, and with what it holds too large for careless memory."""


def put(store: Store, folder: Path) -> None:
    """A backup of a model with a large file."""
    publish(folder / "repository", [rendered(folder / "net", bytes(FILE_BYTES), "net")])
    back_up(folder / "repository", store)


def fetched(image: str, url: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command that is rendered, with a new volume on the disk as its emptyDir."""
    models = folder / "models"
    shutil.rmtree(models, ignore_errors=True)
    models.mkdir()
    models.chmod(0o777)
    words = Models(store=url).fetch_command
    settings = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    volume = ("--volume", f"{models}:/models")
    start = ("docker", "run", "--rm", *POD, *volume, *settings, "--entrypoint", words[0], image)
    return run(*start, *words[1:])


def test_by_http_under_a_pods_constraints(tools_image: str, http_folder: HttpFolder, tmp_path: Path) -> None:
    """Nothing but /tmp and /models can be written; a damaged file is named."""
    put(open_store(str(http_folder.folder)), tmp_path)
    done = fetched(tools_image, http_folder.url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "80 MiB: fetched in " in done.stdout
    blob = max((http_folder.folder / "blobs").rglob("*"), key=lambda file: file.stat().st_size)
    blob.write_bytes(bytes(FILE_BYTES - 1) + b"x")
    done = fetched(tools_image, http_folder.url, tmp_path)
    assert done.returncode == 5
    assert blob.name in done.stderr
    assert "Traceback" not in done.stderr


def test_pods_that_start_together_fetch_once(tools_image: str, http_folder: HttpFolder, tmp_path: Path) -> None:
    """Containers with a volume in common; what one has left there is no matter of trust."""
    publish(tmp_path / "repository", [rendered(tmp_path / "net", b"weights", "net")])
    back_up(tmp_path / "repository", open_store(str(http_folder.folder)))
    words = Models(store=http_folder.url, cache=ModelCache()).fetch_command
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(0o777)
    models = ("--tmpfs", f"/models:uid={SERVER_USER},gid={SERVER_USER}")
    start = ("docker", "run", "--rm", *POD, *models, "--volume", f"{shared}:/cache")
    command = [*start, "--entrypoint", words[0], tools_image, *words[1:]]
    pods = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    logs = [pod.communicate()[0].decode() for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], logs
    requests = {path: n for path, n in http_folder.asked.items() if "/blobs/" in path}
    assert set(requests.values()) == {1}
    for file in shared.glob("blobs/*/*"):
        file.write_bytes(b"x" * file.stat().st_size)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert "0 MiB of them out of the cache" in done.stdout
    assert {http_folder.asked[path] for path in requests} == {2}


def test_from_s3_under_a_pods_constraints(tools_image: str, s3: str, s3_server: str, tmp_path: Path) -> None:
    """With the variables of the Secret; without them it says what is missing."""
    put(open_store(s3), tmp_path)
    done = fetched(tools_image, s3, tmp_path, AWS_ENDPOINT_URL=s3_server, **S3_VARIABLES)
    assert done.returncode == 0, done.stderr
    assert "80 MiB: fetched in " in done.stdout
    done = fetched(tools_image, s3, tmp_path, AWS_ENDPOINT_URL=s3_server, AWS_EC2_METADATA_DISABLED="true")
    assert (done.returncode, "credentials" in done.stderr) == (5, True)
