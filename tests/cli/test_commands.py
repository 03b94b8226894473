"""The command line as a person types it: output, exit codes, and never a traceback for a mistake."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli import running
from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.conftest import PROJECT
from tests.fakedriver import FakeDriver, write_cuda_packages
from tests.repository.optimize.small_specs import RELU, onnx_file
from tests.serve.test_install import write_venv
from tritonkit.serve.install import VENV_VARIABLE


@pytest.fixture
def relu(root: Path, tmp_path: Path) -> Path:
    """A project with one model made by `tritonkit new`."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx_file(RELU, ["batch", 4]))
    done = tritonkit("new", "relu", "--onnx", str(file), "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert "next: tritonkit build relu" in done.stderr
    return root


def test_a_new_model_goes_on_the_gpu_where_the_server_is_for_one(
    root: Path, fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command that follows builds and serves for what is installed."""
    (tmp_path / "relu.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    venv = write_venv(tmp_path / "venv")
    monkeypatch.setenv(VENV_VARIABLE, str(venv))
    following = []
    for name in ("on_cpu", "on_gpu"):
        done = tritonkit("new", name, "--onnx", str(tmp_path / "relu.onnx"), "--root", str(root))
        following.append(done.stderr.strip().rpartition("next: ")[2].replace("\n", " "))
        write_cuda_packages(venv / "lib" / "python3.11" / "site-packages", fake_driver)
    assert following == [
        "tritonkit build on_cpu && tritonkit serve --model on_cpu",
        "tritonkit build on_gpu --target gpu && tritonkit serve --model on_gpu --repository model_repository_gpu",
    ]


BAD = {
    "no_file": "name: no_file\nnetwork: {onnx: not-here.onnx}\n",
    "no_key": "name: no_key\nnetwrk: {}\n",
    "no_package": "name: no_package\nnetwork: {onnx: {package: no_such_package, file: a.onnx}}\n",
    "no_yaml": "name: [\n",
}
"""Folders that cannot be built, and their model.yaml."""


def test_build_publishes_and_then_has_nothing_to_do(relu: Path) -> None:
    """The first build writes a version, the second writes nothing, --check agrees."""
    done = tritonkit("build", "--root", str(relu))
    assert done.returncode == 0, done.stderr
    assert "relu" in done.stdout
    assert "published: relu: new version 1" in done.stderr
    again = tritonkit("build", "--root", str(relu))
    assert "nothing to change" in again.stderr
    assert tritonkit("build", "--root", str(relu), "--check").returncode == 0


def test_build_as_json(relu: Path) -> None:
    """Figures and changes for a program, on standard output alone."""
    facts = json.loads(tritonkit("build", "relu", "--json", "--root", str(relu)).stdout)
    assert facts["models"][0]["model"] == "relu"
    assert facts["models"][0]["quality"]["max_difference"] == 0
    assert facts["changes"] == [{"model": "relu", "action": "new version", "version": 1}]


def test_a_dry_run_says_what_would_be_done(relu: Path) -> None:
    """Nothing is built and nothing written."""
    done = tritonkit("build", "--dry-run", "--root", str(relu))
    assert done.returncode == 0
    assert "would be built" in done.stdout
    assert not (relu / "model_repository").exists()


def test_an_edited_configuration_fails_the_check(relu: Path) -> None:
    """Exit code 3, with the difference shown."""
    tritonkit("build", "--root", str(relu))
    config = relu / "model_repository" / "relu" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 64", "max_batch_size: 65"))
    message = failed(tritonkit("build", "--check", "--root", str(relu)), 3)
    assert "-max_batch_size: 65" in message
    assert "+max_batch_size: 64" in message


@pytest.mark.parametrize(("target", "accelerator"), [("gpu", "cuda"), ("nvidia", "tensorrt")])
def test_each_target_has_a_repository_of_its_own(relu: Path, target: str, accelerator: str) -> None:
    """A target for GPUs renders KIND_GPU, also on a machine without one, and leaves the CPU repository alone."""
    with (relu / "models" / "relu" / "model.yaml").open("a") as spec:
        spec.write("\nserving: {instance_group: [{kind: gpu}]}\n")
    assert tritonkit("build", "--target", target, "--root", str(relu)).returncode == 0
    text = (relu / f"model_repository_{target}" / "relu" / "config.pbtxt").read_text()
    assert "KIND_GPU" in text
    assert f'name: "{accelerator}"' in text
    assert not (relu / "model_repository").exists()


def test_a_tiny_network_stays_on_the_cpu_of_a_server_with_a_gpu(relu: Path) -> None:
    """A note has its work and the words that put it on the GPU; a second build changes nothing."""
    done = tritonkit("build", "--target", "gpu", "--root", str(relu))
    assert done.returncode == 0, done.stderr
    assert "it runs on the CPU" in done.stderr
    assert "instance_group: [{kind: gpu}]" in done.stderr
    assert "KIND_CPU" in (relu / "model_repository_gpu" / "relu" / "config.pbtxt").read_text()
    again = tritonkit("build", "--target", "gpu", "--root", str(relu))
    assert "nothing to change" in again.stderr


@pytest.mark.parametrize("run", [tritonkit, running.tritonkit], ids=["here", "process"])
def test_a_bad_spec_is_exit_code_2(relu: Path, run: Callable[..., Any]) -> None:
    """The message names file, line, key and the nearest known key; also in a process of its own."""
    spec = relu / "models" / "relu" / "model.yaml"
    spec.write_text(spec.read_text() + "servng: {}\n")
    message = failed(run("build", "--root", str(relu)), 2)
    assert "unknown key 'servng'" in message
    assert "'serving'" in message


def test_an_error_is_json_for_a_program() -> None:
    """With --json the error on standard error is one object."""
    message = failed(tritonkit("build", "no_such_model", "--json"), 2)
    assert json.loads(message)["error"] == "UsageError"


def test_calling_where_nobody_answers_is_exit_code_5() -> None:
    """Port 1 is nobody's: the message names the address."""
    done = tritonkit("call", "digits", "--input", "text=x", "--address", "127.0.0.1:1", "--timeout-s", "3")
    assert "127.0.0.1:1" in failed(done, 5)


@pytest.mark.parametrize(
    ("value", "message"), [("novalue", "NAME=VALUE"), ("image=@/no/such/file.png", "cannot be read")]
)
def test_an_input_that_cannot_be_read_is_exit_code_2_or_names_it(value: str, message: str) -> None:
    """The option says how it is written, before anything is sent."""
    done = tritonkit("call", "digits", "--input", value, "--address", "127.0.0.1:1")
    assert message in failed(done, 2)


def test_outside_of_a_project_the_message_says_where(tmp_path: Path) -> None:
    """Commands that need the project name --root."""
    assert "--root" in failed(tritonkit("build", cwd=tmp_path), 2)


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "", "a b"])
def test_an_image_of_a_container_is_a_name(relu: Path, image: str) -> None:
    """Docker would read a hyphen as an option of its own."""
    done = tritonkit("build", "--target", "nvidia", "--in-container", f"--image={image}", "--root", str(relu))
    assert "wanted: the name of an image" in failed(done, 2)


