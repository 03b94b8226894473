"""Profiles of requests on a real Triton: known times are found where they were spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import tritonkit
from tests.conftest import PROJECT
from tests.server.conftest import WriteServerModels
from tests.server.models import ECHO, VECTOR, ModelText, ensemble
from tritonkit.client import Client
from tritonkit.perf.load import RequestProfile, profile_requests
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve

SLOW, FAST = 0.1, 0.01  # seconds


def sleeping(seconds: float) -> ModelText:
    """An echo that takes so long."""
    return ModelText(code=ECHO.replace("float(x[0, 0])", str(seconds)))


def spent(profile: RequestProfile, where: str) -> dict[str, float]:
    """Milliseconds at one place, by what they went on."""
    return {span.what: span.ms for span in profile.spans if span.where == where}


@pytest.fixture
def ensemble_server(write_server_models: WriteServerModels, project: Path) -> Any:
    """An ensemble of a slow and a fast step, one instance each."""
    repository = write_server_models(slow=sleeping(SLOW), fast=sleeping(FAST), whole=ensemble("slow", "fast"))
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project) as endpoint:
        yield endpoint


def test_time_is_found_in_the_step_that_took_it(ensemble_server: Any) -> None:
    """Alone, a request computes where it sleeps and waits nowhere; with others it queues before the
    slow step. Either way the spans add up to the mean."""
    inputs = {"x": np.zeros((1, 4), np.float32)}
    with Client(ensemble_server.grpc) as client:
        alone = profile_requests(client, "whole", inputs, requests=10)
        four = profile_requests(client, "whole", inputs, requests=24, concurrency=4)
    for profile in (alone, four):
        assert [*dict.fromkeys(span.where for span in profile.spans)] == ["client", "wire", "slow", "fast", "server"]
        assert sum(span.ms for span in profile.spans) == pytest.approx(profile.mean_ms)
        assert spent(profile, "slow")["compute"] >= 1e3 * SLOW
        assert spent(profile, "fast")["compute"] >= 1e3 * FAST
    assert max(alone.spans, key=lambda span: span.ms).where == "slow"
    assert spent(alone, "slow")["queue"] < spent(four, "slow")["queue"]
    # Of four callers three wait; without a batcher each request runs by itself.
    assert spent(four, "slow")["queue"] > 1.5e3 * SLOW
    assert four.batches == {"slow": 1, "fast": 1}
    assert any("wait for each other" in note for note in four.notes)


def test_answers_from_the_response_cache_are_said_to_be_that(
    write_server_models: WriteServerModels, project: Path
) -> None:
    """Nothing runs and nothing queues: without the note the profile would seem broken."""
    cached = ModelText(f'backend: "python"\n{VECTOR}response_cache {{ enable: true }}\n')
    with (
        serve(write_server_models(kept=cached), grpc_port=0, http_port=0, metrics_port=0, root=project) as endpoint,
        Client(endpoint.grpc) as client,
    ):
        profile = profile_requests(client, "kept", {"x": np.zeros((1, 4), np.float32)}, requests=10)
    assert profile.notes == ("nothing ran: the answers came from the server's response cache",)
    assert spent(profile, "kept")["compute"] == 0
    assert profile.batches == {}
    assert sum(span.ms for span in profile.spans) == pytest.approx(profile.mean_ms)


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
