"""A stack as `tritonkit up` starts it, in a folder of its own, with models whose answers are known."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.processes import Tree
from bench.programs import ROOT
from tritonkit.client import TLS
from tritonkit.errors import ServerStartError, UsageError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.keys import add_key
from tritonkit.operate.stack import read_state
from tritonkit.repository.publish import copy_models
from tritonkit.serve.core.launch import Launch
from tritonkit.serve.core.restarting import Restarting
from tritonkit.serve.ports import check_free
from tritonkit.serve.process import SupervisedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COUNTED", "REPLICAS", "Running", "started"]

REPLICAS = 2
COUNTED = 5
"""Answers of a stream."""
RATE_PER_S = 100_000.0
"""A rate limit that no caller reaches; the limiter still decides on each request."""
_TEMPORARY = "tmp"
_START_S, _PAUSE_S, _TICK_S = 120.0, 0.1, 0.25
_DECLARED = 'parameters { key: "tritonkit.idempotent" value { string_value: "true" } }\n'
_MODELS = {
    "echo": f"""backend: "python"
max_batch_size: 8
input {{ name: "x" data_type: TYPE_FP32 dims: [4] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [4] }}
dynamic_batching {{ }}
{_DECLARED}""",
    "count": """backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
model_transaction_policy { decoupled: true }
""",
}
_CODE = {
    "echo": """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in given]
""",
    "count": f"""import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            sender = request.get_response_sender()
            for number in range({COUNTED}):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x + number)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
}


@dataclass(frozen=True)
class Running:
    """A stack that runs.

    Args:
        root: its project. tree: the process tree of `up`.
        counting, counting_url: the Redis that counts the gateway's rates, and its address.
        key, rated_key: the keys of a caller without a rate limit and of one with it.
    """

    root: Path
    tree: Tree
    counting: Restarting[SupervisedProcess]
    counting_url: str
    key: str
    rated_key: str

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of its programs, except those that ignore TMPDIR and use /tmp."""
        return self.root / _TEMPORARY

    @property
    def address(self) -> str:
        """Address of the gateway, `host:port`."""
        return str(self._state()["gateway"])

    @property
    def authority(self) -> Path:
        """The certificate that callers trust."""
        return self.root / "deploy" / "gateway" / "tls" / "ca.crt"

    @property
    def tls(self) -> TLS:
        """The same for tritonkit's client."""
        return TLS(ca=str(self.authority))

    def part(self, name: str) -> dict[str, Any]:
        """The state of a part as `up` reports it."""
        return next(part for part in self._state()["parts"] if part["name"] == name)

    def replicas(self) -> dict[str, dict[str, Any]]:
        """Addresses that each replica reports, such as `grpc` and `http`, by the name of its run's folder."""
        files = (self.root / ".tritonkit" / "run").glob("*/endpoint.json")
        return {file.parent.name: json.loads(file.read_text()) for file in sorted(files)}

    def _state(self) -> dict[str, Any]:
        state = read_state(self.root)
        if state is None:
            raise ServerStartError(
                str(self.root),
                found="`tritonkit up` has ended",
                todo=f"read {self.tree.log}",
                details=self.tree.log.read_text(errors="replace")[-2000:],
            )
        return state


@contextmanager
def started(repository: Path) -> Iterator[Running]:
    """A stack for the block: two replicas, the gateway and its limiter, Prometheus and Redis."""
    for name in ("redis-server", "prometheus"):
        if shutil.which(name) is None:
            raise UsageError(name, found="it is not installed", todo=f"apt-get install {name}")
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tritonkit-chaos-")))
        port = check_free("127.0.0.1", 0)
        url = f"redis://127.0.0.1:{port}"
        counting = stack.enter_context(_counting(root, port))
        key, rated_key = _project(root, repository, url)
        log = root / "up.log"
        tree = Tree(_up(root, log), log)
        stack.callback(tree.stop)
        _await_ready(root, tree)
        yield Running(root, tree, counting, url, key, rated_key)


def _project(root: Path, repository: Path, url: str) -> tuple[str, str]:
    """Write the files that `up` reads; return the two keys."""
    for name in ("models", _TEMPORARY):
        (root / name).mkdir()
    (root / ".venv-server").symlink_to(ROOT / ".venv-server")
    copy_models(repository, root / "model_repository")
    for name, config in _MODELS.items():
        version = root / "model_repository" / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(f'name: "{name}"\n{config}')
        (version / "model.py").write_text(_CODE[name])
    folder = root / "deploy" / "gateway"
    make_certificates(folder / "tls", ["localhost", "127.0.0.1"])
    (folder / "gateway.yaml").write_text(
        f"port: {check_free('127.0.0.1', 0)}\nlimits: {{shared: {{redis: '{url}'}}}}\n"
    )
    _, key = add_key(folder / "keys.json", "all")
    _, rated = add_key(folder / "keys.json", "rated", rate_per_s=RATE_PER_S)
    return key, rated


def _up(root: Path, log: Path) -> subprocess.Popen[bytes]:
    words = ["up", "--root", str(root), "--replicas", str(REPLICAS)]
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tritonkit", *words],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"NO_COLOR": "1", "TMPDIR": str(root / _TEMPORARY)},
        )


def _await_ready(root: Path, tree: Tree) -> None:
    deadline = time.monotonic() + _START_S
    while read_state(root) is None:
        code = tree.process.poll()
        if code is not None or time.monotonic() > deadline:
            reason = "it is not ready" if code is None else f"it ended with exit code {code}"
            raise ServerStartError("tritonkit up", found=reason, details=tree.log.read_text(errors="replace")[-2000:])
        time.sleep(_PAUSE_S)


@contextmanager
def _counting(root: Path, port: int) -> Iterator[Restarting[SupervisedProcess]]:
    """The Redis for the gateway's rates; it is not part of the stack, and is restarted as by systemd."""
    folder = root / "counting"
    folder.mkdir()
    program = str(shutil.which("redis-server"))
    words = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    launch = Launch(argv=words, env={}, cwd=str(folder))
    kept = Restarting(lambda: SupervisedProcess(launch, folder / "log"), lambda code, again: None)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_TICK_S):
            kept.poll()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield kept
    finally:
        over.set()
        thread.join()
        kept.process.kill()
