"""A deployment of the suite's own in the cluster: rendered as a user renders it, changed as a user changes it."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cli.running import tritonkit
from tests.operate.deploy.cluster.images import MODELS, PROJECT, PROMETHEUS, SERVER, TOOLS, Delivery
from tests.operate.deploy.cluster.kubectl import Kubectl, Resource

__all__ = ["PATIENCE_S", "TRITON", "Calls", "Site", "eventually"]

PATIENCE_S = 900.0
"""Longer than anything takes that a test waits for, on nodes with two slow cores."""
TRITON = "app.kubernetes.io/name=triton"
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def eventually(true: Callable[[], Any], what: Callable[[], str] | str, patience_s: float = PATIENCE_S) -> Any:
    """Wait for something to become true, looking every second; gives what it was."""
    deadline = time.monotonic() + patience_s
    while not (result := true()):
        text = what if isinstance(what, str) else ""
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {text or what()}"  # type: ignore[operator]
        time.sleep(1)
    return result


@dataclass
class Calls:
    """Counts of a caller in the cluster; filled when it has ended."""

    address: str
    said: Resource = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Calls without a right answer."""
        return int(self.said["failed"]) + int(self.said["wrong"])

    @property
    def versions(self) -> list[str]:
        """Versions of digits that answered."""
        return list(self.said["versions"]["digits"])

    def require_none_failed(self, least: int = 1) -> None:
        """Every call has its answer, and there were at least `least` calls."""
        print(json.dumps(self.said))  # noqa: T201 (figures for runs with -s)
        assert self.failed == 0, self.said
        assert self.said["calls"] >= least, self.said


@dataclass(frozen=True)
class Site:
    """A namespace with a deployment, and the tree that it was made from."""

    kubectl: Kubectl
    folder: Path
    images: Delivery
    caller_node: str

    @property
    def namespace(self) -> str:
        """Its name, which no other has."""
        return self.kubectl.namespace

    def render(self, models: str = "one", **values: Any) -> None:
        """Write values.yaml and the tree."""
        chosen = {
            "namespace": self.namespace,
            "images": {"server": self.images.name(SERVER), "tools": self.images.name(TOOLS)},
            "models": {"image": self.images.name(MODELS[models])},
            "monitoring": {"image": self.images.name(PROMETHEUS)},
            "cpu": 1,
            **values,
        }
        self.folder.mkdir(exist_ok=True)
        (self.folder / "values.yaml").write_text(yaml.safe_dump(chosen))
        done = tritonkit("deploy", "--target", "kubernetes", "--out", str(self.folder))
        assert done.returncode == 0, done.stderr

    def apply(self, models: str = "one", overlay: str = "cpu", progress_s: int = 1800, **values: Any) -> None:
        """Render, and apply an overlay that asks for less than a node with two cores has to give.

        Args:
            models: the models' image, a name of MODELS. overlay: what it is upon.
            progress_s: after which a rollout counts as stuck. values: keys of values.yaml.
        """
        self.render(models, **values)
        own = self.folder / "overlays" / f"test-{overlay}"
        own.mkdir(exist_ok=True)
        (own / "kustomization.yaml").write_text(yaml.safe_dump(smaller(overlay, self.namespace, progress_s)))
        self.kubectl("apply", "--kustomize", str(own))

    def rolled_out(self) -> None:
        """Wait until all pods of the newest revision are ready and the old ones are gone."""
        done = self.kubectl.may_fail("rollout", "status", "deployment/triton", f"--timeout={PATIENCE_S:.0f}s")
        assert done.returncode == 0, f"{done.stderr}\n{self.diagnosis()}"
        eventually(lambda: all("deletionTimestamp" not in pod["metadata"] for pod in self.pods()), "the old pods' end")

    def pods(self, selector: str = TRITON) -> list[Resource]:
        """The pods, Triton's by default."""
        return self.kubectl.items("pods", "--selector", selector)

    def replicas(self) -> int:
        """Triton's ready pods."""
        return int(self.kubectl.get("deployment", "triton")["status"].get("readyReplicas", 0))

    def diagnosis(self) -> str:
        """Output of `tritonkit deploy diagnose`."""
        done = tritonkit("deploy", "diagnose", "--namespace", self.namespace)
        return done.stdout + done.stderr

    def causes(self) -> list[Resource]:
        """Causes from `tritonkit deploy diagnose --json`."""
        done = tritonkit("deploy", "diagnose", "--namespace", self.namespace, "--json")
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["causes"])

    def start_caller(self) -> None:
        """A pod from which calls are made, on a node that stays."""
        here = PROJECT / "tests" / "operate" / "deploy" / "cluster" / "caller.py"
        picture = PROJECT / "models" / "digits" / "examples" / "seven.png"
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "caller"},
                "data": {"caller.py": here.read_text()},
                "binaryData": {"picture.png": base64.b64encode(picture.read_bytes()).decode()},
            },
            idle_pod("caller", self.images.name(TOOLS), self.caller_node, config="caller"),
        )
        self.kubectl("wait", "--for=condition=Ready", "pod/caller", f"--timeout={PATIENCE_S:.0f}s")

    @contextmanager
    def calling(self, address: str, **options: Any) -> Iterator[Calls]:
        """Calls from within the cluster while the block runs: `rate` a second, 100 by default."""
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = self.kubectl.words("exec", "--stdin", "caller", "--", "python3", "/given/caller.py", address, *words)
        calls = Calls(address)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                begun = process.stdout.readline().strip()
                assert begun == "calling", begun + process.stderr.read()
                yield calls
            finally:
                if process.poll() is None:
                    process.stdin.write("\n")
                    process.stdin.flush()
                # Not closed yet: an older API server takes the end of standard input for the end of all.
                last = process.stdout.readline()
                error = process.stderr.read()
        assert process.returncode == 0, error
        calls.said.update(json.loads(last))

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A program in the caller's pod."""
        return self.kubectl.may_fail("exec", "caller", "--", *words)

    def reaches(self, pod: str, address: str, port: int) -> bool:
        """Whether a pod of this namespace gets a TCP connection."""
        code = f"import socket; socket.create_connection(({address!r}, {port}), 5).close()"
        return self.kubectl.may_fail("exec", pod, "--", "python3", "-c", code).returncode == 0


