"""Metrics of a server with a GPU, as Triton 2.51 reported an H100 in a trial, and a server that answers with them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tritonkit.perf.load.gpu import GpuLook, gpu_looks
from tritonkit.perf.load.prometheus import parse_samples

__all__ = ["GIB", "GPU", "POWER_W", "gpu_text", "look_of", "looks_of_run", "metrics_server"]

GPU = "GPU-8ba79cd6-4a9e-b2e8-4c3f-2f1d0c7a9e11"
POWER_W = 577.0
GIB = 1 << 30


def gpu_text(energy_j: float, busy: float = 0.76, power_w: float = POWER_W, gpu: str = GPU) -> str:
    """Triton's text about one GPU; all 0 until it has read the GPU for the first time."""
    read = energy_j > 0
    values = {
        "nv_gpu_utilization": busy * read,
        "nv_gpu_memory_total_bytes": 85520809984 * read,
        "nv_gpu_memory_used_bytes": 5.6 * GIB * read,
        "nv_gpu_power_usage": power_w * read,
        "nv_gpu_power_limit": 700 * read,
        "nv_energy_consumption": energy_j,
    }
    lines = [f'# TYPE {name} gauge\n{name}{{gpu_uuid="{gpu}"}} {value:f}\n' for name, value in values.items()]
    return 'nv_inference_count{model="net",version="1"} 5\n' + "".join(lines)


def look_of(at_s: float, energy_j: float, gpu: str = GPU) -> GpuLook:
    """A look at that GPU."""
    return gpu_looks(parse_samples(gpu_text(energy_j, gpu=gpu)), at_s)[gpu]


def looks_of_run(seconds: float, gpu: str = GPU) -> list[GpuLook]:
    """Two looks a second at a GPU that Triton reads every two seconds."""
    moments = [k / 2 for k in range(int(2 * seconds) + 1)]
    return [look_of(at, POWER_W * 2 * (at // 2 + 1), gpu) for at in moments]


@contextlib.contextmanager
def metrics_server(text: Callable[[], str]) -> Iterator[str]:
    """An HTTP server that answers every GET with a text; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text().encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