def test_a_relative_out_is_taken_from_where_the_person_stands(relu: Path) -> None:
    """Also `.`, and also from a folder inside the project."""
    (relu / "here").mkdir()
    assert tritonkit("build", "--out", ".", cwd=relu / "here").returncode == 0
    assert [path.name for path in (relu / "here").iterdir()] == ["relu"]


def test_two_specs_with_a_model_of_one_name_are_refused(relu: Path) -> None:
    """A step's model and another spec's may not share a name."""
    twin = relu / "models" / "relu_top_k"
    shutil.copytree(relu / "models" / "relu", twin)
    (twin / "model.yaml").write_text("name: relu_top_k\nnetwork: {onnx: relu.onnx}\n")
    (relu / "models" / "relu" / "labels.txt").write_text("a\nb\nc\nd\n")
    (relu / "models" / "relu" / "model.yaml").write_text(
        "name: relu\nnetwork: {onnx: relu.onnx}\npipeline:\n  - network\n"
        "  - {step: top_k, parameters: {k: 1, labels: labels.txt}, inputs: {logits: y}}\n"
    )
    assert "one model of a name" in failed(tritonkit("build", "--root", str(relu)), 3)
    assert not (relu / "model_repository").exists()


def test_a_build_reads_only_what_is_named(relu: Path) -> None:
    """Whatever stands in other folders: keys nobody knows, no YAML, files and packages that are missing."""
    for name, text in BAD.items():
        (relu / "models" / name).mkdir()
        (relu / "models" / name / "model.yaml").write_text(text)
    done = tritonkit("build", "relu", "--json", "--root", str(relu))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changes"] == [{"model": "relu", "action": "new version", "version": 1}]
    assert tritonkit("build", "relu", "--check", "--root", str(relu)).returncode == 0
    assert tritonkit("report", "relu", "--root", str(relu)).returncode == 0
    every = tritonkit("inspect", "--root", str(relu), "--json")
    assert [facts["model"] for facts in json.loads(every.stdout)["models"]] == ["relu"]
    assert "warning: no_yaml is left out: " in every.stderr