def smaller(overlay: str, label: str, progress_s: int) -> Resource:
    """An overlay of the user's own, as docs/kubernetes.md has it: smaller requests, patience, a label for drains."""
    pod = {
        "initContainers": [{"name": "models", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
        "containers": [
            {
                "name": "triton",
                "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}},
                "startupProbe": {"failureThreshold": 240},
            }
        ],
    }
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "triton"},
        "spec": {"progressDeadlineSeconds": progress_s, "template": {"spec": pod}},
    }
    patches = [{"target": {"kind": "Deployment", "name": "triton"}, "patch": yaml.safe_dump(patch)}]
    if overlay == "keda":
        # Debian's Prometheus finds no pods of Kubernetes: it finds them by the headless Service's name.
        job = {
            "job_name": "triton",
            "dns_sd_configs": [{"names": ["triton"], "type": "A", "port": 8002, "refresh_interval": "5s"}],
            "relabel_configs": [{"target_label": "namespace", "replacement": label}],
        }
        config = {"global": {"scrape_interval": "15s"}, "scrape_configs": [job]}
        put = [{"op": "replace", "path": "/data/prometheus.yml", "value": yaml.safe_dump(config)}]
        target = {"kind": "ConfigMap", "name": "prometheus"}
        patches.append({"target": target, "patch": yaml.safe_dump(put)})
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../{overlay}"],
        "labels": [{"pairs": {"tritonkit-test": label}, "includeTemplates": True}],
        "patches": patches,
    }


def idle_pod(name: str, image: str, node: str = "", config: str = "", command: str = "sleep 86400") -> Resource:
    """A pod that keeps the restricted Pod Security Standard and does nothing by itself."""
    volumes: list[Resource] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[Resource] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 (the pod's own)
    if config:
        volumes.append({"name": "given", "configMap": {"name": config}})
        mounts.append({"name": "given", "mountPath": "/given"})
    spec: Resource = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": name,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": command.split(),
                "securityContext": _RESTRICTED,
                "volumeMounts": mounts,
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            }
        ],
        "volumes": volumes,
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    labels = {"app": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
