"""The small programs of the server's image that Kubernetes runs: fetch.py, health.py, stop.py."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver, WriteTensorRT, write_cuda_packages, write_tensorrt_provider
from tests.server.models import ModelText, write_repository
from tritonkit.serve.core.pools import PINNED_BYTES
from tritonkit.serve.gpus import plan_pools
from tritonkit.serve.manifests import container_needs
from tritonkit.serve.repository import read_models

POOLED = """backend: "python"
max_batch_size: 128
input { name: "x" data_type: TYPE_FP32 dims: [3, 224, 224] }
output { name: "y" data_type: TYPE_FP32 dims: [1000] }
instance_group { kind: KIND_GPU count: 2 }
"""
ON_GPU = POOLED.replace("python", "onnxruntime")
CLONE = Path(__file__).resolve().parents[2]


def fetch(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as in the image: next to integrity.py, without tritonkit."""
    image = tmp_path / "image"
    image.mkdir(exist_ok=True)
    shutil.copy(CLONE / "deploy/docker/fetch.py", image)
    shutil.copy(CLONE / "src/tritonkit/repository/publish/integrity.py", image)
    command = [sys.executable, "-IS", str(image / "fetch.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with one published model, and Python's bytecode next to it."""
    version = tmp_path / "source" / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(b"weights")
    config = "# Rendered by tritonkit from models/m/model.yaml (target cpu, cores 2)."
    (version.parent / "config.pbtxt").write_text(f'{config}\nname: "m"\n')
    for folder, name in ((version, "model.onnx"), (version.parent, "config.pbtxt")):
        content = (folder / name).read_bytes()
        files, sizes = {name: sha256(content).hexdigest()}, {name: len(content)}
        manifest = {"model": "m", "files": files, "sizes": sizes}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    (version / "__pycache__").mkdir()
    return version.parents[1]


def test_a_repository_is_copied_in_place_of_the_old_one(tmp_path: Path, source: Path) -> None:
    """Old files go, and Python's bytecode is not copied."""
    target = tmp_path / "models"
    (target / "old" / "1").mkdir(parents=True)
    done = fetch(tmp_path, "--source", str(source), "--to", str(target))
    assert done.returncode == 0, done.stderr
    assert "verified in" in done.stdout
    files = sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file())
    assert files == ["m/1/manifest.json", "m/1/model.onnx", "m/config.pbtxt", "m/manifest.json"]
    assert not (target / "old").exists()
    assert not (target / "m/1/__pycache__").exists()


def test_a_file_that_is_not_as_published_is_named(tmp_path: Path, source: Path) -> None:
    """The pod does not start with it."""
    (source / "m/1/model.onnx").write_bytes(b"weighty")
    (tmp_path / "models").mkdir()
    done = fetch(tmp_path, "--source", str(source), "--to", str(tmp_path / "models"))
    assert (done.returncode, "model.onnx" in done.stderr) == (4, True)
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    """A missing folder is refused too."""
    done = fetch(tmp_path, "--source", str(tmp_path / "nothing"), "--to", str(tmp_path))
    assert (done.returncode, "config.pbtxt" in done.stderr) == (4, True)


@pytest.mark.parametrize(
    ("answer", "alive"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 400 Bad\r\n\r\n", False), (b"", False)],
    ids=["answers", "is not live", "says nothing"],
)
def test_alive_is_who_answers(tmp_path: Path, answer: bytes, alive: bool) -> None:
    """And who is not there to be asked is being started: that is not for the kubelet to end."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import health; from pathlib import Path\n"
        "print(health.alive(Path(sys.argv[2]), 0.5))"
    )
    command = [sys.executable, "-c", program, str(CLONE / "deploy/docker"), str(tmp_path)]

    def printed() -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert printed() == "True"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "http.sock"))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                if answer:
                    connection.sendall(answer)
                else:
                    connection.recv(1024)

        threading.Thread(target=serve, daemon=True).start()
        assert printed() == str(alive)


def test_stop_wants_a_server_that_runs() -> None:
    """Outside a container that serves there is nothing to leave."""
    command = [sys.executable, "-IS", str(CLONE / "deploy/docker/stop.py"), "soon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_a_stub_whose_model_was_loaded_again_is_not_dead(tmp_path: Path) -> None:
    """It stays a zombie below Triton, which does not wait for it."""
    for number, state in ((77, "Z"), (78, "Z"), (79, "S")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} (triton_python_b) {state} 1 1")
    (tmp_path / "replaced-stubs").write_text("77")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import health; from pathlib import Path\n"
        "print(health.dead_stubs(Path(sys.argv[2]), Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", program, str(CLONE / "deploy/docker"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{78}"


@pytest.mark.parametrize(
    ("others", "chosen", "cores"),
    [
        ({0: 0.9, 1: 0.0, 2: 0.5}, (), {1}),
        ({0: 0.9, 1: 0.0, 2: 0.5}, (0,), {1}),
        ({0: 0.2, 1: 0.0, 2: 0.5}, (0,), {0}),
        ({0: 0.9, 1: 0.0, 2: 0.1, 3: 0.0}, (0, 1), {1, 3}),
    ],
    ids=["first", "moves", "stays", "two"],
)
def test_cores_are_those_with_the_least_other_load(
    others: dict[int, float], chosen: tuple[int, ...], cores: set[int]
) -> None:
    """And a server stays where a move would win little."""
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]; import pinning\n"
        f"print(sorted(pinning.best({others}, {chosen}, {len(cores)})))"
    )
    command = [sys.executable, "-c", program, str(CLONE / "deploy/docker"), str(CLONE / "src/tritonkit")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sorted(cores))


def test_models_that_call_others_come_last(tmp_path: Path) -> None:
    """Each after those it needs, with the ensembles that have one of them; others are loaded at the start."""
    calls = 'parameters { key: "tritonkit.calls" value { string_value: "%s" } }'
    configs = {
        "alone": "",
        "none": calls % "",
        "a_caller": calls % "b_caller alone",
        "b_caller": calls % "alone",
        "early": "",
        "joined": 'ensemble_scheduling { step { model_name: "a_caller" } step { model_name: "alone" } }',
        "plain": 'ensemble_scheduling { step { model_name: "alone" } }',
    }
    for name, text in configs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(text)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import callers; from pathlib import Path\n"
        "print(*callers.later(Path(sys.argv[3])), '|', *callers.later(Path(sys.argv[3]), ['early']))"
    )
    folders = (CLONE / "deploy/docker", CLONE / "src/tritonkit/serve", tmp_path)
    command = [sys.executable, "-c", program, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = done.stdout.split("|")
    assert first.split() == ["b_caller", "a_caller", "joined"]
    assert second.split() == ["b_caller", "early", "a_caller", "joined"]


WITHOUT_GUARD = "warning: the native guard is missing: requests may have up to 2 GiB\n"
LAUNCH = """if True:
    import sys
    sys.path.insert(0, sys.argv[1])
    import launching, options
    from fitting import refusals
    from pathlib import Path
    launching._HOME, launching._VENV = Path(sys.argv[2], "opt"), Path(sys.argv[2], "venv")
    given, extra = options.parser(None).parse_known_args(sys.argv[3:])
    try:
        launch, without = launching.command(given, extra, 1)
    except launching.Refused as refusal:
        sys.exit(str(refusal))
    print(*launch.argv)
    sys.exit("\\n".join(refusals(without)) or None)
"""


@dataclass(frozen=True)
class Image:
    """The server's image with a repository: its programs, an environment for GPUs and the folder of backends."""

    folder: Path

    def launch(self, models: dict[str, ModelText], *extra: str) -> subprocess.CompletedProcess[str]:
        """The command line that it would start on standard output, and what it refuses on standard error."""
        shutil.rmtree(self.folder / "models", ignore_errors=True)
        repository = write_repository(self.folder / "models", models)
        needs = container_needs(read_models(repository), ())
        (self.folder / "needs.json").write_text(json.dumps(asdict(needs)))
        given = {"repository": repository, "needs": self.folder / "needs.json", "backend": "python"}
        words = [
            *(f"--{name}={value}" for name, value in given.items()),
            "--own-key",
            "--key-file=/nonexistent",
            *extra,
        ]
        command = [sys.executable, "-IS", "-c", LAUNCH, str(self.folder / "programs"), str(self.folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def image(fake_driver: FakeDriver, tmp_path: Path) -> Image:
    """An image made for GPUs, with the stand-ins of its backends."""
    programs = tmp_path / "programs"
    shutil.copytree(CLONE / "deploy/docker", programs, ignore=shutil.ignore_patterns("keys", "wheels"))
    shutil.copytree(CLONE / "src/tritonkit/serve/core", programs / "core")
    for name in ("repository/publish/configurations.py", "repository/publish/integrity.py", "machine.py"):
        shutil.copy(CLONE / "src/tritonkit" / name, programs)
    write_cuda_packages(tmp_path / "venv" / "lib" / "python3.11" / "site-packages", fake_driver)
    stand_in = tmp_path / "opt" / "backends" / "onnxruntime" / "model.py"
    stand_in.parent.mkdir(parents=True)
    stand_in.touch()
    return Image(tmp_path)


def test_a_container_without_its_gpu_says_what_is_missing(
    image: Image, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses to start if nothing else is left to serve; models on the CPU ask no driver."""

    def refusal(kind: str) -> str:
        return image.launch({"net": ModelText(ON_GPU.replace("KIND_GPU", kind))}).stderr

    fake_driver.answer(monkeypatch)
    assert refusal("KIND_GPU") == WITHOUT_GUARD
    fake_driver.answer(monkeypatch, cuda=12080, version="570.86.10")
    wrong = refusal("KIND_GPU")
    assert "models: model net: it asks for a GPU (KIND_GPU): the driver 570.86.10 runs CUDA 12.8" in wrong
    assert "driver 580 or newer on the machine, the image server-gpu, and docker run --gpus all" in wrong
    assert refusal("KIND_CPU") == WITHOUT_GUARD
    fake_driver.answer(monkeypatch, cuda=13000, devices=0)
    assert "CUDA sees no GPU" in refusal("KIND_GPU")
    fake_driver.answer(monkeypatch, devices=1)
    next(image.folder.rglob("libcudnn.so.9")).unlink()
    assert "CUDA's libraries are incomplete: libcudnn.so.9" in refusal("KIND_GPU")
    next(image.folder.rglob("libonnxruntime_providers_cuda.so")).unlink()
    assert "ONNX Runtime is the one for CPUs" in refusal("KIND_GPU")


def test_a_container_serves_the_models_that_need_no_gpu(
    image: Image, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the others is named with its reason and what to do, an ensemble for its part; none of them is loaded."""
    joined = """platform: "ensemble" max_batch_size: 128
input { name: "x" data_type: TYPE_FP32 dims: [3, 224, 224] }
output { name: "y" data_type: TYPE_FP32 dims: [1000] }
ensemble_scheduling { step { model_name: "net" model_version: -1
  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }
"""
    second = ModelText(POOLED.replace("count: 2", "gpus: [1]"))
    models = {"net": ModelText(ON_GPU), "joined": ModelText(joined), "other": ModelText(POOLED), "second": second}
    models |= {"plain": ModelText(POOLED.replace("KIND_GPU", "KIND_CPU"))}

    def served(**facts: int) -> tuple[list[str], list[str]]:
        fake_driver.answer(monkeypatch, **facts)
        done = image.launch(models)
        lines = [line for line in done.stderr.splitlines() if "not served" in line]
        return [word for word in done.stdout.split() if word.startswith("--load-model=")], sorted(lines)

    loaded, lines = served(devices=1)
    assert loaded == ["--load-model=joined", "--load-model=net", "--load-model=other", "--load-model=plain"]
    assert len(lines) == 1
    assert "model second: not served: its instance_group names GPU 1, and CUDA sees 1 here; do: correct" in lines[0]
    loaded, lines = served(devices=0)
    assert loaded == ["--load-model=plain"]
    assert [line.split()[1] for line in lines] == ["joined:", "net:", "other:", "second:"]
    assert "it calls net, which cannot be served; do: driver 580 or newer" in lines[0]
    assert "CUDA sees no GPU (none is visible to it)" in lines[1]


def test_a_container_without_tensorrt_serves_the_other_models(
    image: Image, fake_driver: FakeDriver, write_tensorrt: WriteTensorRT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model with that accelerator is named with the library and its package."""
    accelerator = 'optimization { execution_accelerators {\n  gpu_execution_accelerator { name: "tensorrt" } } }\n'
    models = {"net": ModelText(ON_GPU + accelerator), "other": ModelText(ON_GPU)}
    fake_driver.answer(monkeypatch)
    done = image.launch(models)
    assert "--load-model=other" in done.stdout
    assert "--load-model=net" not in done.stdout
    assert "model net: not served: its accelerator is tensorrt: the environment's ONNX Runtime has no" in done.stderr
    assert "install tensorrt-cu13-libs>=10.13,<11 into the image's environment" in done.stderr
    packages = image.folder / "venv" / "lib" / "python3.11" / "site-packages"
    write_tensorrt_provider(packages, fake_driver, write_tensorrt, 101601)
    done = image.launch(models)
    assert "--load-model=net" in done.stdout
    assert done.stderr == WITHOUT_GUARD


def test_a_container_has_the_pools_of_its_models(
    image: Image, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder hands over what models take of GPUs, and each GPU of this machine has room for it, as with `serve`;
    a flag of the container's command, in one word or in two, replaces that."""

    def pools(*extra: str) -> list[str]:
        done = image.launch({"net": ModelText(POOLED)}, *extra)
        return [word for word in done.stdout.split() if "pool-byte-size" in word]

    fake_driver.answer(monkeypatch, devices=2)
    given = pools()
    planned = plan_pools(read_models(image.folder / "models"), 2)
    assert planned.pinned_bytes > PINNED_BYTES
    pinned = f"--pinned-memory-pool-byte-size={planned.pinned_bytes}"
    cuda = [f"--cuda-memory-pool-byte-size={number}:{planned.cuda_bytes[number]}" for number in (0, 1)]
    assert given == [pinned, *cuda]
    assert pools("--pinned-memory-pool-byte-size=1") == [*cuda, "--pinned-memory-pool-byte-size=1"]
    assert pools("--cuda-memory-pool-byte-size=0:1") == [pinned, "--cuda-memory-pool-byte-size=0:1"]
    assert pools("--pinned-memory-pool-byte-size", "1") == [*cuda, "--pinned-memory-pool-byte-size"]
    assert pools("--cuda-memory-pool-byte-size", "0:1") == [pinned, "--cuda-memory-pool-byte-size"]
