"""The comparison's load generator against a real Triton, over HTTP, its own socket and gRPC."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.peers import traffic
from bench.peers.contenders import CONTENDERS
from bench.peers.measure import closed_loops
from bench.peers.processes import Tree
from bench.peers.server import Running
from tritonkit.serve import Endpoint

CORES = sorted(os.sched_getaffinity(0))


@pytest.mark.needs("h2load")
@pytest.mark.parametrize("model", ["digits_network", "sentences"])
def test_every_protocol_gives_one_answer_and_counts_as_triton_does(
    model: str, digits_server: Endpoint, tmp_path: Path
) -> None:
    """All ways give the same answers, and Triton counted the successes that the load generator saw."""
    addresses = {"HTTP_PORT": digits_server.http, "GRPC_PORT": digits_server.grpc}
    with subprocess.Popen(["/bin/sleep", "300"]) as any_tree:
        server = Running(Tree(any_tree, tmp_path / "log"), 0.0, addresses, triton=True)
        try:
            ways = [w for w in CONTENDERS["tritonkit"].ways if w.format and model in w.models and not w.socket]
            answers = [traffic.ask(server.request(way, model)) for way in ways]
            for way, answer in zip(ways, answers, strict=True):
                assert traffic.difference(answer, answers[0]) < 1e-4, way
            for way in ways[:2]:
                loop = closed_loops(server, way, model, 0.5, CORES, callers=(4,))["4"]
                assert loop["answers"] > 0
                assert loop["failures"] == 0
        finally:
            any_tree.kill()
