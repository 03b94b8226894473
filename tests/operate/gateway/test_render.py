"""A gateway's files: what Envoy refuses is a clear error, and nothing is left half written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tritonkit.errors import RenderError, SpecError, UsageError
from tritonkit.operate.gateway import Places, Upstream, read_gateway, write_gateway
from tritonkit.operate.gateway.clusters import clusters
from tritonkit.operate.gateway.routes import routes
from tritonkit.operate.gateway.spec import GatewayLimits, GatewaySpec
from tritonkit.operate.keys import add_key, read_keys


def written(folder: Path, envoy: Path, spec: str = "") -> Path:
    """The bootstrap of a gateway with this `gateway.yaml`."""
    if spec:
        (folder / "gateway.yaml").write_text(spec)
    places = Places(folder, folder / "rendered", folder / "run" / "clusters.json", None, 8443)
    return write_gateway(read_gateway(folder), places, ["digits"], [Upstream("a", "127.0.0.1:1")], envoy)


@pytest.mark.needs("envoy")
def test_what_is_written_is_what_envoy_took(tmp_path: Path, envoy: Path) -> None:
    """All files are there, and none that was only tried."""
    written(tmp_path, envoy)
    assert {file.name for file in (tmp_path / "rendered").iterdir()} == {
        "routes.json",
        "secrets.json",
        "strangers.json",
    }
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"clusters.json", "envoy.json"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("prot: 8443", "unknown key 'prot'"),
        ("port: 99999", "65535"),
        ("port: yes", "integer"),
        ("limits: {request_mib: 0}", "greater than 0"),
        ("limits: {timeout_s: .nan}", "finite"),
        ("limits: {target_ms: 50}", "capacity_per_s and target_ms together"),
        ("limits: {target_ms: 50, capacity_per_s: 9, requests_per_replica: 9}", "or requests_per_replica"),
        ("limits: {target_ms: 50, capacity_per_s: many}", "number"),
        ("limits: {target_ms: 0, capacity_per_s: 10}", "greater than 0"),
        ("tls: {key: ../key}", "leaves the"),
        ("tls: {key: /etc/key}", "leaves the"),
        ("jwt: {issuer: me}", "one of them"),
        ("jwt: {issuer: me, jwks: a, jwks_url: 'https://x/y'}", "one of them"),
        ("jwt: {issuer: me, jwks_url: 'file:///etc/passwd'}", "https://HOST/PATH"),
        ("jwt: {issuer: me, jwks_url: 'http://login.example.org/keys'}", "https://HOST/PATH"),
        ("jwt: {issuer: me, jwks_url: 'https://host:abc/keys'}", "https://HOST/PATH"),
        ("jwt: {issuer: me, jwks_url: 'https://user:secret@host/keys'}", "https://HOST/PATH"),
        ("jwt: {issuer: me, jwks_url: 'https://host/a b'}", "https://HOST/PATH"),
        ("jwt: {issuer: me, jwks_url: 'https://host'}", "https://HOST/PATH"),
        ("jwt: {issuer: me, jwks: a, models_claim: 'a\"b'}", "match"),
        ("jwt: {issuer: me, jwks: a, models: ['a\"b']}", "match"),
        ("limits: {shared: {redis: 'http://host'}}", "redis://HOST:PORT"),
        ("limits: {shared: {redis: 'redis://:hunter2@host'}}", "password_file"),
        ("limits: {shared: {redis: 'redis://host', service: here}}", "match"),
        ("limits: {shared: {redis: 'redis://host', timeout_ms: 0}}", "greater than 0"),
        ("jwt: {issuer: me, jwks: a, rate_per_s: 0}", "0.01"),
        ("audit: nowhere", "stdout"),
    ],
)
def test_a_wrong_gateway_yaml_is_refused(tmp_path: Path, spec: str, message: str) -> None:
    """With file and line, and where to read."""
    (tmp_path / "gateway.yaml").write_text(spec + "\n")
    with pytest.raises(SpecError) as caught:
        read_gateway(tmp_path)
    assert "gateway.yaml:1" in caught.value.where
    assert message in f"{caught.value.found} {caught.value.wanted}"
    assert "docs/gateway.md" in caught.value.todo
    assert "hunter2" not in f"{caught.value} {caught.value.details}"


@pytest.mark.needs("envoy")
def test_a_host_that_is_no_address_is_refused(tmp_path: Path, envoy: Path) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="does not appear to be an IPv4 or IPv6 address"):
        written(tmp_path, envoy, "host: example.org\n")
    assert not (tmp_path / "rendered").exists()


@pytest.mark.needs("envoy")
def test_what_envoy_refuses_is_said(tmp_path: Path, envoy: Path) -> None:
    """In its own words; nothing is written."""
    spec = "limits: {header_kib: 16, idle_s: 3600}\njwt: {issuer: me, jwks: missing.json}\n"
    with pytest.raises(RenderError, match="Envoy does not take it") as caught:
        written(tmp_path, envoy, spec)
    assert "missing.json" in caught.value.details
    assert not (tmp_path / "rendered").exists()


def test_no_key_is_in_what_is_written(tmp_path: Path) -> None:
    """Envoy knows hashes alone."""
    _, key = add_key(tmp_path / "keys.json", "alice", ("digits",), 10)
    text = json.dumps(routes(read_keys(tmp_path / "keys.json"), ["digits"], GatewaySpec()))
    assert key not in text
    assert "alice" in text


def test_limits_are_for_each_replica() -> None:
    """A cluster's limit is the sum of its replicas'."""
    limits = GatewayLimits(requests_per_replica=10)
    replicas = [Upstream(name, f"127.0.0.1:{name}", f"127.0.0.1:{name}0") for name in "12"]
    entries = clusters(replicas, limits)
    assert [cluster["name"] for cluster in entries] == ["grpc", "rest"]
    for cluster in entries:
        (threshold,) = cluster["circuit_breakers"]["thresholds"]
        assert threshold["max_requests"] == 20
        # What waits for a connection is not refused, and waits for long.
        assert threshold["max_connections"] > 2 * threshold["max_requests"]


@pytest.mark.parametrize(("per_s", "target_ms", "most"), [(200, 500, 50), (1000, 20, 10), (5, 50, 1)])
def test_a_limit_follows_from_capacity_and_target(per_s: float, target_ms: float, most: int) -> None:
    """Concurrency at which the mean time is half of the target: rate times time (Little's law)."""
    limits = GatewayLimits(capacity_per_s=per_s, target_ms=target_ms)
    assert limits.requests_per_replica == most


def test_a_name_as_an_address_is_looked_up() -> None:
    """In containers replicas have names."""
    entries = clusters([Upstream("a", "triton-0:8001", "triton-0:8000")], GatewayLimits())
    assert {cluster["cluster_type"]["name"] for cluster in entries} == {"envoy.cluster.dns"}
    assert {cluster["type"] for cluster in clusters([Upstream("a", "[::1]:8001")], GatewayLimits())} == {"STATIC"}
