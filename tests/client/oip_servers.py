"""Servers of the Open Inference Protocol other than Triton, started for real in environments of their own.

Each serves `declared`, whose inputs the server reports if it can, and `bare`, whose inputs it does not; both
answer with their inputs, KServe's `declared` in typed fields instead of raw bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.parts import PROJECT
from tests.ports import free_ports
from tritonkit.client import Client

__all__ = ["kserve", "mlserver"]

READY_S = 180.0

MLSERVER = """
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

class Echo(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        outputs = [
            ResponseOutput(name=one.name, shape=one.shape, datatype=one.datatype, data=one.data)
            for one in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""

KSERVE = """
import sys
from kserve import InferOutput, InferResponse, Model, ModelServer

class Echo(Model):
    def __init__(self, name):
        super().__init__(name)
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        outputs = []
        for one in payload.inputs:
            output = InferOutput(name=one.name, shape=list(one.shape), datatype=one.datatype)
            output.set_data_from_numpy(one.as_numpy(), binary_data=self.name == "bare")
            outputs.append(output)
        return InferResponse(response_id=payload.id or "", model_name=self.name, infer_outputs=outputs)

http, grpc = map(int, sys.argv[1:])
ModelServer(http_port=http, grpc_port=grpc, enable_grpc=True, workers=1).start(
    [Echo("declared"), Echo("bare")]
)
"""


@contextmanager
def mlserver(folder: Path) -> Iterator[str]:
    """The address of an MLServer."""
    http, grpc, metrics = free_ports(3)
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "echo.py").write_text(MLSERVER)
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    for name, more in (("declared", {"inputs": [tensor], "outputs": [tensor]}), ("bare", {})):
        (folder / name).mkdir()
        model = {"name": name, "implementation": "echo.Echo", **more}
        (folder / name / "model-settings.json").write_text(json.dumps(model))
    program = PROJECT / ".venv-mlserver" / "bin" / "mlserver"
    with running([str(program), "start", str(folder)], folder, grpc) as address:
        yield address


@contextmanager
def kserve(folder: Path) -> Iterator[str]:
    """The address of KServe's own Python server."""
    http, grpc = free_ports(2)
    (folder / "server.py").write_text(KSERVE)
    python = PROJECT / ".venv-kserve" / "bin" / "python"
    with running([str(python), "server.py", str(http), str(grpc)], folder, grpc) as address:
        yield address


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[str]:
    """A server that answers for both models, at its gRPC address; its output lies in `log`."""
    address = f"127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": str(folder)}
        )
    try:
        until = time.monotonic() + READY_S
        with Client(address, retry=None, breaker=None) as client:
            while not (client.is_ready("declared") and client.is_ready("bare")):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
