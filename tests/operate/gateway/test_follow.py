"""The files of a gateway that runs elsewhere: complete, and kept as keys and models are."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.waiting import eventually
from tritonkit.errors import UsageError
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.gateway import GatewayFiles, GatewaySources, Upstream
from tritonkit.operate.keys import FILE, add_key, revoke_key

REPLICAS = [Upstream("triton", "triton:8001", "triton:8000", 3)]


@pytest.fixture
def sources(tmp_path: Path) -> GatewaySources:
    """A gateway's folder with a certificate, and a repository of one model."""
    make_certificates(tmp_path / "gateway" / "tls", ["localhost"])
    serve_model(tmp_path / "models", "digits")
    return GatewaySources(tmp_path / "gateway", tmp_path / "models", REPLICAS, ("0.0.0.0", 9443), "0.0.0.0:9444")


def serve_model(repository: Path, name: str) -> None:
    """Put a model there, as far as a gateway looks."""
    (repository / name).mkdir(parents=True)
    (repository / name / "config.pbtxt").touch()


def routes(out: Path) -> Any:
    """The metadata of its routes: `tritonkit.identify` has keys by their hash, `tritonkit.admit` the models."""
    made = json.loads((out / "rendered" / "routes.json").read_text())["resources"][0]
    return made["virtual_hosts"][0]["routes"][0]["metadata"]["filter_metadata"]


@contextmanager
def following(files: GatewayFiles) -> Iterator[list[str]]:
    """While the block runs; what it says."""
    ending, messages = threading.Event(), []
    thread = threading.Thread(target=files.follow, args=(ending, messages.append))
    thread.start()
    try:
        yield messages
    finally:
        ending.set()
        thread.join()


@pytest.mark.needs("envoy")
def test_names_are_looked_up_and_limits_are_of_all_their_servers(
    sources: GatewaySources, tmp_path: Path, envoy: Path
) -> None:
    """One name for three servers: three times the requests; requested addresses win over gateway.yaml's."""
    (sources.folder / "gateway.yaml").write_text("port: 8443\nlimits: {requests_per_replica: 10}\n")
    file = GatewayFiles(sources, tmp_path / "out", envoy).write()
    listeners = json.loads(file.read_text())["static_resources"]["listeners"]
    ports = {listener["name"]: listener["address"]["socket_address"]["port_value"] for listener in listeners}
    assert ports == {"gateway": 9443, "metrics": 9444}
    clusters = json.loads((file.parent / "clusters.json").read_text())["resources"]
    for cluster in clusters:
        assert cluster["cluster_type"]["name"] == "envoy.cluster.dns"
        assert cluster["circuit_breakers"]["thresholds"][0]["max_requests"] == 30
    assert "StdoutAccessLog" in file.read_text()


@pytest.mark.slow
@pytest.mark.needs("envoy")
def test_keys_and_models_that_change_are_written(sources: GatewaySources, tmp_path: Path, envoy: Path) -> None:
    """A key that is made or revoked, and a model that is published; keys that cannot be read change nothing."""
    out, keys = tmp_path / "out", sources.folder / FILE
    files = GatewayFiles(sources, out, envoy)
    files.write()
    assert routes(out)["tritonkit.identify"] == {}
    with following(files) as messages:
        made, _ = add_key(keys, "alice")
        eventually(lambda: made.sha256 in routes(out)["tritonkit.identify"])
        serve_model(sources.repository, "sentences")
        models = {"model digits", "model sentences"}
        eventually(lambda: models <= routes(out)["tritonkit.admit"].keys())
        other, _ = add_key(keys, "bob")
        revoke_key(keys, "alice")
        eventually(lambda: routes(out)["tritonkit.identify"].keys() == {other.sha256})
        keys.write_text("{")
        eventually(lambda: any("left as they were" in message for message in messages))
        assert routes(out)["tritonkit.identify"].keys() == {other.sha256}
    assert len([message for message in messages if "left as they were" in message]) == 1


def test_nothing_is_written_without_a_certificate(sources: GatewaySources, tmp_path: Path) -> None:
    """Nor with a key that others can read."""
    key = sources.folder / "tls" / "server.key"
    key.chmod(0o644)
    with pytest.raises(UsageError, match="others than its owner"):
        GatewayFiles(sources, tmp_path / "out", Path("envoy")).write()
    (sources.folder / "tls" / "server.crt").unlink()
    with pytest.raises(UsageError, match="there is no such file"):
        GatewayFiles(sources, tmp_path / "out", Path("envoy")).write()
    assert not (tmp_path / "out").exists()


@pytest.mark.needs("envoy")
def test_the_command_writes_the_same(sources: GatewaySources, tmp_path: Path, envoy: Path) -> None:
    """`tritonkit gateway render` says which file Envoy is started with; addresses that are none are refused."""
    words = (
        "gateway",
        "render",
        "--gateway",
        str(sources.folder),
        "--repository",
        str(sources.repository),
        "--out",
        str(tmp_path / "out"),
        "--envoy",
        str(envoy),
    )
    done = tritonkit(*words, "--replica", "a:8001,a:8000", "--replica", "b:8001")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'out' / 'envoy.json'}\n"
    grpc, rest = json.loads((tmp_path / "out" / "clusters.json").read_text())["resources"]
    assert len(grpc["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 2
    assert len(rest["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 1
    # Its Envoy may write nowhere: the log of requests is its output.
    logs = re.findall(r'"path": "([^"]*\.(?:log|jsonl))"', (tmp_path / "out" / "envoy.json").read_text())
    assert logs == []
    for wrong in ("a", "a:b", "a:8001,b", ":8001", "a:99999"):
        assert "not an address" in failed(tritonkit(*words, "--replica", wrong), 2)
