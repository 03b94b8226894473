"""The native backends of a server environment, and whether they can be used there.

`python_backends/native/build.py` compiles them. When Triton loads one, it loads its engine's library from the
environment's own wheel. This module needs only the standard library.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cuda import cuda_libraries
from .probe import run_probe
from .tensorrt import has_provider, tensorrt_libraries

__all__ = [
    "ENGINES",
    "PAD",
    "STEPS",
    "NativeBackend",
    "backend_flags",
    "find_native_backends",
    "why_not",
    "why_not_on_gpu",
]

PAD = "tritonkit.pad"
"""The parameter of a model whose requests these backends pad to one length, which NVIDIA's cannot do."""

STEPS = "python"
"""The library in front of Triton's Python backend that runs the shipped pipeline steps in C++."""

ENGINES = {
    "onnxruntime": "onnxruntime/capi/libonnxruntime.so.*",
    "openvino": "openvino/libs/libopenvino_c.so.*",
    STEPS: "pytriton/tritonserver/backends/python/libtriton_python.so",
}
"""Backend -> the path of its engine's library among an environment's packages."""

_TRY_S = 60.0
# This runs in a separate process, because an engine of another ABI may crash it.
_TRY = """
import ctypes, sys
function, server, backend, engine, *first = sys.argv[1:]
for library in first:
    ctypes.CDLL(library)
ctypes.CDLL(server, mode=ctypes.RTLD_GLOBAL)
attempt = getattr(ctypes.CDLL(backend), function)
attempt.restype = ctypes.c_char_p
wrong = attempt(engine.encode())
sys.exit(wrong.decode(errors="replace") if wrong else 0)
"""


@dataclass(frozen=True)
class NativeBackend:
    """A backend's library and its engine's; `wrong` says why it cannot be used, and is empty if it can.

    `first` are libraries to open before the engine's, in this order. `tensorrt` are those of TensorRT, which the engine
    needs only for models that ask for it; none if it has no provider for them.
    """

    name: str
    library: Path
    engine: Path | None
    wrong: str = ""
    first: tuple[Path, ...] = ()
    tensorrt: tuple[str, ...] = ()


def find_native_backends(environment: Path, server_libraries: Path) -> dict[str, NativeBackend]:
    """The native backends compiled into an environment, by name.

    Each is tried once with its engine, which takes about half a second, and again after a file has changed.

    Args:
        environment: a virtual environment with lib/tritonkit.
        server_libraries: the folder of libtritonserver.
    """
    backends = {}
    for name in ENGINES:
        library = _library(environment, name)
        if not library.is_file():
            continue
        engine = _engine(environment, name)
        first = cuda_libraries(environment) if name == "onnxruntime" else ()
        wrong = _tried(library, engine, server_libraries, first) if engine else "its engine is not installed"
        tensorrt = tensorrt_libraries(environment) if name == "onnxruntime" and has_provider(environment) else ()
        backends[name] = NativeBackend(name, library, engine, wrong, first, tensorrt)
    return backends


def backend_flags(backends: Iterable[NativeBackend], engines: Path | None = None) -> list[str]:
    """Flags that tell tritonserver where the engines are, and which libraries are opened before them.

    Args:
        engines: the folder in which TensorRT's engines are kept between starts.
    """
    flags = []
    for backend in backends:
        if not backend.wrong:
            settings = {
                "library": str(backend.engine),
                "load-first": ":".join(map(str, backend.first)),
                "tensorrt-libraries": ":".join(backend.tensorrt),
                "tensorrt-cache": str(engines) if engines and backend.tensorrt else "",
            }
            flags += [f"--backend-config={backend.name},{key}={value}" for key, value in settings.items() if value]
    return flags


def why_not(backends: Mapping[str, NativeBackend], names: Iterable[str] = tuple(ENGINES)) -> str:
    """The reason why each of these backends is not served natively; empty if all are.

    Args:
        backends: those that were compiled.
        names: names of backends; those that are not in ENGINES are never native.
    """
    reasons = {
        name: backends[name].wrong if name in backends else "it is not compiled" for name in ENGINES if name in names
    }
    return "; ".join(f"{name}: {wrong}" for name, wrong in reasons.items() if wrong)


def why_not_on_gpu(environment: Path, server_libraries: Path) -> str:
    """The reason why the native ONNX Runtime backend cannot run a network on the first GPU.

    It is tried, every time. The reason is empty if it can, or if the backend is not compiled.

    Args:
        environment: a virtual environment with lib/tritonkit.
        server_libraries: the folder of libtritonserver.
    """
    library = _library(environment, "onnxruntime")
    engine = _engine(environment, "onnxruntime")
    if not library.is_file() or engine is None:
        return ""
    return _try(library, engine, server_libraries, cuda_libraries(environment), "tritonkit_try_gpu")


def _library(environment: Path, name: str) -> Path:
    return environment / "lib" / "tritonkit" / f"libtriton_{name}.so"


def _engine(environment: Path, name: str) -> Path | None:
    return next(environment.glob(f"lib/python3.*/site-packages/{ENGINES[name]}"), None)


def _tried(library: Path, engine: Path, server_libraries: Path, first: Sequence[Path]) -> str:
    """The reason why a backend cannot use its engine, or ""; it is cached next to the library."""
    note = library.with_name(f"{library.name}.tried")
    files = _identities(library, engine, *first)
    try:
        record = json.loads(note.read_text())
        if record["files"] == files:
            return str(record["wrong"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    wrong = _try(library, engine, server_libraries, first)
    try:
        draft = note.with_name(f".{note.name}.{os.getpid()}")
        draft.write_text(json.dumps({"files": files, "wrong": wrong}))
        draft.replace(note)
    except OSError:  # in another user's environment it is tried each time
        pass
    return wrong


def _identities(*files: Path) -> list[list[str | int]]:
    return [[str(file), (at := file.stat()).st_size, at.st_mtime_ns] for file in files]


def _try(
    library: Path, engine: Path, server_libraries: Path, first: Sequence[Path], function: str = "tritonkit_try"
) -> str:
    server = next(server_libraries.glob("libtritonserver*.so*"), None)
    if server is None:
        return f"there is no libtritonserver in {server_libraries}"
    # Some machines name the folder of the driver's libraries there.
    folders = ":".join(filter(None, [str(server_libraries), os.environ.get("LD_LIBRARY_PATH", "")]))
    environment: Mapping[str, str] = {**os.environ, "LD_LIBRARY_PATH": folders}
    try:
        words = map(str, (server, library, engine, *first))
        ran = run_probe([sys.executable, "-IS", "-c", _TRY, function, *words], _TRY_S, environment)
    except OSError as error:
        return f"trying it: {error}"
    if ran.returncode == 0:
        return ""
    lines = ran.stderr.strip().splitlines() or [f"it ended with exit code {ran.returncode}"]
    return lines[-1][:500]
