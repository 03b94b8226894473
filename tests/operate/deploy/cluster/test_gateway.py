"""The gateway's one address: TLS, keys, and each call to the pod with the fewest under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import tritonkit
from tests.operate.deploy.cluster.site import PATIENCE_S, Site

NAME = "triton-gateway"


@pytest.fixture
def gateway(steady: Site, tmp_path: Path) -> Site:
    """The overlay `gateway`, by the steps of docs/kubernetes-traffic.md; the caller has the authority and a key."""
    kubectl = steady.kubectl
    folder = tmp_path / "gateway"
    where = ("--gateway", str(folder))
    done = tritonkit("certs", "--name", f"{NAME}.{steady.namespace}.svc", "--name", NAME, *where)
    assert done.returncode == 0, done.stderr
    added = tritonkit("keys", "add", "alice", "--model", "digits", "--model", "sentences", *where)
    assert added.returncode == 0, added.stderr
    steady.apply(overlay="gateway")
    tls = folder / "tls"
    kubectl("delete", "secret", "--ignore-not-found", NAME, f"{NAME}-tls")
    pair = (f"--cert={tls}/server.crt", f"--key={tls}/server.key")
    kubectl("create", "secret", "tls", f"{NAME}-tls", *pair)
    kubectl("create", "secret", "generic", NAME, f"--from-file={folder}/keys.json")
    kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={PATIENCE_S:.0f}s")
    steady.rolled_out()
    give(steady, "/tmp/ca.crt", (tls / "ca.crt").read_text())  # noqa: S108 (the caller's own)
    give(steady, "/tmp/key", added.stdout)  # noqa: S108
    return steady


def give(site: Site, path: str, text: str) -> None:
    """Write a file in the caller's pod."""
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    code = f"import os; os.umask(0o077); {code}"
    words = ("exec", "--stdin", "caller", "--", "python3", "-c", code, path)
    site.kubectl(*words, stdin=text)


OPTIONS = {"ca": "/tmp/ca.crt", "key_file": "/tmp/key"}  # noqa: S108


def test_calls_through_the_gateway_outlive_an_update_of_triton(gateway: Site) -> None:
    """One connection of the caller, all pods behind it, before and after a new version: no call is lost."""
    with gateway.calling(f"grpcs://{NAME}:8443", rate=100, **OPTIONS) as calls:
        gateway.inside("sleep", "5")
        gateway.apply("two", overlay="gateway")
        gateway.rolled_out()
        gateway.inside("sleep", "5")
    calls.require_none_failed(least=500)
    assert calls.versions == ["1", "2"]


def test_calls_through_the_gateway_outlive_its_own_restart(gateway: Site) -> None:
    """A pod of the gateway that ends hands its callers over."""
    with gateway.calling(f"grpcs://{NAME}:8443", rate=50, **OPTIONS) as calls:
        gateway.inside("sleep", "5")
        gateway.kubectl("rollout", "restart", f"deployment/{NAME}")
        gateway.kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={PATIENCE_S:.0f}s")
        gateway.inside("sleep", "15")
    calls.require_none_failed(least=250)


def test_without_a_key_nobody_calls(gateway: Site) -> None:
    """The gateway asks for one."""
    with gateway.calling(f"grpcs://{NAME}:8443", rate=5, seconds=5, ca=OPTIONS["ca"]) as calls:
        gateway.inside("sleep", "6")
    assert calls.said["failed"] == calls.said["calls"] > 0
