"""Refusals of images and scripts: one clear message, the documented exit code, nothing half done."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit
from tests.docker.conftest import BUILDER_IMAGE, SERVER_IMAGE, SERVER_USER, Stack, compose_command, copy_checkout, run
from tritonkit.operate.certificates import make_certificates

pytestmark = pytest.mark.timeout(900)
ROOT = pytest.mark.needs("root")
"""Only root can make a file that its own user cannot read."""

KEY = "0123456789abcdef0123456789abcdef\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository of one model, and what the builder hands over, for the server's user."""
    version = tmp_path / "models" / "net" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text('name: "net"\n')
    (version / "model.py").write_text("")
    (version / "manifest.json").write_text('{"files": {"model.py": ""}}')
    handover = tmp_path / "handover"
    handover.mkdir()
    (handover / "admin-key").write_text(KEY)
    (handover / "admin-key").chmod(0o400)
    if os.geteuid() == 0:
        os.chown(handover / "admin-key", SERVER_USER, SERVER_USER)
    return tmp_path


def start(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the server's image on a folder, as compose does."""
    user = [] if os.geteuid() == 0 else ["--user", str(os.getuid())]
    return run(
        "docker",
        "run",
        "--rm",
        "--read-only",
        *user,
        *options,
        "--volume",
        f"{folder}/models:/models:ro",
        "--volume",
        f"{folder}/handover:/handover:ro",
        SERVER_IMAGE,
    )


def spoil(folder: Path, what: str) -> None:
    """One thing wrong with the folder."""
    net, key = folder / "models" / "net", folder / "handover" / "admin-key"
    if what == "empty":
        shutil.rmtree(net)
    elif what == "no version":
        shutil.rmtree(net / "1")
    elif what == "half a version":
        (net / "1" / "model.py").unlink()
    elif what == "not readable":
        net.chmod(0o000)
    elif what == "no key":
        key.unlink()
    elif what == "open key":
        key.chmod(0o444)
    elif what == "key of another":
        os.chown(key, 0, 0)
    elif what == "short key":
        key.chmod(0o600)
        key.write_text("secret")
        key.chmod(0o400)
    elif what == "small memory":
        (folder / "handover" / "needs.json").write_text(f'{{"stubs_bytes": {65 << 20}, "shm_bytes": {130 << 20}}}')


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("empty", "the model repository is empty"),
        ("no version", "half built: there is no version folder 1"),
        ("half a version", "half built: there is no 1/model.py"),
        pytest.param("not readable", "cannot read it", marks=ROOT),
        ("no key", "there is no key file"),
        ("open key", "every user can read or change the key (mode 444)"),
        pytest.param("key of another", "the key cannot be read", marks=ROOT),
        ("short key", "not a key: 6 characters"),
        ("small memory", "64 MiB, and the repository's Python stubs want 130 MiB"),
    ],
)
def test_the_server_refuses(images: None, folder: Path, what: str, words: str) -> None:
    """Exit code 4, what was found, and what to do about it, before tritonserver is started."""
    spoil(folder, what)
    done = start(folder)
    (folder / "models" / "net").exists() and (folder / "models" / "net").chmod(0o755)
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: /")
    assert words in done.stderr
    assert "\n  do: " in done.stderr
    assert "Traceback" not in done.stderr


HIDDEN = ("--tmpfs", "/opt/tritonkit/venv/lib/tritonkit")
"""An image without native backends."""


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("native", "they cannot be used: onnxruntime: it is not compiled; openvino: it is not"),
        ("fast", "TRITON_BACKEND: it is fast"),
    ],
)
def test_native_backends_that_are_demanded_are_not_replaced(
    images: None, folder: Path, backend: str, words: str
) -> None:
    """Without them, or with a word that is none of the three, the container ends and says what to do."""
    done = start(folder, *HIDDEN, "--env", f"TRITON_BACKEND={backend}")
    assert done.returncode == 4, done.stderr
    assert words in done.stderr
    assert "\n  do: " in done.stderr


def test_stand_ins_serve_where_native_backends_cannot(images: None) -> None:
    """The folder that tritonserver is given has them alone, and the log says why."""
    code = "import launching; folder, flags = launching.backends('auto'); print(folder, *flags)"
    python = ("--workdir", "/opt/tritonkit", "--entrypoint", "python3")
    done = run("docker", "run", "--rm", *HIDDEN, *python, SERVER_IMAGE, "-c", code)
    assert done.stdout == "/opt/tritonserver/backends\n", done.stderr
    assert "warning: Python stand-ins serve" in done.stderr
    assert "onnxruntime: it is not compiled" in done.stderr


def test_lengths_that_nobody_pads_are_refused(images: None, folder: Path) -> None:
    """In NVIDIA's image, whose backends join them without padding: here, in ours without its stand-ins."""
    config = folder / "models" / "net" / "config.pbtxt"
    config.write_text('name: "net"\nparameters { key: "tritonkit.pad" value { string_value: "{}" } }\n')
    hidden = (f"--tmpfs=/opt/tritonserver/backends/{name}" for name in ("onnxruntime", "openvino"))
    done = start(folder, *hidden)
    assert done.returncode == 4, done.stderr
    assert "which NVIDIA's backends cannot pad" in done.stderr
    assert "--target nvidia" in done.stderr


