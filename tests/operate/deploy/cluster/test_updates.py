"""New versions under load: no call is lost, and a version that cannot be loaded replaces nothing."""

from __future__ import annotations

import pytest

from tests.operate.deploy.cluster.site import Site, eventually
from tests.operate.deploy.cluster.test_serving import CLUSTER_IP, HEADLESS


@pytest.mark.parametrize("address", [HEADLESS, CLUSTER_IP])
def test_a_new_version_loses_no_call(steady: Site, address: str) -> None:
    """A rolling update under 100 calls a second: every one is answered, by the old version and then by the new."""
    with steady.calling(address, rate=100) as calls:
        steady.inside("sleep", "5")
        steady.apply("two")
        steady.rolled_out()
        steady.inside("sleep", "5")
    calls.require_none_failed(least=500)
    assert calls.versions == ["1", "2"]


def test_a_model_that_cannot_be_loaded_replaces_nothing(steady: Site) -> None:
    """The old version keeps serving, and diagnose gives Triton's own reason."""
    with steady.calling(HEADLESS, rate=20) as calls:
        steady.apply("broken", progress_s=60)
        failures = eventually(
            lambda: [cause for cause in steady.causes() if cause["cause"] == "model failed to load"], steady.diagnosis
        )
        assert "digits_network" in failures[0]["found"]
        assert "example.missing" in failures[0]["found"]
        stuck = eventually(
            lambda: [cause for cause in steady.causes() if cause["cause"] == "rollout stuck"], steady.diagnosis
        )
        assert "the old version keeps serving" in stuck[0]["found"]
        assert sorted(
            container["ready"] for pod in steady.pods() for container in pod["status"]["containerStatuses"]
        ) == [
            False,
            True,
            True,
        ]
        assert steady.replicas() == 2
    calls.require_none_failed(least=20)
    assert calls.versions == ["1"]
