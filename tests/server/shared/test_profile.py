"""Profiles of requests on a real Triton: known times are found where they were spent."""

from __future__ import annotations

import numpy as np
import pytest

from tests.server.models import ECHO, ModelText, ensemble
from tests.server.sharing import SharedServer
from tritonkit.client import Client
from tritonkit.perf.load import RequestProfile, profile_requests
from tritonkit.serve import Endpoint

SLOW, FAST = 0.1, 0.01  # seconds


def sleeping(seconds: float) -> ModelText:
    """An echo that takes so long."""
    return ModelText(code=ECHO.replace("float(x[0, 0])", str(seconds)))


def spent(profile: RequestProfile, where: str) -> dict[str, float]:
    """Milliseconds at one place, by what they went on."""
    return {span.what: span.ms for span in profile.spans if span.where == where}


@pytest.fixture
def ensemble_server(shared: SharedServer) -> Endpoint:
    """An ensemble of a slow and a fast step, one instance each."""
    return shared.serving({"slow": sleeping(SLOW), "fast": sleeping(FAST), "whole": ensemble("slow", "fast")})


def test_time_is_found_in_the_step_that_took_it(ensemble_server: Endpoint) -> None:
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


def test_answers_from_the_response_cache_are_said_to_be_that(shared: SharedServer) -> None:
    """Nothing runs and nothing queues: without the note the profile would seem broken."""
    with Client(shared.endpoint.grpc) as client:
        profile = profile_requests(client, "kept", {"x": np.zeros((1, 4), np.float32)}, requests=10)
    assert profile.notes == ("nothing ran: the answers came from the server's response cache",)
    assert spent(profile, "kept")["compute"] == 0
    assert profile.batches == {}
    assert sum(span.ms for span in profile.spans) == pytest.approx(profile.mean_ms)
