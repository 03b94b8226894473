"""The compose file and the figures it reads; no daemon is needed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.running import failed, tritonkit
from tests.docker.conftest import run
from tests.parts import program
from tests.server.models import VECTOR, ModelText, write_repository
from tritonkit.operate.deploy.facts import read_facts
from tritonkit.operate.deploy.values import Values
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import plan, read_models
from tritonkit.serve.command import python_run
from tritonkit.serve.manifests import GENERATIONS, LANGUAGE_WEIGHTS, PACKAGES_BYTES, STUB_BYTES, container_needs
from tritonkit.serve.shm import MIB

PROFILES = ("gpu", "kubernetes", "limits", "load", "nvidia", "tools", "tracing")
LINES = r"\A# Written by .* \(cores (\d+)\)\.\n"


def test_the_tracked_figures_are_those_of_the_repository(project: Path, tmp_path: Path) -> None:
    """deploy/docker/resources.yml and deploy/kubernetes are what is written for a fresh build, for the
    cores that the file names."""
    tracked = project / "deploy/docker/resources.yml"
    cores = re.match(LINES, tracked.read_text())
    assert cores is not None
    out = tmp_path / "model_repository"
    build_repository(project, ("digits", "sentences"), out=out, cores=int(cores[1]))
    fresh = tmp_path / "fresh.yml"
    done = tritonkit("manifests", "--repository", str(out), "--out", str(fresh))
    assert done.returncode == 0, done.stderr
    assert fresh.read_text() == tracked.read_text()
    tree = str(project / "deploy/kubernetes")
    done = tritonkit("deploy", "--check", "--repository", str(out), "--out", tree)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_tells_drift_and_writes_nothing(project: Path, root: Path) -> None:
    """`--check` ends with exit code 3 and says what to do; without it the file is written once."""
    write_repository(root / "model_repository", {"net": ModelText()})
    file = root / "resources.yml"
    arguments = ("manifests", "--root", str(root), "--out", str(file))
    assert "tritonkit manifests" in failed(tritonkit(*arguments, "--check"), 3)
    assert not file.exists()
    assert tritonkit(*arguments).returncode == 0
    assert tritonkit(*arguments, "--check").returncode == 0
    limits = yaml.safe_load(file.read_text())["services"]["triton"]
    facts = json.loads(tritonkit("manifests", "--root", str(root), "--json").stdout)
    assert limits["shm_size"] == f"{facts['shm_bytes'] // MIB}m"
    assert limits["mem_limit"] == f"{facts['memory_bytes'] // MIB}m"


def test_two_generations_have_room(project: Path, tmp_path: Path) -> None:
    """Shared memory and memory count every stub twice: a new version is loaded while the old one still serves."""
    models = read_models(write_repository(tmp_path, {"a": ModelText(), "b": ModelText()}))
    backends = python_run(project / "python_backends" / "backends")
    assert backends == {"python", "onnxruntime", "openvino", "pytorch", "llm"}
    one, two = container_needs(models[:1], backends), container_needs(models, backends)
    assert two.shm_bytes == GENERATIONS * plan(models, backends).total_bytes
    assert two.memory_bytes - one.memory_bytes >= GENERATIONS * STUB_BYTES
    assert two.region_bytes == MIB


def test_a_language_model_has_room(project: Path, tmp_path: Path) -> None:
    """Its weights and its cache, each for two generations."""
    backends = python_run(project / "python_backends" / "backends")

    def needed(weights: int, cache_mib: int) -> int:
        config = f'backend: "llm" parameters {{ key: "cache_mib" value: {{ string_value: "{cache_mib}" }} }}'
        files = {"1/openvino_model.bin": bytes(weights)}
        folder = tmp_path / f"{weights}-{cache_mib}"
        models = {"chat": ModelText(config=config, code=None, files=files)}
        return container_needs(read_models(write_repository(folder, models)), backends).memory_bytes

    small = needed(MIB, 256)
    assert needed(MIB, 256 + 512) - small == GENERATIONS * 512 * MIB
    assert needed(65 * MIB, 256) - small == GENERATIONS * LANGUAGE_WEIGHTS * 64 * MIB


def test_packages_have_room(project: Path, tmp_path: Path) -> None:
    """Each stub imports them; those of PyTorch, and large ones of a model's own, count up to a bound."""
    backends = python_run(project / "python_backends" / "backends")

    def needed(backend: str, packages_mib: int, count: int = 2) -> int:
        config = f'backend: "{backend}"\n{VECTOR}instance_group {{ count: {count} kind: KIND_CPU }}'
        facts = {
            "python": "3.11",
            "machine": "x86_64",
            "numpy": "1.26.4",
            "packages": {},
            "size_bytes": packages_mib * MIB,
        }
        files = {"1/environment.json": json.dumps(facts).encode()} if packages_mib else {}
        folder = tmp_path / f"{backend}-{packages_mib}-{count}"
        models = {"net": ModelText(config=config, files=files)}
        return container_needs(read_models(write_repository(folder, models)), backends).memory_bytes

    none = needed("python", 0)
    assert needed("python", 96) - none == GENERATIONS * 2 * 96 * MIB
    assert needed("python", 900) - none == GENERATIONS * 2 * PACKAGES_BYTES
    assert needed("python", 96, 3) - needed("python", 0, 3) == GENERATIONS * 3 * 96 * MIB
    assert needed("pytorch", 0) - none == GENERATIONS * 2 * PACKAGES_BYTES


