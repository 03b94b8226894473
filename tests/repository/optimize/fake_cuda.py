"""An environment whose ONNX Runtime has a CUDA provider: the real library, in which the CPU stands for the GPU.

Only what CUDA would do is fake: the provider, its options and memory on the device. Sessions, bindings, run options and
messages between the processes are real. With `use_tf32` the answers have TF32's ten bits of mantissa.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tritonkit.repository.optimize.gpu import CudaEnvironment

GPU = "NVIDIA Fake 80GB, driver 580.0"

_RUNTIME = """
import json, os, sys
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = json.load(open(os.path.join(HERE, "settings.json")))
sys.path[:] = [place for place in sys.path if place != HERE]
del sys.modules["onnxruntime"]
import onnxruntime

if SETTINGS.get("provider", True):
    onnxruntime.get_available_providers = lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]


def log(**facts):
    with open(os.path.join(HERE, "log"), "a") as file:
        file.write(json.dumps(facts) + chr(10))


def _entry(settings, name):
    try:
        return settings.get_session_config_entry(name)
    except RuntimeError:
        return ""


class Session(onnxruntime.InferenceSession):
    def __init__(self, file, settings, providers):
        print("a line of the library")
        (_, options), _ = providers
        log(open=options, floats=_entry(settings, "session.disable_quant_qdq"))
        if "enable_cuda_graph" in options and not SETTINGS.get("graphs", True):
            raise RuntimeError("This session cannot use the graph capture feature")
        self.tf32 = options["use_tf32"] == "1"
        super().__init__(file, settings, providers=["CPUExecutionProvider"])

    def get_providers(self):
        return ["CUDAExecutionProvider", "CPUExecutionProvider"] if SETTINGS.get("loads", True) else ["CPU"]

    def run(self, names, arrays, options):
        if SETTINGS.get("dies"):
            sys.stderr.write("Xid 79: fallen off the bus")
            sys.stderr.flush()
            os._exit(9)
        outputs = super().run(names, arrays, options)
        return [np.round(a * 1024) / np.float32(1024) if self.tf32 else a for a in outputs]

    def run_with_iobinding(self, binding, options):
        log(graph=True)
        super().run_with_iobinding(binding, options)


made = onnxruntime.OrtValue.ortvalue_from_numpy
onnxruntime.OrtValue.ortvalue_from_numpy = staticmethod(lambda array, device, number: made(array, "cpu", number))
onnxruntime.InferenceSession = Session
"""


def fake_environment(folder: Path, **settings: bool) -> CudaEnvironment:
    """An environment below `folder`, in which a provider is missing, does not load, takes no graphs, or dies."""
    (folder / "bin").mkdir(parents=True)
    python = write_python(folder, Path(sys.executable), **settings)
    (folder / "lib/python3.11/site-packages/onnxruntime_gpu-9.9.9.dist-info").mkdir(parents=True)
    return CudaEnvironment(python, (), GPU)


def write_python(folder: Path, real: Path, **settings: bool) -> Path:
    """Write the Python of an environment: another one, to which ONNX Runtime has a CUDA provider."""
    place, python = folder / "fake", folder / "bin" / "python"
    place.mkdir()
    (place / "onnxruntime.py").write_text(_RUNTIME)
    (place / "settings.json").write_text(json.dumps(settings))
    python.unlink(missing_ok=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{place}" exec "{real}" "$@"\n')
    python.chmod(0o755)
    return python


def log_of(environment: CudaEnvironment) -> list[dict[str, object]]:
    """Sessions that were opened, with the provider's options, and runs of graphs."""
    log = environment.python.parents[1] / "fake" / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
