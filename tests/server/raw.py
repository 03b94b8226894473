"""A tritonserver started by its own command line, without `tritonkit serve`, and raw requests to it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.conftest import PROJECT
from tests.fakecuda import FakeCuda
from tests.parts import SERVER
from tests.ports import free_port
from tests.server.sanitizers import hangs_in_exit_handlers, sanitizer_reports, sanitizer_variables
from tests.waiting import PATIENCE_S, eventually
from tritonkit.serve.install import environment_at

SOURCES = PROJECT / "python_backends"
Client = grpc.InferenceServerClient
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl
"""Looked up here: between fork and exec of a process with threads nothing may be."""


@dataclass
class Running:
    """A Triton process and where it answers."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    regions: str
    repository: Path

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            if not hangs_in_exit_handlers(self.log):
                raise
            return 0
        finally:
            self.process.kill()
            self.process.wait()

    def require_alive(self) -> None:
        """Fail with the exit code and the end of the log where it has ended."""
        code = self.process.poll()
        assert code is None, f"tritonserver ended with {code}:\n{self.log.read_text(errors='replace')[-5000:]}"

    def leftovers(self) -> list[Path]:
        """Shared-memory regions that it has, or left behind."""
        return list(Path("/dev/shm").glob(f"{self.regions}*"))  # noqa: S108


def backend_folder(folder: Path, native: Path | None) -> Path:
    """A backend directory with Triton's `python`, and our native backends where their folder is given, else
    our stand-ins; links are refused there."""
    (triton,) = SERVER.glob("lib/python*/site-packages/pytriton/tritonserver")
    version = triton.parents[2].name.removeprefix("python")
    shutil.copytree(triton / "backends" / "python", folder / "python")
    stub = triton / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, folder / "python")
    for source in (SOURCES / "backends").glob("*/model.py"):
        place = folder / source.parent.name
        shutil.copytree(source.parent, place, ignore=shutil.ignore_patterns("__pycache__"))
        for module in (SOURCES / "backends").glob("*.py"):
            shutil.copy(module, place)
    for library in native.glob("libtriton_*.so") if native else ():
        place = folder / library.stem.removeprefix("libtriton_")
        if place.name != "python":  # which keeps NVIDIA's stub
            shutil.rmtree(place)
            place.mkdir()
        shutil.copy(library, place)
    return folder


def library_path(packages: Path) -> str:
    """LD_LIBRARY_PATH of a server: its own libraries, its Python's, then what is set, such as a driver's folder."""
    return environment_at(packages.parents[2]).environment()["LD_LIBRARY_PATH"]


def engine_flags(packages: Path, onnxruntime: Path | None = None) -> list[str]:
    """The flags that tell our native backends where their engines are.

    Args:
        packages: those of the server environment.
        onnxruntime: a library in place of its ONNX Runtime.
    """
    patterns = {
        "onnxruntime": "onnxruntime/capi/libonnxruntime.so.*",
        "openvino": "openvino/libs/libopenvino_c.so.*",
        "python": "pytriton/tritonserver/backends/python/libtriton_python.so",
    }
    engines = {name: next(packages.glob(pattern)) for name, pattern in patterns.items()}
    if onnxruntime is not None:
        engines["onnxruntime"] = onnxruntime
    return [f"--backend-config={name},library={engine}" for name, engine in engines.items()]


@contextlib.contextmanager
def start_triton(
    repository: Path,
    scratch: Path,
    native: Path | None = None,
    more: Sequence[str] = (),
    cuda: FakeCuda | None = None,
) -> Iterator[Running]:
    """A Triton that is stopped at the end; models that fail to load leave the others served.

    Args:
        repository: its models.
        scratch: for its files.
        native: the folder of our native backends; without it the stand-ins serve.
        more: arguments.
        cuda: the GPUs that it is to see.
    """
    (packages,) = SERVER.glob("lib/python*/site-packages")
    port = free_port()
    regions = f"tk_test_{uuid.uuid4().hex[:8]}_"
    log = scratch / "triton.log"
    command = [
        str(packages / "pytriton/tritonserver/bin/tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backend_folder(scratch / 'backends', native)}",
        *engine_flags(packages, cuda.engine if cuda else None),
        f"--backend-config=python,shm-region-prefix-name={regions}",
        "--disable-auto-complete-config",
        "--exit-on-error=false",
        "--strict-readiness=false",
        "--allow-http=false",
        "--allow-metrics=false",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={port}",
        *more,
    ]
    environment = {
        **os.environ,
        "PATH": f"{SERVER / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": library_path(packages),
    }
    environment |= cuda.variables if cuda else {}
    environment |= sanitizer_variables(cuda.runtime if cuda else None) if native else {}
    environment.pop("PYTHONPATH", None)
    with log.open("wb") as file:
        # In a session of its own, so that a signal to the tests' group (a terminal that hangs up, which the tests
        # ignore) does not end a server that is in use; it ends with the tests, however they end.
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True, preexec_fn=_end_with_parent
        )
    running = Running(process, f"127.0.0.1:{port}", log, regions, repository)
    try:
        wait_until_ready(running)
        yield running
    finally:
        running.stop()
    assert not (reports := sanitizer_reports(log)), "\n".join(reports)


def _end_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_until_ready(running: Running) -> None:
    """Return when the server answers; fail with its log where it ends."""

    def is_ready() -> bool:
        running.require_alive()
        with contextlib.suppress(InferenceServerException), grpc.InferenceServerClient(running.address) as client:
            return bool(client.is_server_ready(client_timeout=PATIENCE_S))
        return False

    eventually(is_ready, f"Triton is ready: {running.log}")


def ask(client: Client, model: str, names: list[str] | None = None, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """One request; its outputs by name."""
    inputs = []
    for name, array in arrays.items():
        tensor = grpc.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    outputs = [grpc.InferRequestedOutput(name) for name in names] if names else None
    result = client.infer(model, inputs, outputs=outputs, client_timeout=PATIENCE_S)
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def ask_together(
    client: Client, model: str, requests: list[dict[str, np.ndarray]]
) -> list[dict[str, np.ndarray] | str]:
    """Requests sent at one moment; outputs or the error's text, in order."""

    def one(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray] | str:
        try:
            return ask(client, model, **arrays)
        except InferenceServerException as error:
            return str(error)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def executions(client: Client, model: str) -> int:
    """The number of runs of the model's backend."""
    statistics = client.get_inference_statistics(model).model_stats[0]
    return int(statistics.execution_count)


def items(*values: bytes) -> np.ndarray:
    """A BYTES batch [n, 1]."""
    return np.array([[value] for value in values], dtype=object)


def forget(unregister: Callable[[str], object], name: str) -> None:
    """Let the server forget a shared region, which it holds a little longer than an answer is on its way."""

    def is_forgotten() -> bool:
        try:
            unregister(name)
        except InferenceServerException as error:
            if "it is currently in use" not in str(error):
                raise
            return False
        return True

    eventually(is_forgotten, f"a region that no request uses: {name}")