def test_a_build_of_all_publishes_the_models_that_can_be_built(relu: Path) -> None:
    """Each that fails is named, what it had published stays, and the exit code is not 0."""
    models, published = relu / "models", relu / "model_repository"
    shutil.copytree(models / "relu", models / "early")
    (models / "early" / "model.yaml").write_text("name: early\nnetwork: {onnx: relu.onnx}\n")
    assert tritonkit("build", "--root", str(relu)).returncode == 0
    (models / "early" / "model.yaml").write_text("name: early\nnetwork: {onnx: gone.onnx}\n")
    (models / "relu" / "model.yaml").write_text(
        "name: relu\nnetwork: {onnx: relu.onnx}\nserving: {max_batch_size: 2}\n"
    )
    done = tritonkit("build", "--root", str(relu))
    assert "there is no file 'gone.onnx'" in failed(done, 2)
    assert "published: relu: new configuration" in done.stderr
    assert "max_batch_size: 2" in (published / "relu" / "config.pbtxt").read_text()
    assert (published / "early" / "1" / "model.onnx").is_file()
    for name, text in BAD.items():
        (models / name).mkdir()
        (models / name / "model.yaml").write_text(text)
    done = tritonkit("build", "--json", "--root", str(relu))
    error = json.loads(failed(done, 3))
    assert error["found"] == "5 models could not be built"
    facts = json.loads(done.stdout)
    assert sorted(facts["failed"]) == ["early", *sorted(BAD)]
    assert facts["failed"]["no_package"]["do"] == "pip install no-such-package"
    # A model that is built only when named may lack its files.
    (models / "no_file" / "model.yaml").write_text(BAD["no_file"] + "default: false\n")
    done = tritonkit("build", "--json", "--root", str(relu))
    assert "no_file" not in json.loads(done.stdout)["failed"]


def test_an_empty_array_file_and_a_name_given_twice_are_exit_code_2(tmp_path: Path) -> None:
    """Both are found before anything is sent."""
    (tmp_path / "e.npy").touch()
    assert "cannot be read" in failed(tritonkit("call", "m", "--input", f"x=@{tmp_path}/e.npy"), 2)
    assert "twice" in failed(tritonkit("call", "m", "--input", "x=1", "--input", "x=2"), 2)


def test_ctrl_c_during_a_build_leaves_nothing(relu: Path) -> None:
    """Exit code 130, no traceback, no half artifact."""
    spec = relu / "models" / "relu" / "model.yaml"
    spec.write_text(spec.read_text() + "quality: {samples: data:wait}\n")
    (spec.parent / "data.py").write_text("import time\ndef wait():\n    print('in', flush=True)\n    time.sleep(60)\n")
    command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", str(relu)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while process.stderr.readline().strip() != "in":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        message = process.stderr.read()
    assert process.returncode == 130, message
    assert "Traceback" not in message
    assert "interrupted: nothing was published; finished variants" in message
    assert not list(relu.glob(".tritonkit/cache/*/.building-*"))
    assert not (relu / "model_repository").exists()


