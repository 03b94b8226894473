"""Builds of strangers' models: text of native code, steps without an end, engines that die. Other models are built."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.cli.running import Done, failed, tritonkit
from tests.repository.optimize.small_specs import RELU, onnx_file
from tests.waiting import eventually
from tritonkit.cli.native_text import NativeText
from tritonkit.cli.watch import is_watched

EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b[Hpublished: all is well\npublished: evil: new version 1"

NATIVE = """
import contextlib, onnxruntime, os
from pathlib import Path
def samples():
    import numpy as np
    session = onnxruntime.InferenceSession(Path(__file__).parent / 'bad.onnx', providers=['CPUExecutionProvider'])
    with contextlib.suppress(Exception):
        session.run(None, {'x': np.ones((1, 4), np.float32)})
    os.write(1, b'to descriptor 1: \\x1b[31mred\\n')
    return [{'x': np.ones((2, 4), np.float32)}]
"""
CRASH = "import os, signal\ndef samples():\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
INTERRUPTS = """
import os, signal, threading, time
import numpy as np
from tritonkit import watched
def interrupt():
    while not any('runs the network' in step for step in watched._steps):
        time.sleep(0.001)
    os.kill(os.getppid(), signal.SIGINT)
def samples():
    threading.Thread(target=interrupt, daemon=True).start()
    return [{'x': np.ones((2, 4), np.float32)}]
