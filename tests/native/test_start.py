"""The guard's work at the start of a process: its settings, and the key for its arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KEY = "k" * 43
SHOW = (
    "import os, sys; print(sys.orig_argv[1:]); print(sorted(n for n in os.environ if 'GUARD' in n));"
    "print(open('/proc/self/cmdline').read().split(chr(0))[-2])"
)
OPTION = "--grpc-restricted-protocol=model-repository,logging:admin-key={admin-key}"


def run(
    guard: Path, *arguments: str, key: bytes | None = KEY.encode(), **settings: str
) -> subprocess.CompletedProcess[str]:
    """A program under the guard, the key in a pipe."""
    reader, writer = os.pipe()
    os.write(writer, key or b"")
    os.close(writer)
    named = {} if key is None else {"TRITONKIT_GUARD_KEY_FD": str(reader)}
    try:
        return subprocess.run(
            [sys.executable, "-ISc", SHOW, *arguments],
            env={**os.environ, "LD_PRELOAD": str(guard), **named, **settings},
            pass_fds=[reader],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(reader)


@pytest.mark.parametrize("ending", ["", "\n"])
def test_the_program_sees_the_key_and_others_the_placeholder(guard: Path, ending: str) -> None:
    """main() gets the key wherever the placeholder stood; /proc/PID/cmdline shows the placeholder."""
    done = run(guard, OPTION, f"{OPTION}+{{admin-key}}", key=(KEY + ending).encode())
    arguments, _, shown = done.stdout.splitlines()
    whole = OPTION.replace("{admin-key}", KEY)
    assert f"'{whole}', '{whole}+{KEY}'" in arguments
    assert shown == f"{OPTION}+{{admin-key}}"


def test_children_inherit_no_settings(guard: Path) -> None:
    """The variables are gone, so that a stub looks for no key and follows no connection."""
    done = run(guard, OPTION, TRITONKIT_GUARD_GRPC_PORT="8001", TRITONKIT_GUARD_MAX_MESSAGE_BYTES="1")
    assert done.stdout.splitlines()[1] == "[]"


def test_the_descriptor_is_closed(guard: Path) -> None:
    """The program cannot read the key's descriptor, nor can what it starts."""
    reader, writer = os.pipe()
    os.write(writer, KEY.encode())
    os.close(writer)
    done = subprocess.run(
        [sys.executable, "-ISc", "import os; os.fstat(int(os.sys.argv[1]))", str(reader), OPTION],
        env={**os.environ, "LD_PRELOAD": str(guard), "TRITONKIT_GUARD_KEY_FD": str(reader)},
        pass_fds=[reader],
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(reader)
    assert "Bad file descriptor" in done.stderr


def test_a_program_without_settings_is_left_alone(guard: Path) -> None:
    """A program without settings, such as a stub, runs unchanged: a placeholder in names and paths is not an option."""
    done = run(guard, "/models/{admin-key}", key=None)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "/models/{admin-key}" in done.stdout


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (b"", "found nothing, wanted a key"),
        (b"\n", "found nothing, wanted a key"),
        (b"a b", "printable ASCII"),
        (b"abc\0def", "printable ASCII"),
        ("Schlüssel".encode(), "printable ASCII"),
        (b"x" * 256, "found a longer key, wanted at most 255"),
        (None, "wanted the descriptor to read the admin key from"),
    ],
)
def test_without_a_proper_key_nothing_starts(guard: Path, key: bytes | None, message: str) -> None:
    """Never with the placeholder as the key: an error on stderr, and exit code 4."""
    done = run(guard, OPTION, key=key)
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.startswith("tritonkit guard: TRITONKIT_GUARD_KEY_FD: ")
    assert message in done.stderr


@pytest.mark.parametrize("number", ["", "x", "7x", "-1", "0", "99999999999999999999", "63"])
def test_a_bad_descriptor_starts_nothing(guard: Path, number: str) -> None:
    """A text that is not the number of an open descriptor is refused."""
    done = run(guard, OPTION, key=None, TRITONKIT_GUARD_KEY_FD=number)
    assert done.returncode == 4
    assert "TRITONKIT_GUARD_KEY_FD" in done.stderr


@pytest.mark.parametrize(
    ("port", "most", "socket", "expected"),
    [
        ("x", "1", None, "a whole number from 0 to 65535"),
        ("", "1", None, "found nothing"),
        ("65536", "1", None, "a whole number from 0 to 65535"),
        ("-1", "1", None, "a whole number from 0 to 65535"),
        ("8001", None, None, "MAX_MESSAGE_BYTES: found nothing"),
        ("8001", "0", None, "a whole number from 1 to 2147483647"),
        ("8001", "2147483648", None, "a whole number from 1 to 2147483647"),
        ("8001", "1e6", None, "a whole number from 1 to 2147483647"),
        (None, "1", None, "where gRPC listens"),
        (None, "1", "grpc.sock", "the absolute path"),
    ],
)
def test_a_bad_setting_starts_nothing(
    guard: Path, port: str | None, most: str | None, socket: str | None, expected: str
) -> None:
    """An error that names the variable, what was found and what was wanted; exit code 4."""
    values = {"GRPC_PORT": port, "MAX_MESSAGE_BYTES": most, "GRPC_SOCKET": socket}
    settings = {f"TRITONKIT_GUARD_{name}": text for name, text in values.items() if text is not None}
    done = run(guard, key=None, **settings)
    assert done.returncode == 4
    assert expected in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("name", "most"), [("UNREAD_MIB", 1048576), ("UNREAD_S", 86400)])
def test_a_bad_bound_on_unread_answers_starts_nothing(guard: Path, name: str, most: int) -> None:
    """Each has a default, and a range that the error names."""
    port = {"TRITONKIT_GUARD_GRPC_PORT": "8001", "TRITONKIT_GUARD_MAX_MESSAGE_BYTES": "1"}
    assert run(guard, key=None, **port).returncode == 0
    for wrong in ("0", "", str(most + 1)):
        done = run(guard, key=None, **port, **{f"TRITONKIT_GUARD_{name}": wrong})
        assert done.returncode == 4
        assert f"{name}: found {wrong or 'nothing'}, wanted a whole number from 1 to {most}" in (done.stderr)


def test_port_0_guards_no_port(guard: Path) -> None:
    """With port 0, as for a server with HTTP alone, no limit is set."""
    done = run(guard, key=None, TRITONKIT_GUARD_GRPC_PORT="0", TRITONKIT_GUARD_MAX_MESSAGE_BYTES="0")
    assert done.returncode == 0


MODES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
name = f"/tritonkit-guard-test-{os.getpid()}".encode()
os.umask(0)
region = libc.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
assert region >= 0
made = os.fstat(region).st_mode & 0o777
assert libc.fchmod(region, 0o1777) == 0
libc.shm_unlink(name)
print(oct(made), oct(os.fstat(region).st_mode & 0o7777))
"""


def test_regions_are_the_owners_alone(guard: Path) -> None:
    """Group and others get no access, whatever mode shm_open and fchmod receive."""
    done = subprocess.run(
        [sys.executable, "-ISc", MODES],
        env={**os.environ, "LD_PRELOAD": str(guard)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0o600 0o1700\n"