def test_an_interrupted_build_goes_on_from_the_cache(relu: Path) -> None:
    """Variants that were finished before Ctrl-C are not made again."""
    calibrated(relu, "    print('in', flush=True)\n    time.sleep(60)\n")
    command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", str(relu)]
    variants = ["--variants", "onnx-fp16"]
    with subprocess.Popen([*command, *variants], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while process.stderr.readline().strip() != "in":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    again = tritonkit("build", "--root", str(relu))
    assert again.returncode == 0, again.stderr
    assert "checking onnx-fp32" not in again.stderr
    assert "published: relu: new version 1" in again.stderr


def calibrated(relu: Path, body: str, more: str = "") -> None:
    """Give the model calibration data with that body, and further lines of its spec."""
    spec = relu / "models" / "relu" / "model.yaml"
    spec.write_text(f"{spec.read_text()}optimize: {{calibration: data:given}}\n{more}")
    code = f"import time\nimport numpy as np\ndef given():\n{body}"
    (spec.parent / "data.py").write_text(code)


def test_what_was_measured_is_shown_before_the_error(relu: Path) -> None:
    """The served variant cannot be made: exit code 3, with the table of the others."""
    nan = "    return [{'x': np.full((2, 4), np.nan, np.float32)}]\n"
    calibrated(relu, nan, "serving: {variant: onnx-fp16}\n")
    done = tritonkit("build", "--variants", "onnx-fp32", "--root", str(relu))
    assert "NaN" in failed(done, 3)
    table = done.stdout.splitlines()
    assert any(line.startswith("onnx-fp32 ") and line.endswith("passed") for line in table)
    assert any(line.startswith("onnx-fp16 ") and "cannot be made" in line for line in table)


def test_a_named_variant_that_cannot_be_made_is_a_line(relu: Path) -> None:
    """The served one is good: exit code 0, and why the other is not there in a line."""
    done = tritonkit("build", "--variants", "onnx-fp16", "--root", str(relu))
    assert done.returncode == 0, done.stderr
    assert "cannot be made" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("onnx-fp16: ")]
    assert "optimize.calibration: it is not given; wanted: " in line
    assert "; do: " in line
    assert "published: relu" in done.stderr


def test_a_dry_run_says_what_is_in_the_cache(relu: Path) -> None:
    """Variants that were made earlier are not judged again, so not refused."""
    tritonkit("build", "--root", str(relu))
    done = tritonkit("build", "--dry-run", "--variants", "onnx-int8-dynamic", "--root", str(relu))
    assert "in the cache, served" in done.stdout
    assert "would be built" in done.stdout
    assert "refused" not in done.stdout


def test_a_second_build_says_that_it_waits(relu: Path) -> None:
    """Once, and goes on when the first has ended."""
    file = relu / ".tritonkit" / "build.lock"
    file.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", str(relu)]
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("waiting for another build ")
    with process:
        message = process.stderr.read()
    assert process.returncode == 0, message
    assert "published: relu" in message
    assert "waiting" not in message


def test_tables_show_data_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Text that looks like markup or an emoji's name is a model's answer, not ours to change."""
    from tritonkit.cli.output import print_table

    print_table("t", ["a"], [[":smile: [bold]" + "x" * 300]])
    assert ":smile: [bold]" + "x" * 300 in capsys.readouterr().out


def test_build_repo_is_the_same_command(relu: Path) -> None:
    """tools/build_repo.py takes the same arguments."""
    done = subprocess.run(
        [sys.executable, str(PROJECT / "tools" / "build_repo.py"), "--root", str(relu), "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "would be built" in done.stdout


def test_every_command_shows_an_example() -> None:
    """--help of each command ends in something to type."""
    page = (PROJECT / "docs" / "cli.md").read_text()
    for section in page.split("\n## ")[1:]:
        assert "Example: tritonkit" in section, section.splitlines()[0]


def test_the_page_of_commands_is_current() -> None:
    """docs/cli.md is what --help prints now: `python tools/cli_page.py`."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path[:0] = ['tools']; import cli_page; print(cli_page.text(), end='')"],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT,
    )
    assert done.stdout == (PROJECT / "docs" / "cli.md").read_text()


def test_a_full_disk_behind_standard_output_has_words(root: Path) -> None:
    """For much and for little text, in plain text and in JSON; no traceback."""
    for words in (("schema",), ("keys", "list", "--json", "--root", str(root))):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tritonkit.cli", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "standard output" in done.stderr
        assert "No space left on device" in done.stderr
        assert "free space" in done.stderr
