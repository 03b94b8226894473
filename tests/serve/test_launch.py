"""The start of a server's process: limited, with its key out of sight, with the guard or without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import SERVER
from tests.waiting import eventually
from tritonkit.serve.core.backoff import Backoff
from tritonkit.serve.core.flags import closed_flags
from tritonkit.serve.core.keys import PLACEHOLDER, new_key, write_private
from tritonkit.serve.core.launch import ENVIRONMENTS, SCHEDULING_VARIABLE, UNPACKED, Launch, guard_in, has_guard
from tritonkit.serve.core.supervisor import rotate
from tritonkit.serve.runs import clear, new_run_dir

SAYS = """import json, os, resource, signal, sys
umask = os.umask(0)
try:
    with open("large", "wb") as file:
        file.write(bytes(1 << 20))
    written = "all"
except OSError as error:
    written = os.strerror(error.errno)
print(json.dumps({"umask": umask, "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "written": written, "argv": sys.argv[1:]}))
"""


def facts_of(launch: Launch) -> dict[str, object]:
    """Facts that a process reports about how it was started."""
    output = Path(launch.cwd) / "output"
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        assert launch.start(descriptor).wait(30) == 0, output.read_text()
    finally:
        os.close(descriptor)
    facts: dict[str, object] = json.loads(output.read_text())
    return facts


def test_a_process_is_its_owner_s_alone(tmp_path: Path) -> None:
    """Its files have no bit for others, it leaves no dump of its memory, and it is not killed for a file
    that is too large: the write fails."""
    argv = [sys.executable, "-c", SAYS]
    assert facts_of(Launch(argv, dict(os.environ), str(tmp_path), file_bytes=4096)) == {
        "umask": 0o077,
        "core": 0,
        "written": os.strerror(27),
        "argv": [],
    }
    assert facts_of(Launch(argv, dict(os.environ), str(tmp_path)))["written"] == "all"


POLICY = "import json, os; print(json.dumps({'policy': os.sched_getscheduler(0)}))"


@pytest.mark.parametrize(("chosen", "policy"), [("", os.SCHED_BATCH), ("other", os.SCHED_OTHER)])
def test_a_server_s_threads_do_not_interrupt_each_other(chosen: str, policy: int, tmp_path: Path) -> None:
    """Nor do those of its stubs, which inherit it; unless the environment says otherwise."""
    env = {**os.environ, SCHEDULING_VARIABLE: chosen}
    argv = [sys.executable, "-c", POLICY]
    assert facts_of(Launch(argv, env, str(tmp_path))) == {"policy": policy}


TELEMETRY = "import json, os; print(json.dumps({'off': os.environ.get('ORT_DISABLE_TELEMETRY')}))"


@pytest.mark.parametrize(("chosen", "off"), [({}, "1"), ({"ORT_DISABLE_TELEMETRY": ""}, "")])
def test_a_server_tells_nobody_what_it_serves(chosen: dict[str, str], off: str, tmp_path: Path) -> None:
    """ONNX Runtime's wheels report models by default; who wants that says so."""
    argv = [sys.executable, "-c", TELEMETRY]
    assert facts_of(Launch(argv, chosen, str(tmp_path))) == {"off": off}


def test_a_policy_that_someone_chose_is_kept(tmp_path: Path) -> None:
    """A process started under another policy starts servers under it."""
    idle = "import os, sys; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); "
    start = (
        "from tritonkit.serve.core.launch import Launch; "
        "sys.exit(Launch(sys.argv[1:], dict(os.environ), os.getcwd()).start().wait(30))"
    )
    argv = [sys.executable, "-c", idle + start, sys.executable, "-c", POLICY]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"policy": os.SCHED_IDLE}


UNPACKS = """import json, os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.mkdir(os.environ["TRITONKIT_UNPACK_DIR"])
with open(os.environ["TRITONKIT_UNPACK_DIR"] + "/large", "wb") as file:
    file.write(bytes(1 << 20))
print(json.dumps({}))
"""


def test_what_stubs_unpack_goes_with_the_run(tmp_path: Path) -> None:
    """They may lift the bound on files for it; the folder of the run is where it lies."""
    run = new_run_dir(tmp_path)
    facts_of(Launch([sys.executable, "-c", UNPACKS], dict(os.environ), str(run), file_bytes=4096))
    assert (run / UNPACKED / "large").stat().st_size == 1 << 20
    clear(run)
    assert not (run / UNPACKED).exists()


MAKES = """import ctypes, json
made = ctypes.create_string_buffer(b"/tmp/python_env_XXXXXX", 4096)
libc = ctypes.CDLL(None)
libc.mkdtemp.restype = ctypes.c_char_p
print(json.dumps({"folder": libc.mkdtemp(made).decode()}))
"""


def test_what_a_killed_server_left_goes_when_the_next_one_starts(tmp_path: Path) -> None:
    """The folder that Triton's Python backend makes: in the working directory by the guard's doing, one at most."""
    guard = guard_in(SERVER)
    assert guard is not None
    run = new_run_dir(tmp_path)
    launch = Launch([sys.executable, "-c", MAKES], dict(os.environ), str(run), guard=str(guard))
    first, second = (Path(str(facts_of(launch)["folder"])) for _ in range(2))
    assert first != second
    assert list(run.glob(ENVIRONMENTS)) == [second]
    clear(run)
    assert not second.exists()


def test_without_the_guard_the_key_is_an_argument(tmp_path: Path) -> None:
    """Nobody is served without a key; `serve` says that it can be seen."""
    argv = [sys.executable, "-c", SAYS, f"--x={PLACEHOLDER}"]
    assert facts_of(Launch(argv, dict(os.environ), str(tmp_path), key="secret"))["argv"] == ["--x=secret"]


@pytest.mark.needs("triton")
@pytest.mark.parametrize("folder", ["plain", "with spaces", "with:colon"])
def test_the_guard_is_loaded_wherever_it_lies(project: Path, tmp_path: Path, folder: str) -> None:
    """ld.so takes spaces and colons for ends of names, and would go on without it, with the placeholder
    for a key that everyone knows."""
    built = guard_in(SERVER)
    assert built is not None
    place = tmp_path / folder
    place.mkdir()
    guard = place / "guard.so"
    guard.write_bytes(built.read_bytes())
    argv = [sys.executable, "-c", "import time; time.sleep(600)", f"--x={PLACEHOLDER}"]
    run_folder = place / "run"
    run_folder.mkdir()
    launch = Launch(argv, dict(os.environ), str(run_folder), key=new_key(), guard=str(guard))
    process = launch.start()
    try:
        eventually(lambda: has_guard(process.pid), "the guard is loaded")
        assert launch.key.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not has_guard(process.pid)


def test_flags_close_what_changes_a_server() -> None:
    """HTTP and metrics are sockets, the ports differ, and shared memory has a key that nobody has."""
    flags = closed_flags("127.0.0.1", 2)
    assert "--http-address=unix:http.sock" in flags
    assert "--metrics-address=unix:metrics.sock" in flags
    ports = [flag for flag in flags if "-port=" in flag]
    assert len({flag.partition("=")[2] for flag in ports}) == 3
    for api in ("grpc-restricted-protocol", "http-restricted-api"):
        rules = [flag.partition("=")[2] for flag in flags if flag.startswith(f"--{api}=")]
        assert rules == [
            "model-repository,logging,trace:admin-key={admin-key}",
            "shared-memory:admin-key=off-{admin-key}",
        ]
    opened = closed_flags("127.0.0.1", 8001, shared_memory=True)
    assert "--grpc-restricted-protocol=model-repository,logging,trace,shared-memory:admin-key={admin-key}" in opened


def test_a_log_is_rotated_in_place(tmp_path: Path) -> None:
    """Processes that append to it go on, and the log before stays as NAME.1."""
    log = tmp_path / "server.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        rotate(log, at_bytes=101)
        assert log.stat().st_size == 100
        rotate(log, at_bytes=100)
        writer.write(b"b")
    assert log.read_bytes() == b"b"
    assert (tmp_path / "server.log.1").read_bytes() == b"a" * 100


def test_a_private_file_replaces_a_link(tmp_path: Path) -> None:
    """It is not written through whatever lies in its place."""
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "key").symlink_to(other)
    write_private(tmp_path / "key", "secret")
    assert other.read_text() == "mine"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_waits_grow_and_end() -> None:
    """After deaths of a server that was ready the delays grow without end; failed starts are
    counted."""
    backoff = Backoff(3)
    waits = [backoff.after_death(was_ready=True) for _ in range(20)]
    assert waits[:3] == [0.2, 0.4, 0.8]
    assert waits[-1] == 10.0
    assert backoff.after_death(was_ready=False) is not None
    assert backoff.after_death(was_ready=False) is not None
    assert backoff.after_death(was_ready=False) is None
    assert Backoff(0).after_death(was_ready=True) is None