"""
"""Presses Ctrl-C as soon as an engine works."""
DATA = "def samples():\n    import numpy as np\n    return [{'x': np.ones((2, 4), np.float32)}]\n"
SAMPLES = "quality: {samples: data:samples}\n"


def endless() -> bytes:
    """A loop whose condition stays true."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, None)],
        [value("d", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)],
        "graph",
        [value("x", TensorProto.FLOAT, ["batch", 4])],
        [value("y", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor("yes", TensorProto.BOOL, [], [True])],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def write(root: Path, name: str, onnx: bytes, more: str = "", python: str = "") -> None:
    """A model folder."""
    folder = root / "models" / name
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(f"name: {name}\nnetwork: {{onnx: m.onnx}}\n{more}")
    (folder / "m.onnx").write_bytes(onnx)
    if python:
        (folder / "data.py").write_text(python)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """One build of all: in the order of their names."""
    root = tmp_path_factory.mktemp("strangers")
    relu = onnx_file(RELU, ["batch", 4])
    write(root, "a_words", relu, SAMPLES, NATIVE)
    seven = helper.make_node("Constant", [], ["s"], value_ints=[7])
    evil = helper.make_node("Reshape", ["x", "s"], ["y"], name=EVIL)
    (root / "models" / "a_words" / "bad.onnx").write_bytes(onnx_file([seven, evil], [7]))
    write(root, "b_endless", endless())
    write(root, "c_crash", relu, SAMPLES, CRASH)
    write(root, "d_good", relu)
    return root, tritonkit("build", "--step-timeout", "2s", "--root", str(root), cwd=root)


@pytest.mark.slow
def test_text_of_native_code_cannot_act_on_a_terminal(strangers: tuple[Path, Done]) -> None:
    """ONNX Runtime logs a node's name: it is shown as text, behind a bar, and not on standard output."""
    done = strangers[1]
    assert "\x1b" not in done.stderr + done.stdout
    assert "\x07" not in done.stderr
    assert "pwned" in done.stderr, "the engine has logged the name"
    assert "\npublished: evil" not in done.stderr
    assert "| to descriptor 1: red\n" in done.stderr
    assert "descriptor" not in done.stdout


def test_a_step_without_an_end_is_ended_and_named(strangers: tuple[Path, Done]) -> None:
    """The error says which model, which step, after what time, and how to raise the limit."""
    root, done = strangers
    assert "models/b_endless: ONNX Runtime runs the network: it did not end within 2 s" in done.stderr
    assert "tritonkit build --step-timeout 2h" in done.stderr
    assert not (root / "model_repository" / "b_endless").exists()


def test_another_command_names_the_limit_that_it_has(
    strangers: tuple[Path, Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's; a text that is not a time is refused."""
    words = ("deploy", "--target", "lambda", "--model", "b_endless")
    monkeypatch.setenv("TRITONKIT_STEP_TIMEOUT", "1s")
    message = failed(tritonkit(*words, cwd=strangers[0]), 3)
    assert "ONNX Runtime runs the network: it did not end within 1 s" in message
    assert "raise the limit: TRITONKIT_STEP_TIMEOUT=2h tritonkit deploy\n" in message
    monkeypatch.setenv("TRITONKIT_STEP_TIMEOUT", "soon")
    assert "TRITONKIT_STEP_TIMEOUT: 'soon'" in failed(tritonkit(*words, cwd=strangers[0]), 2)


def test_an_engine_that_ends_the_process_is_named(strangers: tuple[Path, Done]) -> None:
    """A signal becomes an error of that model."""
    assert "models/c_crash: an engine ended the process that worked (SIGSEGV)" in strangers[1].stderr


def test_the_other_models_are_published(strangers: tuple[Path, Done]) -> None:
    """Models before and after them are; the exit code is that of a build with failures."""
    root, done = strangers
    assert "2 models could not be built" in failed(done, 3)
    assert "published: a_words: new version 1" in done.stderr
    assert (root / "model_repository" / "d_good" / "1" / "model.onnx").is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_build_that_is_ended_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """The process that works ends with the one that was started, however that ends."""
    waits = "import os, time\ndef samples():\n    print('pid', os.getpid(), flush=True)\n    time.sleep(60)\n"
    write(tmp_path, "relu", onnx_file(RELU, ["batch", 4]), SAMPLES, waits)
    command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        worker = next(int(line.split()[1]) for line in process.stderr if line.startswith("pid "))
        process.send_signal(number)
        process.wait()
    assert process.returncode == -number
    eventually(lambda: not Path(f"/proc/{worker}").exists())


@pytest.mark.slow
def test_ctrl_c_ends_an_engine_that_gives_nothing_back(tmp_path: Path) -> None:
    """Also one that has just begun. Python itself hears of it only after the step."""
    write(tmp_path, "endless", endless(), SAMPLES, INTERRUPTS)
    done = tritonkit("build", "--step-timeout", "1m", "--root", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert "interrupted: the engine was ended" in done.stderr


def test_streams_that_a_caller_has_closed_lead_nowhere(tmp_path: Path) -> None:
    """A build without standard streams, as in a service, works; its suppressed output goes to no other file."""
    write(tmp_path, "relu", onnx_file(RELU, ["batch", 4]), SAMPLES, DATA)
    command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", str(tmp_path)]
    closed = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=False)
    assert closed.returncode == 0
    assert (tmp_path / "model_repository" / "relu" / "1" / "model.onnx").is_file()
    command[-3:] = ["--version"]
    version = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, check=False)
    assert (version.returncode, version.stderr) == (0, b"")


def test_a_process_that_writes_on_keeps_no_build_from_its_end(tmp_path: Path) -> None:
    """A hook's process may outlive the build."""
    writes = f"import subprocess\nsubprocess.Popen(['timeout', '60', 'yes', '\\x1b'])\n{DATA}"
    write(tmp_path, "relu", onnx_file(RELU, ["batch", 4]), SAMPLES, writes)
    command = [sys.executable, "-m", "tritonkit.cli", "build", "--root", str(tmp_path)]
    done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=45)
    assert done.returncode == 0


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """Ctrl-C is not meant for a script's background jobs, for which the shell ignores it; nor SIGHUP under nohup."""
    raises = """import signal
from tritonkit.cli import watch
heard = []
with watch._forwarding(heard.append):
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGUSR1)
print(*(signal.Signals(number).name for number in heard))
"""
    ignoring = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-c", raises]
    done = subprocess.run(ignoring, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "SIGUSR1\n")


def test_commands_that_open_a_network_are_watched() -> None:
    """Others, such as those that serve, have no second process."""
    watched = (["build"], ["new", "net", "--onnx", "net.onnx"], ["deploy", "--target", "lambda"])
    assert all(is_watched(words) for words in watched)
    others: tuple[list[str], ...] = ([], ["serve"], ["deploy"], ["inspect", "net"], ["build", "--help"])
    assert not any(is_watched(words) for words in others)


def written(*pieces: bytes) -> str:
    """Output for text that arrives in these pieces."""
    reading, writing = os.pipe()
    text = NativeText(writing)
    for piece in pieces:
        text.feed(piece)
    text.end()
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        return stream.read()


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a", b"b\nc\n"], "| ab\n| c\n"),
        ([b"50%\r", b"\n100%\rdone"], "| 50%\n| 100%\n| done\n"),
        ([b"50%\rok"], "| 50%\n| ok\n"),
        ([b"\x1b[1;31mred\x1b[m \x1b]0;title\x07\n"], "| red \\x1b]0;title\\x07\n"),
        ([b"\xe2\x82", b"\xac\n\xff\n"], "| €\n| \\xff\n"),
        ([b"error: \xc2\x9b2J\n\n\n"], "| error: \\x9b2J\n"),
        ([b"x" * 5000, b"y\n"], f"| {'x' * 4000}... (5000 characters)\n| y\n"),
    ],
    ids=["pieces", "returns", "return", "escapes", "encoding", "c1", "long"],
)
def test_native_text_becomes_harmless_lines(pieces: list[bytes], lines: str) -> None:
    """However it is cut, each line stands behind a bar."""
    assert written(*pieces) == lines