def test_the_builder_refuses_an_open_key(images: None, settings: str, project: Path, tmp_path: Path) -> None:
    """Nothing is built or served with a key that everybody can read."""
    checkout = copy_checkout(project, tmp_path / "checkout", os.getuid())
    key = checkout / "deploy/docker/keys/admin-key"
    key.write_text(KEY)
    key.chmod(0o644)
    (checkout / ".env").write_text(settings)
    name = f"tritonkit-refused-{os.getpid()}"
    try:
        done = run(*compose_command(), "-p", name, "run", "--rm", "builder", cwd=checkout)
    finally:
        run(*compose_command(), "-p", name, "down", "-v", cwd=checkout)
    assert done.returncode == 2
    assert "every user can read or change the key (mode 644)" in done.stdout + done.stderr
    assert not list((checkout / "model_repository").glob("*/1"))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no certificate", "server.crt: there is no such file"),
        ("open key", "server.key: others than its owner can read it"),
        ("keys of another", "keys.json: others than the owner of the folder can write it"),
        ("unknown word", "unknown key 'prot'"),
        ("no keys", "keys.json: it cannot be read"),
    ],
)
def test_the_gateway_s_files_are_refused(images: None, tmp_path: Path, what: str, words: str) -> None:
    """The container ends with the exit code of a wrong file, and says which one it is and what to do."""
    folder = tmp_path / "gateway"
    made = make_certificates(folder / "tls", ["localhost"])
    if what == "no certificate":
        made[2].unlink()
    elif what == "open key":
        made[3].chmod(0o644)
    elif what == "unknown word":
        (folder / "gateway.yaml").write_text("prot: 1\n")
    else:
        (folder / "keys.json").write_text("{")
        (folder / "keys.json").chmod(0o666 if what == "keys of another" else 0o600)
    done = run(
        "docker",
        "run",
        "--rm",
        "--read-only",
        "--tmpfs",
        "/tmp",  # noqa: S108
        "--tmpfs",
        "/gateway",
        "--network",
        "none",
        "--volume",
        f"{folder}:/project/deploy/gateway",
        "--entrypoint",
        "python3",
        BUILDER_IMAGE,
        "/opt/tritonkit/gateway_config.py",
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "do: " in done.stderr


def test_the_gateway_waits_for_no_files(images: None) -> None:
    """Without a configuration it ends, and names who makes it."""
    python = ("--entrypoint", "/opt/tritonkit/venv/bin/python3")
    done = run("docker", "run", "--rm", *python, SERVER_IMAGE, "/opt/tritonkit/gateway.py")
    assert done.returncode == 4
    assert "/gateway/envoy.json: there is no configuration" in done.stderr
    assert "gateway-config" in done.stderr


@pytest.mark.parametrize("variables", [{"TRITON_TRACE_URL": "collector:4318"}, {"TRITON_TRACE_RATE": "0"}])
def test_traces_that_could_not_be_sent_are_refused(images: None, folder: Path, variables: dict[str, str]) -> None:
    """The address is not a URL, or the rate is not a number."""
    values = {"TRITON_TRACE_URL": "http://collector:4318/v1/traces"} | variables
    done = start(folder, *(word for name, value in values.items() for word in ("--env", f"{name}={value}")))
    assert done.returncode == 4, done.stderr
    assert "OTLP over HTTP" in done.stderr


def test_a_taken_port_is_named(stack: Stack) -> None:
    """Docker itself says which port somebody else has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("docker", "run", "--rm", "--publish", f"127.0.0.1:{port}:8001", SERVER_IMAGE)
    assert done.returncode == 125
    assert str(port) in done.stderr
    assert "in use" in done.stderr


def test_an_image_that_was_not_built_is_named(daemon: None, project: Path) -> None:
    """The bench says which image is missing and how to build it."""
    done = run(
        str(project / ".venv/bin/python"),
        "-m",
        "bench",
        "container",
        cwd=project,
        TRITONKIT_SERVER_IMAGE="tritonkit/never-built:0",
    )
    assert done.returncode == 4
    assert "never-built:0: it was not built" in done.stderr
    assert "docker compose build triton" in done.stderr


def test_without_docker_or_its_daemon_scripts_say_so(project: Path, tmp_path: Path) -> None:
    """No program: install it. No daemon: start it. Exit code 4, also of the bench."""
    script, python = str(project / "deploy/docker/local-base.sh"), str(project / ".venv/bin/python")
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}
    if os.geteuid() == 0 and shutil.which("debootstrap"):
        done = run(script, **nowhere)
        assert done.returncode == 4
        assert "daemon does not answer" in done.stderr
    done = run(python, "-m", "bench", "container", cwd=project, **nowhere)
    assert done.returncode == 4
    # Without the program, the same message begins with what to install.
    assert "daemon does not answer" in done.stderr or "not installed" in done.stderr
    done = run(python, "-m", "bench", "container", cwd=project, PATH=str(tmp_path))
    assert done.returncode == 4
    assert "docker: it is not installed" in done.stderr


def test_a_key_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    """A missing or empty --key-file is a mistake on the command line."""
    missing = tmp_path / "missing"
    assert "cannot be read" in failed(tritonkit("reload", "--key-file", str(missing)), 2)
    missing.write_text("\n")
    assert "no key in it" in failed(tritonkit("reload", "--key-file", str(missing)), 2)