def test_what_warming_up_takes_has_room_and_time(project: Path, tmp_path: Path) -> None:
    """The build's measurement counts if it exceeds the allowance of every model."""
    backends = python_run(project / "python_backends" / "backends")

    def needs(memory_mib: int, seconds: float) -> tuple[int, int]:
        start = {"memory_bytes": memory_mib * MIB, "processor_s": seconds}
        manifest = json.dumps({"files": {}, "start": start}).encode()
        net = ModelText(
            config='backend: "onnxruntime"', code=None, files={"1/model.onnx": b"1", "1/manifest.json": manifest}
        )
        folder = write_repository(tmp_path / f"{memory_mib}-{seconds}", {"net": net})
        facts = read_facts(folder, Values(cpu=2))
        return container_needs(read_models(folder), backends).memory_bytes, facts.startup_s

    usual, start_s = needs(0, 0)
    assert needs(700, 50) == (usual, start_s)
    more, longer_s = needs(1256, 100)
    # Memory is counted in steps of 64 MiB.
    assert abs(more - usual - GENERATIONS * 1000 * MIB) <= 64 * MIB
    assert longer_s == start_s + 90


@pytest.mark.parametrize("tool", [("docker", "compose"), ("docker-compose",)])
def test_compose_reads_the_file(project: Path, tool: tuple[str, ...]) -> None:
    """Both compose v2 and docker-compose 1.29 take it, with all profiles; the limits arrive."""
    if shutil.which(tool[0]) is None or run(*tool, "version").returncode != 0:
        pytest.skip(f"{' '.join(tool)} is not installed")
    profiles = [word for name in PROFILES for word in ("--profile", name)]
    done = run(*tool, *profiles, "config", cwd=project)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) == {
        "builder",
        "triton",
        "gateway-config",
        "gateway",
        "redis",
        "prometheus",
        "alertmanager",
        "grafana",
        "collector",
        "limiter",
        "reload",
        "locust",
        "builder-gpu",
        "triton-gpu",
        "builder-nvidia",
        "triton-nvidia",
        "store-tools",
    }
    for target in ("gpu", "nvidia"):
        server = services[f"triton-{target}"]
        assert {"shm_size", "mem_limit"} <= services["triton"].keys() & server.keys()
        assert server["deploy"]["resources"]["reservations"]["devices"][0]["driver"] == "nvidia"
        assert services[f"builder-{target}"]["command"] == ["--target", target]
        assert any(f"model_repository_{target}" in str(volume) for volume in server["volumes"])
        assert server["build"]["target"] == f"server-{target}"
    assert services["triton-gpu"]["build"]["args"]["REQUIREMENTS"] == "requirements-gpu.lock"
    assert services["triton-gpu"]["build"]["args"]["BASE"] == services["triton"]["build"]["args"]["BASE"]
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert name.startswith(("builder", "gateway-config")) or "cap_add" not in service, name
    assert services["triton"]["deploy"]["replicas"] == 2
    assert not services["triton"].get("ports")


@pytest.mark.parametrize("tool", [("docker", "compose"), ("docker-compose",)])
def test_one_replica_may_have_its_ports(project: Path, tool: tuple[str, ...]) -> None:
    """With the second file: those that `tritonkit serve` has, on loopback; the gateway's limits are of one."""
    if shutil.which(tool[0]) is None or run(*tool, "version").returncode != 0:
        pytest.skip(f"{' '.join(tool)} is not installed")
    files = ("-f", "docker-compose.yml", "-f", "docker-compose.direct.yml")
    done = run(*tool, *files, "config", cwd=project)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert services["triton"]["deploy"]["replicas"] == 1
    assert str(services["gateway-config"]["environment"]["TRITON_REPLICAS"]) == "1"
    ports = "".join(map(str, services["triton"]["ports"]))
    assert ports.count("127.0.0.1") == 3
    assert all(port in ports for port in ("8000", "8001", "8002"))


@pytest.mark.needs("promtool")
def test_prometheus_reads_its_configuration(project: Path) -> None:
    """Prometheus' own tool finds no fault."""
    tool = program("promtool")
    assert tool is not None
    done = run(tool, "check", "config", str(project / "deploy/prometheus/prometheus.yml"))
    assert done.returncode == 0, done.stderr


def test_every_image_has_a_pinned_default(project: Path) -> None:
    """No image without a tag, none called latest, and each can be changed by a variable."""
    text = (project / "docker-compose.yml").read_text()
    images = re.findall(r"^\s+(?:image|BASE|NVIDIA_BASE): (.+)$", text, re.MULTILINE)
    assert len(images) == 16
    for image in images:
        assert re.fullmatch(r"\$\{TRITONKIT_\w+:-[\w./-]+:[\w.-]*\d[\w.-]*\}", image), image
