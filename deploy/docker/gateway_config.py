"""Keeps what the gateway reads: certificates and keys of the project's `deploy/gateway`, and Envoy's configuration.

The files of the host belong to the owner of the checkout alone, and the gateway's user is another one. So this starts
as root, copies into a volume what the gateway needs (not the authority's key), and looks every second whether it has
changed. Everything else, Envoy's check included, is done by `tritonkit gateway render` as the gateway's user. Where
there is nothing yet, the owner of the folder gets certificates and a key for a start. It needs no network.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tritonkit.errors import TritonkitError, UsageError
from tritonkit.operate import certificates, keys
from tritonkit.operate.gateway import read_gateway
from tritonkit.operate.gateway.spec import FILE as SPEC
from tritonkit.operate.gateway.spec import Tls

__all__ = ["main"]

PROJECT = Path("/project")
FOLDER = PROJECT / "deploy" / "gateway"
OUT = Path("/gateway")
FILES = OUT / "files"
ENVOY = "/usr/local/bin/envoy"
GATEWAY_USER = 10001
FIRST_KEY = "first.key"
PORT, METRICS_PORT = 8443, 8444
NAMES = ("localhost", "127.0.0.1", "gateway")
"""Names by which this machine and the gateway's neighbor containers know it."""
_TICK_S = 1.0


def main() -> int:
    """0 after SIGTERM; else the exit code of what cannot be used."""
    os.umask(0o077)
    ending = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: ending.set())
    try:
        # Of the run before: the container is healthy once there is a new one.
        (OUT / "envoy.json").unlink(missing_ok=True)
        _make_for_a_start(FOLDER.stat())
        sources = _look()
        _copy()
    except TritonkitError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    render = _render()
    last_message = ""
    while not ending.wait(_TICK_S):
        if (code := render.poll()) is not None:
            return code or 1
        if (now := _look()) == sources:
            continue
        try:
            _copy()
        except TritonkitError as error:
            last_message = _say_once(f"left as it was: {error.where}: {error.found}", last_message)
            continue
        sources, last_message = now, ""
    render.terminate()
    render.wait()
    return 0


def _make_for_a_start(owner: os.stat_result) -> None:
    """Make certificates if there is no folder of them, and a key if nothing else says who may call."""
    if read_gateway(FOLDER).tls == Tls() and not (FOLDER / "tls").exists():
        more = os.environ.get("GATEWAY_NAMES", "").split()
        names = [word for name in (*NAMES, *more) for word in ("--name", name)]
        _tritonkit(owner, "certs", "--gateway", str(FOLDER), *names)
    if not (FOLDER / keys.FILE).exists() and not (FOLDER / SPEC).exists():
        key = _tritonkit(owner, "keys", "add", "first", "--gateway", str(FOLDER))
        _write(FOLDER / FIRST_KEY, key, owner.st_uid, owner.st_gid)


def _tritonkit(owner: os.stat_result, *words: str) -> bytes:
    """Output of a `tritonkit` command, run as the owner of the folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tritonkit.cli", *words],
        cwd="/tmp",  # noqa: S108
        check=False,
        stdout=subprocess.PIPE,
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[],
        umask=0o022,
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def _copy() -> None:
    """Copy the gateway's files, readable by its user only. A key comes before its certificate: until both are there
    the gateway keeps the pair that it has.

    Raises:
        TritonkitError: they cannot be used; nothing was copied.
    """
    spec = read_gateway(FOLDER)
    tls = spec.tls
    certificates.check_pair(FOLDER / tls.certificate, FOLDER / tls.key)
    _refuse_foreign(FOLDER / keys.FILE)
    if tls.client_ca:
        certificates.read_certificate(FOLDER / tls.client_ca)
    jwks = spec.jwt.jwks if spec.jwt else None
    shared = spec.limits.shared
    redis = (shared.ca, shared.password_file) if shared else ()
    for name in filter(None, (SPEC, tls.client_ca, jwks, *redis, tls.key, tls.certificate, keys.FILE)):
        source, target = FOLDER / name, FILES / name
        if not source.exists():
            target.unlink(missing_ok=True)
        elif not target.exists() or target.read_bytes() != source.read_bytes():
            _write(target, source.read_bytes(), GATEWAY_USER, GATEWAY_USER)


def _refuse_foreign(file: Path) -> None:
    """Refuse keys that others than the owner of the folder can write, and so give themselves some."""
    if not file.exists():
        return
    state, owner = file.stat(), FOLDER.stat().st_uid
    if state.st_uid != owner or state.st_mode & 0o022:
        raise UsageError(
            str(file),
            found="others than the owner of the folder can write it",
            wanted="a file of the owner's alone",
            todo=f"check its content, then: chown {owner} {file.name}; chmod go-w {file.name}",
        )


def _write(file: Path, content: bytes, user: int, group: int) -> None:
    """Write a file in one step, readable by this user only."""
    for folder in reversed([parent for parent in file.parents if parent.is_relative_to(OUT)]):
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, user, group)
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
    os.chown(new, user, group)
    new.replace(file)


def _look() -> tuple[object, ...]:
    """A value that changes when a file of the folder changes."""
    files = []
    for file in sorted(FOLDER.rglob("*")):
        try:
            state = file.stat()
        except OSError:
            continue
        files.append((str(file), state.st_ino, state.st_mode, state.st_mtime_ns, state.st_size))
    return tuple(files)


def _render() -> subprocess.Popen[bytes]:
    """Envoy's configuration, written and kept by the gateway's user."""
    OUT.chmod(0o700)
    os.chown(OUT, GATEWAY_USER, GATEWAY_USER)
    command = [
        sys.executable,
        "-m",
        "tritonkit.cli",
        "gateway",
        "render",
        "--watch",
        "--out",
        str(OUT),
        "--envoy",
        ENVOY,
        "--gateway",
        str(FILES),
        "--repository",
        str(PROJECT / "model_repository"),
        "--replica",
        "triton:8001,triton:8000",
        "--each",
        os.environ.get("TRITON_REPLICAS") or "2",
        "--listen",
        f"0.0.0.0:{PORT}",
        "--metrics",
        f"0.0.0.0:{METRICS_PORT}",
    ]
    return subprocess.Popen(
        command,
        cwd="/tmp",  # noqa: S108
        user=GATEWAY_USER,
        group=GATEWAY_USER,
        extra_groups=[],
    )


def _say_once(text: str, before: str) -> str:
    if text != before:
        sys.stderr.write(f"{text}\n")
    return text


if __name__ == "__main__":
    sys.exit(main())
