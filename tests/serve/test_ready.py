"""The wait for a server that becomes ready."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

from tests.perf.load.gpu import gpu_text, metrics_server
from tritonkit.serve.core.pools import Pools
from tritonkit.serve.ready import Start, all_zero

USED = """# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} %s
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} %s
nv_inference_count{model="x",version="1"} 0.000000
"""


def test_figures_of_gpus_are_trusted_once_one_is_not_zero() -> None:
    """Triton's first figures of every GPU are 0; a server without figures of GPUs is not waited for."""
    assert all_zero(USED % ("0.000000", "0.000000"))
    assert not all_zero(USED % ("0.000000", "612368384.000000"))
    assert not all_zero("nv_inference_count 0")


def test_a_server_without_figures_of_its_gpus_is_ready() -> None:
    """The wait for them does not fail a start whose time is over: the server answers by then."""
    run: Any = SimpleNamespace(ready_timeout_s=0.0, pools=Pools(1, {0: 1}))
    triton: Any = SimpleNamespace(ended=threading.Event())
    ports: Any = None
    start = Start(run, triton, ports, time.monotonic(), 0)
    energies = itertools.chain((0.0, 0.0), itertools.repeat(1000.0))
    with metrics_server(lambda: gpu_text(next(energies))) as address:
        start._await_gpu_figures(address)
    assert next(energies) == 1000.0
