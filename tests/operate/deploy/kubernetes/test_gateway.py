"""The gateway's pods: who reaches whom, how they end, and a real Envoy on what they are told to render."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from pydantic import ValidationError

from tests.operate.deploy.kubernetes.dns import NameServer
from tests.operate.gateway.test_split import INFER, Named, message
from tests.parts import PROJECT, SERVER
from tests.waiting import eventually
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.deploy import Values
from tritonkit.operate.deploy.traffic_values import DRAIN_S, LEAVE_S
from tritonkit.operate.gateway import gateway_command
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.keys import add_key
from tritonkit.resources import shipped
from tritonkit.serve.core.rest import find_envoy
from tritonkit.serve.ports import check_free

Resource = dict[str, Any]
Build = Callable[[str], list[Resource]]
Render = Callable[..., dict[str, str]]


def named(resources: list[Resource], kind: str, name: str) -> Resource:
    """One resource."""
    [resource] = [one for one in resources if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return resource


def test_only_the_gateway_and_named_namespaces_reach_triton(kustomize: Build) -> None:
    """In the overlay with a gateway the namespace's other pods have to go through it."""
    resources = kustomize("gateway")
    rule = named(resources, "NetworkPolicy", "triton")["spec"]["ingress"][0]
    gateway = {"app.kubernetes.io/name": "triton-gateway"}
    assert rule["from"] == [{"podSelector": {"matchLabels": gateway}}]
    pod = named(resources, "Deployment", "triton-gateway")["spec"]["template"]
    assert gateway.items() <= pod["metadata"]["labels"].items()
    spec = named(resources, "NetworkPolicy", "triton-gateway")["spec"]
    assert spec["podSelector"]["matchLabels"] == gateway
    assert spec["ingress"][0] == {"ports": [{"protocol": "TCP", "port": "https"}]}


