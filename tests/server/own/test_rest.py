"""The REST proxy while its Triton ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.conftest import COPY, WIDE
from tests.hostile.rest_proxy import open_proxy
from tests.server.models import ModelText, write_repository
from tests.server.shared.test_rest import as_before
from tests.waiting import PATIENCE_S
from tritonkit.serve import Server


def test_an_idle_proxy_does_not_hold_up_the_end(project: Path, tmp_path: Path) -> None:
    """Triton waits at its end for open connections: the proxy keeps none that has nothing to do."""
    folder = write_repository(tmp_path / "repository", {"wide": ModelText(WIDE, COPY)})
    server = Server(folder, grpc_port=0, metrics_port=0, root=project, drain_timeout_s=10 * PATIENCE_S)
    running = server.start()
    try:
        with open_proxy(project, running.log.parent) as proxy:
            as_before(proxy)
            with ThreadPoolExecutor(1) as pool:
                stopped = pool.submit(server.stop)
                try:
                    # It would wait for all of its drain time.
                    stopped.result(PATIENCE_S)
                finally:
                    server.kill()
    finally:
        server.kill()
