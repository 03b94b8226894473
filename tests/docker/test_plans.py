"""`tritonkit build --in-container`: a real docker runs a stand-in for NVIDIA's `trtexec`, on a GPU that is not there.

A daemon of the test's own finds a hook under the name of NVIDIA's, so that `--gpus` is an option that it knows.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import WriteModel
from tests.docker.conftest import run
from tests.parts import PROJECT, program
from tests.repository.optimize.variants.test_tensorrt_plan import CALIBRATED, convolution, spec_of
from tests.waiting import eventually
from tritonkit.perf.tune.candidates import find_artifacts
from tritonkit.releases import NVIDIA_IMAGE, NVIDIA_IMAGE_VARIABLE
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize import Result, evaluate
from tritonkit.repository.optimize.container import Container
from tritonkit.repository.optimize.variants import in_container, variant_of
from tritonkit.repository.report import collect
from tritonkit.repository.report.rows import rows

SOURCE = Path(__file__).resolve().parent / "trtexec.c"
PROGRAM = "usr/src/tensorrt/bin/trtexec"
IMAGES = {f"trtexec:{name}": [f"-D{name.upper()}"] for name in ("works", "fails", "silent", "waits")}
"""Image -> the flags with which its trtexec is compiled."""
EMPTY = "trtexec:missing"
HOOK = "nvidia-container-runtime-hook"
"""The program by which docker knows that it can give GPUs to containers."""

pytestmark = [
    pytest.mark.needs("cc"),
    pytest.mark.skipif(os.geteuid() != 0 or program("dockerd") is None, reason="a daemon of the test's own needs root"),
]


@pytest.fixture(scope="module")
def own_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a daemon whose containers may have GPUs, with an image for each stand-in."""
    folder = tmp_path_factory.mktemp("docker")
    hook = folder / "bin" / HOOK
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    address = f"unix://{folder}/socket"
    places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    words = [f"--{name}={folder / place}" for name, place in places.items()]
    words += ["--host", address, "--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs"]
    variables = os.environ | {"PATH": f"{hook.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    # In a network of its own: a daemon without a bridge removes docker0, which the other tests' containers use.
    command = ["unshare", "--net", str(program("dockerd")), *words]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, env=variables, stdout=log, stderr=log) as daemon,
    ):
        try:
            eventually(lambda: run("docker", "version", DOCKER_HOST=address).returncode == 0, f"see {folder}/log")
            for image, flags in {**IMAGES, EMPTY: None}.items():
                import_image(folder, image, flags, address)
            yield address
        finally:
            daemon.terminate()


