"""`Watcher` on a real Triton whose metrics are those that one with a GPU reported, next to a driver's program."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.perf.load.gpu import GPU, gpu_text, metrics_server
from tests.waiting import eventually
from tritonkit.perf.diagnose import ServerEvidence, Watcher, evidence_of
from tritonkit.serve import Endpoint


def test_gpus_and_their_clocks_are_in_the_evidence(
    digits_server: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use and energy by the server's metrics, the reasons of a low clock by nvidia-smi."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{GPU}, 0x0000000000000004, 990, 1980'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    energy = itertools.count(300, 300)

    def seen(watcher: Watcher) -> ServerEvidence | None:
        (server,) = evidence_of(watcher.observation()).servers
        return server if server.gpus and server.gpus[0].use.energy_j and server.gpus[0].throttled else None

    with (
        metrics_server(lambda: gpu_text(next(energy))) as metrics,
        Watcher([digits_server.grpc], "digits", metrics={digits_server.grpc: metrics}) as watcher,
    ):
        server: ServerEvidence = eventually(lambda: seen(watcher), "looks at the GPU and its clock")
    (gpu,) = server.gpus
    assert (gpu.use.gpu, gpu.throttled, gpu.clock, gpu.reasons) == (GPU, 1.0, 0.5, ("its power limit",))
    assert server.gpu_busy == pytest.approx(0.76)