def test_namespaces_of_clients_still_reach_triton(render: Render, tmp_path: Path, kustomize: Build) -> None:
    """Namespaces in values.yaml may still call Triton."""
    for path, text in render(client_namespaces=["batch"]).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = ["kubectl", "kustomize", str(tmp_path / "overlays" / "gateway")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    policy = named(list(yaml.safe_load_all(done.stdout)), "NetworkPolicy", "triton")
    first, second = policy["spec"]["ingress"][0]["from"]
    assert "triton-gateway" in str(first)
    assert second["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "batch"}


def test_the_end_of_a_gateway_has_time_for_all_of_it(kustomize: Build) -> None:
    """preStop and the drain of gateway.py, before the kubelet kills."""
    text = shipped("deploy/docker/gateway.py").read_text()
    [drain] = re.findall(r"^DRAIN_S = ([0-9.]+)$", text, re.MULTILINE)
    assert float(drain) == DRAIN_S
    pod = named(kustomize("gateway"), "Deployment", "triton-gateway")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > LEAVE_S + DRAIN_S
    [gateway] = pod["containers"]
    command = gateway["lifecycle"]["preStop"]["exec"]["command"]
    assert command[1:] == ["/opt/tritonkit/gateway.py", "leave", str(LEAVE_S)]


def test_what_configures_the_gateway_runs_beside_it(kustomize: Build) -> None:
    """A sidecar, so that changed keys count; it starts before Envoy and ends after it."""
    pod = named(kustomize("gateway"), "Deployment", "triton-gateway")["spec"]["template"]["spec"]
    [config] = pod["initContainers"]
    assert config["restartPolicy"] == "Always"
    assert "--watch" in config["command"]
    assert {"--model=a", "--model=b"} <= set(config["args"])


@pytest.mark.parametrize(("production", "most"), [((), 3), (("hpa",), 9), (("keda", "gateway"), 9)])
def test_limits_are_for_the_most_pods(render: Render, production: tuple[str, ...], most: int) -> None:
    """Else the gateway would refuse what pods that an autoscaler adds can take."""
    values = {"replicas": 3, "scaling": {"max": 9}, "production": production}
    assert f"--each={most}\n" in render(**values)["components/gateway/deployment.yaml"]


@dataclass
class Pod:
    """An Envoy on the configuration of a pod."""

    folder: Path
    port: int
    key: str
    admin: GatewayAdmin

    def channel(self) -> grpc.Channel:
        """One connection."""
        authority = (self.folder / "made" / "ca.crt").read_bytes()
        return grpc.secure_channel(f"127.0.0.1:{self.port}", grpc.ssl_channel_credentials(authority))

    def servers(self) -> int:
        """Number of servers that it sends calls to."""
        return self.admin.healthy("grpc")


def volume(folder: Path, files: dict[str, Path]) -> None:
    """Files as the kubelet lays those of a Secret: links into a folder that is exchanged as a whole."""
    (folder / "..1").mkdir(parents=True)
    (folder / "..data").symlink_to("..1")
    for name, source in files.items():
        target = folder / "..1" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
        target.chmod(0o600)
    for top in {name.partition("/")[0] for name in files}:
        (folder / top).symlink_to(f"..data/{top}")


@pytest.fixture
def names() -> Iterator[NameServer]:
    """Nobody has a name yet."""
    made = NameServer({"triton": [], "triton-canary": []})
    yield made
    made.close()


@pytest.fixture
def servers() -> Iterator[list[Named]]:
    """Two pods at two addresses, and the same port."""
    port = check_free("127.0.0.2", 0)
    made = [Named(host, f"{host}:{port}") for host in ("127.0.0.2", "127.0.0.3")]
    yield made
    for server in made:
        server.stop()


def resolver(names: NameServer) -> dict[str, Any]:
    """The part of Envoy's bootstrap that has it ask this name server."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": names.port}}
    cares = {
        "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "resolvers": [address],
        "dns_resolver_options": {"no_default_search_domain": True},
    }
    return {"typed_dns_resolver_config": {"name": "envoy.network.dns_resolver.cares", "typed_config": cares}}


@pytest.fixture
def pod(render: Render, names: NameServer, servers: list[Named], tmp_path: Path, request: Any) -> Iterator[Pod]:
    """The programs of the pod's containers, with other ports, and with this name server instead of the cluster's.

    The parameter has keys of values.yaml."""
    made = tmp_path / "made"
    make_certificates(made, ["127.0.0.1"])
    _, key = add_key(made / "keys.json", "caller")
    volume(
        tmp_path / "secrets",
        {"keys.json": made / "keys.json", "tls/server.crt": made / "server.crt", "tls/server.key": made / "server.key"},
    )
    envoy = find_envoy(SERVER)
    assert envoy is not None
    port = check_free("127.0.0.1", 0)
    to = servers[0].address.rpartition(":")[2]
    text = render(**getattr(request, "param", {}))["components/gateway/deployment.yaml"]
    [config] = yaml.safe_load(text)["spec"]["template"]["spec"]["initContainers"]
    own = {
        "--gateway": f"{tmp_path}/secrets",
        "--out": f"{tmp_path}/gateway",
        "--envoy": f"{envoy}",
        "--listen": f"127.0.0.1:{port}",
        "--metrics": f"127.0.0.1:{check_free('127.0.0.1', 0)}",
        "--replica": f"triton:{to},triton:{to}",
    }
    words = dict(argument.split("=", 1) for argument in config["args"] if not argument.startswith("--model="))
    if "--candidate" in words:
        own["--candidate"] = words["--candidate"].replace("8001", to).replace("8000", to)
    arguments = [f"{name}={value}" for name, value in (words | own).items()]
    arguments += [argument for argument in config["args"] if argument.startswith("--model=")]
    command = [sys.executable, "-m", "tritonkit.cli", *config["command"][1:-1], *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=PROJECT)
    file = tmp_path / "gateway" / "envoy.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | resolver(names)))
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(gateway_command(envoy, str(file)), cwd=run, stdout=log, stderr=log)
    try:
        admin = GatewayAdmin(run)
        eventually(admin.ready, f"an Envoy that is ready: {(tmp_path / 'log').read_text()}")
        yield Pod(tmp_path, port, key, admin)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.needs("envoy")
def test_no_call_is_lost_while_pods_come_and_go(pod: Pod, names: NameServer, servers: list[Named]) -> None:
    """Calls of one connection go to every address of the name, a new one's included; one that leaves gets no more."""
    one, other = servers
    names.addresses["triton"].append("127.0.0.2")
    eventually(lambda: pod.servers() == 1, "the first pod")
    ending = threading.Event()
    with pod.channel() as channel, Caller(channel, pod.key, ending) as caller:
        eventually(lambda: caller.answers[one.name] > 50, "calls at the first pod")
        names.addresses["triton"].append("127.0.0.3")
        eventually(lambda: caller.answers[other.name] > 50, "calls at the new pod, too")
        before = caller.answers[one.name]
        eventually(lambda: caller.answers[one.name] > before + 50, "and still at the first one")
        # As a pod does: it leaves the name, answers on for a while, and ends.
        names.addresses["triton"].remove("127.0.0.2")
        eventually(lambda: pod.servers() == 1, "the gateway without it")
        one.stop()
        before = caller.answers[other.name]
        eventually(lambda: caller.answers[other.name] > before + 100, "calls at the one that stays")
    assert set(caller.answers) == {one.name, other.name}, caller.answers


CANARY = {"canary": {"models": {"image": "tritonkit/models:2"}, "weight": 30}}


@pytest.mark.slow
@pytest.mark.needs("envoy")
@pytest.mark.parametrize("pod", [CANARY], indirect=True)
def test_a_canary_gets_its_part_and_costs_no_call(pod: Pod, names: NameServer, servers: list[Named]) -> None:
    """Calls without it are answered, so are those that ask for it; once it is there it has its weight."""
    stable, canary = servers
    names.addresses["triton"].append(stable.name)
    eventually(lambda: pod.servers() == 1, "the pod of the stable version")
    with pod.channel() as channel:
        assert answers(channel, pod.key, 50) == {stable.name: 50}
        assert answers(channel, pod.key, 20, "candidate") == {stable.name: 20}
        names.addresses["triton-canary"].append(canary.name)
        eventually(lambda: pod.admin.healthy("grpc-candidate") == 2, "the canary, and the other")
        assert answers(channel, pod.key, 20, "candidate") == {canary.name: 20}
        assert answers(channel, pod.key, 20, "stable") == {stable.name: 20}
        counts = answers(channel, pod.key, 400)
        # A share of 0.3 of 400 lies within these bounds but for one of a million runs.
        assert 75 < counts[canary.name] < 170, counts
        assert counts[canary.name] + counts[stable.name] == 400
        canary.stop()
        assert answers(channel, pod.key, 50, "candidate") == {stable.name: 50}


def answers(channel: grpc.Channel, key: str, count: int, release: str = "") -> Counter[str]:
    """Counts of the servers that answered `count` calls."""
    sent = (("x-api-key", key), *([("x-tritonkit-release", release)] if release else []))
    ask = channel.unary_unary(INFER)
    return Counter(ask(message("a"), metadata=sent, timeout=30).decode() for _ in range(count))


def test_a_canary_is_never_taken_for_triton(kustomize: Build) -> None:
    """No Service, budget, policy or spread of the one has pods of the other, and both have models of their own."""
    resources = kustomize("canary")
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"):
        stable, canary = (named(resources, kind, name) for name in ("triton", "triton-canary"))
        renamed = json.loads(json.dumps(stable).replace('"triton"', '"triton-canary"'))
        if kind == "Deployment":
            assert canary["spec"]["replicas"] == 1
            first = canary["spec"]["template"]["spec"]["initContainers"][0]
            assert first["image"] == "tritonkit/models:2"
            spread = canary["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert "triton-canary" in str(spread)
            assert canary["spec"]["selector"] == renamed["spec"]["selector"]
            continue
        assert canary["spec"] == renamed["spec"]


def test_routes_of_a_gateway_open_inference_alone(kustomize: Build) -> None:
    """Every method that changes a server has none; weights are the canary's, and testers choose."""
    resources = kustomize("gateway-api")
    rules = named(resources, "GRPCRoute", "triton")["spec"]["rules"]
    methods = {match["method"].get("method") for rule in rules for match in rule["matches"]}
    assert {"ModelInfer", "ServerReady"} <= methods
    assert not [name for name in methods if name and re.search("Repository|Shared|Trace|Log", name)]
    chosen, stable, weighted, _ = rules
    assert [ref["name"] for ref in chosen["backendRefs"]] == ["triton-canary-clusterip"]
    assert [ref["name"] for ref in stable["backendRefs"]] == ["triton-clusterip"]
    assert [ref["weight"] for ref in weighted["backendRefs"]] == [70, 30]
    paths = [
        match["path"]["value"]
        for rule in named(resources, "HTTPRoute", "triton")["spec"]["rules"]
        for match in rule["matches"]
    ]
    assert set(paths) == {"/v2/models", "/v2", "/v2/health"}
    services = {one["metadata"]["name"] for one in resources if one["kind"] == "Service"}
    assert {ref["name"] for rule in rules for ref in rule["backendRefs"]} <= services
    [triton] = named(resources, "Deployment", "triton")["spec"]["template"]["spec"]["containers"]
    [hosts] = [one["value"] for one in triton["env"] if one["name"] == "TRITON_HTTP_HOSTS"]
    assert "rest.example.org" in hosts.split()


def test_routes_without_a_gateway_are_refused() -> None:
    """Nobody's name is made up."""
    with pytest.raises(ValidationError, match="wanted gateway_api"):
        Values.model_validate({"production": ["gateway-api"]})


@pytest.mark.needs("envoy")
def test_a_new_certificate_counts_when_the_kubelet_brings_it(pod: Pod) -> None:
    """It exchanges one link at the top of the volume, and Envoy sees it."""
    secrets = pod.folder / "secrets"
    before = certificate(pod)
    make_certificates(pod.folder / "made", ["127.0.0.1"])
    new = secrets / "..2"
    new.mkdir()
    (new / "tls").mkdir()
    for name in ("server.crt", "server.key"):
        (new / "tls" / name).write_bytes((pod.folder / "made" / name).read_bytes())
    (secrets / "..data_tmp").symlink_to("..2")
    (secrets / "..data_tmp").replace(secrets / "..data")
    eventually(lambda: certificate(pod) != before, "the new certificate")


def certificate(pod: Pod) -> str:
    """The one that it shows."""
    return ssl.get_server_certificate(("127.0.0.1", pod.port))


class Caller:
    """Calls one after the other over a connection, and counts who answered, or why one failed."""

    def __init__(self, channel: grpc.Channel, key: str, ending: threading.Event) -> None:
        self.answers: Counter[str] = Counter()
        self._ask, self._key, self._ending = channel.unary_unary(INFER), key, ending
        self._thread = threading.Thread(target=self._call)

    def __enter__(self) -> Caller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _call(self) -> None:
        while not self._ending.wait(0.002):
            try:
                sent = (("x-api-key", self._key),)
                name = self._ask(message("a"), metadata=sent, timeout=30).decode()
            except grpc.RpcError as error:
                name = f"{error.code().name}: {error.details()}"
            self.answers[name] += 1
