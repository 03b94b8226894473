"""`tritonkit profile` with a server of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import tritonkit
from tests.conftest import PROJECT
from tritonkit.repository.pipeline import build_repository


def test_one_command_starts_a_server_and_takes_a_request_apart(root: Path) -> None:
    """`tritonkit profile` without an address: decode, network, top k, and the network's operators by
    the profiler of the engine that serves it."""
    (root / "models").rmdir()
    for name in ("models", ".venv-server"):
        (root / name).symlink_to(PROJECT / name)
    build_repository(PROJECT, ("digits",), out=root / "model_repository")
    done = tritonkit("profile", "digits", "--requests", "30", "--json", "--root", str(root))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert [*dict.fromkeys(span["where"] for span in facts["spans"])] == [
        "client",
        "wire",
        "digits_decode_image",
        "digits_network",
        "digits_top_k",
        "server",
    ]
    computed = {s["where"]: s["ms"] for s in facts["spans"] if s["what"] == "compute"}
    assert min(computed.values()) > 0
    assert sum(span["share"] for span in facts["spans"]) == pytest.approx(1)
    network = facts["network"]
    assert network["problem"] == ""
    assert sum(operator["share"] for operator in network["operators"]) == pytest.approx(1)
    assert network["operators"][0]["ms"] >= network["operators"][-1]["ms"] >= 0