def import_image(folder: Path, image: str, flags: list[str] | None, address: str) -> None:
    """Make an image with one program, which needs no library."""
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as files:
        if flags is not None:
            command = ["gcc", "-static", "-O1", "-Wall", *flags, "-o", str(folder / "trtexec"), str(SOURCE)]
            subprocess.run(command, check=True)
            for place in reversed(Path(PROGRAM).parents[:-1]):  # for all: root has no more rights there than others
                entry = tarfile.TarInfo(str(place))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                files.addfile(entry)
            files.add(folder / "trtexec", PROGRAM)
    done = run(
        "docker", "import", "--change", "ENV TRITON_SERVER_VERSION=2.51.0", str(archive), image, DOCKER_HOST=address
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def docker(own_daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's program finds the daemon of this module."""
    monkeypatch.setenv("DOCKER_HOST", own_daemon)


def built(write_model: WriteModel, root: Path, image: str, precision: str = "fp16") -> Result:
    """The result of a plan that a container builds."""
    spec = spec_of(write_model, CALIBRATED)
    variant = in_container(variant_of(spec, f"tensorrt-{precision}"), Container(image))
    (result,) = evaluate(spec, [variant], BuildCache(root / "cache"))
    return result


@pytest.mark.usefixtures("docker")
def test_a_plan_is_built_and_published(root: Path) -> None:
    """It lies next to the facts of its log; its builder's log is kept; the next build takes it from the cache."""
    command = write_project(root)
    image = {NVIDIA_IMAGE_VARIABLE: "trtexec:works"}
    done = run(*command, cwd=root, **image)
    assert done.returncode == 0, done.stderr
    assert "trtexec: &&&& RUNNING TensorRT.trtexec" in done.stderr
    assert "net: tensorrt-fp16 is served, and the gate has not judged its answers: a plan from a" in done.stderr
    assert "not judged" in done.stdout
    published = root / "model_repository_nvidia" / "net"
    assert 'backend: "tensorrt"' in (published / "config.pbtxt").read_text()
    record = json.loads((published / "1" / "plan.json").read_text())
    facts = {"tensorrt_version": "10.5.0", "gpu": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}
    assert record == {**record, **facts, "image": "trtexec:works"}
    assert record["profiles"][0]["x"]["max"] == [8, 3, 8, 8]
    assert (published / "1" / "model.plan").stat().st_size > 500  # the stand-in copies the network
    log = (root / ".tritonkit" / "cache" / "net" / "trtexec-tensorrt-fp16.log").read_text()
    words = "--onnx=/network/network.onnx --saveEngine=/plan/model.plan --stronglyTyped --profile=0"
    assert words in log
    checked = run(*command, "--check", cwd=root, DOCKER_HOST="unix:///nonexistent", **image)
    assert (checked.returncode, "a fresh render agree" in checked.stderr) == (0, True), checked.stderr
    again = run(*command, cwd=root, DOCKER_HOST="unix:///nonexistent", **image)
    assert (again.returncode, "nothing to change" in again.stderr) == (0, True), again.stderr


SETTINGS = "variant: tensorrt-fp16, max_batch_size: 8"


def write_project(root: Path, serving: str = SETTINGS) -> list[str]:
    """Write a model that is served as a plan; the command that builds it."""
    model = root / "models" / "net"
    model.mkdir()
    (model / "net.onnx").write_bytes(convolution())
    (model / "model.yaml").write_text(f"name: net\nnetwork: {{onnx: net.onnx}}\nserving: {{{serving}}}\n")
    return [sys.executable, "-m", "tritonkit.cli", "build", "net", "--target=nvidia", "--in-container"]


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("serving", [SETTINGS, f"max_batch_size: 4, targets: {{nvidia: {{{SETTINGS}}}}}"])
def test_every_command_knows_a_plan_from_a_container(root: Path, monkeypatch: pytest.MonkeyPatch, serving: str) -> None:
    """A build without the option, a search and a report take it from the cache, also by settings of one target alone;
    a change of the spec makes it an earlier one."""
    command = write_project(root, serving)
    done = run(*command, "--image=trtexec:works", cwd=root)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    again = run(*(word for word in command if word != "--in-container"), cwd=root)
    assert (again.returncode, "nothing to change" in again.stderr) == (0, True), again.stderr
    spec = load(root / "models" / "net", root, "nvidia")
    artifacts, served = find_artifacts(spec, root, (), "nvidia", served_alone=True)
    assert (served, artifacts[served].tools["image"]) == ("tensorrt-fp16", "trtexec:works")
    (report,) = collect(root, ["net"], threads=1)
    plan = next(row for row in rows(report) if row["variant"] == "tensorrt-fp16")
    assert (plan["outcome"], report.front.count("tensorrt-fp16")) == ("not judged", 0)
    assert report.missing["tensorrt-fp32"] == "not built"
    file = root / "models" / "net" / "model.yaml"
    file.write_text(file.read_text().replace("max_batch_size: 8", "max_batch_size: 16"))
    (report,) = collect(root, threads=1)
    assert report.missing["tensorrt-fp16"].startswith("built before")


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_container_ends_with_its_build(root: Path, number: signal.Signals) -> None:
    """However the build ends: the container is removed with what it does."""
    with ending(root, "--image=trtexec:waits") as build:
        build.send_signal(number)
        _, errors = build.communicate()
    assert build.returncode == (130 if number == signal.SIGINT else -number), errors


@pytest.mark.usefixtures("docker")
def test_a_container_ends_with_a_step_that_takes_too_long(root: Path) -> None:
    """The process that built is killed then."""
    with ending(root, "--image=trtexec:waits", "--step-timeout=5s") as build:
        _, errors = build.communicate()
    assert (build.returncode, "making tensorrt-fp16: it did not end within 5 s" in errors) == (3, True), errors


@contextmanager
def ending(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A build whose container runs, and is gone after the build."""
    command = [*write_project(root), *options]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as build:
        try:
            eventually(lambda: run("docker", "ps", "--quiet").stdout, "a container")
            yield build
        finally:
            build.kill()
    eventually(lambda: not run("docker", "ps", "--all", "--quiet").stdout, "the container is gone")


@pytest.mark.usefixtures("docker")
def test_kernel_times_are_kept_for_each_image(write_model: WriteModel, root: Path) -> None:
    """The next build with it goes on from them."""
    for _ in range(2):
        result = built(write_model, root, "trtexec:works", "fp32")
        assert result.artifact is not None, result.problem
        assert list(result.artifact.files) == ["model.plan", "plan.json"]
        for folder in (root / "cache" / "net").glob("tensorrt-fp32-*"):
            (folder / "model.plan").unlink()
    assert (root / "cache" / "net" / "timing-trtexec-works.cache").read_text() == "++"


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize(
    ("image", "found", "todo"),
    [
        ("trtexec:fails", "trtexec fails with exit code 1: [E] Error[4]: IBuilder::buildSerializedNetwork", "the log"),
        (
            "trtexec:missing",
            "trtexec:missing has no trtexec that can be run",
            "--image nvcr.io/nvidia/tensorrt:24.10-py3",
        ),
        ("trtexec:silent", "and does not give: tensorrt version, gpu, compute capability", "another release"),
        ("nowhere.invalid/trtexec:1", "docker pull fails: ", NVIDIA_IMAGE_VARIABLE),
    ],
)
def test_a_container_that_builds_no_plan_is_reported(
    write_model: WriteModel, root: Path, image: str, found: str, todo: str
) -> None:
    """The message has trtexec's or docker's own reason, and the next step."""
    problem = built(write_model, root, image).problem
    assert problem is not None
    assert found in problem.found
    assert todo in problem.todo


@pytest.mark.skipif(shutil.which(HOOK) is not None, reason="this machine's docker gives GPUs to containers")
@pytest.mark.usefixtures("daemon")
def test_a_docker_without_gpus_is_reported(write_model: WriteModel, root: Path, own_daemon: str) -> None:
    """The machine's own daemon has no hook of NVIDIA's."""
    archive = run("docker", "save", "--output", str(root / "image.tar"), "trtexec:works", DOCKER_HOST=own_daemon)
    assert archive.returncode == 0, archive.stderr
    assert run("docker", "load", "--input", str(root / "image.tar")).returncode == 0
    try:
        problem = built(write_model, root, "trtexec:works").problem
    finally:
        run("docker", "image", "rm", "trtexec:works")
    assert problem is not None
    assert "docker starts no container: docker: Error response from daemon: could not select device" in problem.found
    assert "NVIDIA's container toolkit" in problem.todo


def test_a_machine_without_docker_is_told(
    write_model: WriteModel, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No docker on PATH, or no daemon."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    problem = built(write_model, root, "trtexec:works").problem
    assert problem is not None
    assert "docker info fails: " in problem.found
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = built(write_model, root, "trtexec:works").problem
    assert problem is not None
    assert (problem.found, "without --in-container" in problem.todo) == ("there is no docker on PATH", True)


def test_other_variants_and_targets_have_no_container(write_model: WriteModel, root: Path) -> None:
    """Only a TensorRT plan is built there, and only NVIDIA's image serves one."""
    spec = spec_of(write_model)
    variant = variant_of(spec, "onnx-fp32")
    assert in_container(variant, Container("trtexec:works")) is variant
    done = run(sys.executable, "-m", "tritonkit.cli", "build", "--in-container", "--target=gpu", cwd=root)
    assert (done.returncode, "--in-container: --target gpu" in done.stderr) == (2, True), done.stderr


def test_the_image_is_that_of_the_stage() -> None:
    """The image that builds a plan is the one from which server-nvidia is made."""
    assert f"ARG NVIDIA_BASE={NVIDIA_IMAGE}\n" in (PROJECT / "deploy/docker/Dockerfile").read_text()
