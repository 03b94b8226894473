"""NVIDIA's perf_analyzer: its binary, and one open-loop run of it.

The wheel tritonclient 2.44.0 carries the last binary for glibc below 2.38. It needs libb64 (Debian:
libb64-0d) and CUDA's runtime library, of which nvidia-pytriton's wheel has a copy; no GPU is used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.processor import children_s
from bench.programs import ROOT
from tritonkit.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Analyzed", "binary", "bring", "environment", "perf_analyzer"]

_FOLDER = ROOT / ".tritonkit" / "bench" / "perf_analyzer"
_PACKAGE = "tritonclient==2.44.0"
_MEMBER = re.compile(r"tritonclient-[^/]*\.data/data/bin/perf_analyzer")
_WINDOWS = 3
"""The fewest windows that perf_analyzer takes; all of them count, however they differ."""
_UNSTABLE = "1000000"
_COUNT = re.compile(r"Request count: (\d+)")
_RATE = re.compile(r"Throughput: ([\d.]+) infer/sec")
_POINT = re.compile(r"p(\d+) latency: (\d+) usec")
_DELAYED = re.compile(r"([\d.]+)% of the requests were delayed")


@dataclass(frozen=True)
class Analyzed:
    """The figures that perf_analyzer printed of one run.

    Args:
        requests: counted requests.
        per_s: answers in a second.
        ms: percent -> milliseconds, from when a request was sent.
        delayed: the share of requests that it sent late, 0 to 1.
        cpu_share: its processor time, relative to one core.
    """

    requests: int
    per_s: float
    ms: Mapping[int, float]
    delayed: float
    cpu_share: float


def perf_analyzer(
    address: str,
    model: str,
    data: Sequence[Mapping[str, Any]],
    moments: NDArray[np.float64],
    repeats: int,
    folder: Path,
) -> Analyzed:
    """Send at these moments, again and again; count a number of rounds of them.

    Args:
        data: one item each, as perf_analyzer's JSON has it.
        moments: seconds, ascending.
        folder: for its files.

    Raises:
        UsageError: it cannot run here.
        ClientError: it ended with an error, or counted nothing.
    """
    window_ms = round(1000 * float(moments[-1]) * repeats / _WINDOWS)
    before = children_s()
    done = subprocess.run(
        _command(address, model, data, moments, window_ms, folder),
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(),
        check=False,
    )
    used_s = children_s() - before
    if done.returncode:
        raise _failure(model, done)
    return _figures(model, done, used_s / (window_ms * _WINDOWS / 1000))


def _command(
    address: str,
    model: str,
    data: Sequence[Mapping[str, Any]],
    moments: NDArray[np.float64],
    window_ms: int,
    folder: Path,
) -> list[str]:
    """The command line; the files that it names are written first."""
    (folder / "data.json").write_text(json.dumps({"data": list(data)}))
    gaps = [moments[0], *(moments[1:] - moments[:-1])]
    (folder / "gaps.txt").write_text("\n".join(str(max(1, round(1e6 * gap))) for gap in gaps))
    options = {
        "-m": model,
        "-u": address,
        "-i": "grpc",
        "--max-threads": "1",
        "--input-data": folder / "data.json",
        "--request-intervals": folder / "gaps.txt",
        "--measurement-interval": window_ms,
        "--stability-percentage": _UNSTABLE,
        "--max-trials": _WINDOWS,
    }
    return [str(binary()), "--async", *(str(word) for option in options.items() for word in option)]


def _figures(model: str, done: subprocess.CompletedProcess[str], cpu_share: float) -> Analyzed:
    count, rate = _COUNT.search(done.stdout), _RATE.search(done.stdout)
    if not count or not rate:
        raise _failure(model, done)
    delayed = _DELAYED.search(done.stdout)
    return Analyzed(
        int(count[1]),
        float(rate[1]),
        {int(p): int(us) / 1000 for p, us in _POINT.findall(done.stdout)},
        float(delayed[1]) / 100 if delayed else 0.0,
        cpu_share,
    )


def _failure(model: str, done: subprocess.CompletedProcess[str]) -> ClientError:
    return ClientError(
        f"perf_analyzer on {model}",
        found=f"it ended with {done.returncode} and no figures",
        details=(done.stdout + done.stderr)[-2000:],
    )


def binary() -> Path:
    """The program, fetched once."""
    file = _FOLDER / "perf_analyzer"
    if file.is_file():
        return file
    _FOLDER.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", _FOLDER]
    done = subprocess.run([*command, _PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(_FOLDER.glob("tritonclient-*.whl"))
    if done.returncode or not wheels:
        raise UsageError(
            _PACKAGE,
            found="it cannot be fetched",
            wanted="the wheel that carries perf_analyzer",
            details=done.stderr[-1000:],
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        name = next(name for name in wheel.namelist() if _MEMBER.fullmatch(name))
        part = file.with_suffix(".part")
        part.write_bytes(wheel.read(name))
    part.chmod(0o755)
    _check(part)
    part.rename(file)
    wheels[0].unlink()
    return file


def bring() -> Path:
    """The folder with the program and the library that few machines have, for a machine without a network.

    Raises:
        UsageError: the program cannot be fetched, or does not run here.
    """
    program = binary()
    for name, path in re.findall(r"(libb64\S*) => (/\S+)", _libraries(program)):
        if not (_FOLDER / name).exists():
            shutil.copy(path, _FOLDER / name)
    return _FOLDER


def _libraries(file: Path) -> str:
    """The output of ldd for a program."""
    command = [shutil.which("ldd") or "/usr/bin/ldd", str(file)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False).stdout


def _check(file: Path) -> None:
    missing = [line.split()[0] for line in _libraries(file).splitlines() if "not found" in line]
    if missing:
        raise UsageError(
            "perf_analyzer",
            found=f"no {', '.join(missing)}",
            wanted="the libraries that it needs",
            todo="apt-get install libb64-0d; libcudart comes with the server's environment: make setup",
        )


def environment() -> dict[str, str]:
    """Provide CUDA's runtime library under the name that perf_analyzer loads."""
    own = Path(os.environ.get("TRITONKIT_SERVER_VENV") or ROOT / ".venv-server")
    for library in sorted(own.glob("lib/python3*/site-packages/nvidia_pytriton.libs/libcudart-*")):
        link = _FOLDER / "libcudart.so.12"
        if not link.exists():
            link.unlink(missing_ok=True)  # the environment that it led to may be gone
            link.symlink_to(library)
    folders = ":".join(filter(None, [str(_FOLDER), os.environ.get("LD_LIBRARY_PATH", "")]))
    return os.environ | {"LD_LIBRARY_PATH": folders}


if __name__ == "__main__":
    try:
        print(bring())
    except UsageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
