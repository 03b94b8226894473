"""Files for Envoy from a gateway's spec, keys and replicas, each checked by Envoy itself."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tritonkit.disk import unwritable
from tritonkit.errors import RenderError, UsageError
from tritonkit.operate import keys as key_files
from tritonkit.operate.gateway.bootstrap import CLUSTERS, ROUTES, SECRETS, Places, bootstrap, secrets
from tritonkit.operate.gateway.clusters import Split, Upstream, clusters
from tritonkit.operate.gateway.logs import STRANGERS_RATE, strangers_rate
from tritonkit.operate.gateway.routes import routes
from tritonkit.operate.gateway.spec import GatewaySpec
from tritonkit.operate.keys import ApiKey
from tritonkit.serve.core.keys import write_private
from tritonkit.serve.core.rest import envoy_command, envoy_threads

__all__ = [
    "BOOTSTRAP",
    "FOLDER",
    "RENDERED",
    "gateway_command",
    "validate",
    "write_clusters",
    "write_gateway",
    "write_routes",
]

FOLDER = Path("deploy") / "gateway"
"""A project's folder with `gateway.yaml`, `keys.json` and `tls/`."""
RENDERED = "rendered"
BOOTSTRAP = "envoy.json"
_VALIDATE_S = 60.0


def write_gateway(
    spec: GatewaySpec,
    places: Places,
    models: Sequence[str],
    replicas: Sequence[Upstream],
    envoy: Path,
    split: Split | None = None,
) -> Path:
    """Write all files that a gateway reads, once Envoy has accepted them; returns the bootstrap's file.

    Raises:
        UsageError: the keys cannot be read, the host is not an address, or a folder cannot be written.
        RenderError: Envoy does not accept the files.
    """
    keys = key_files.read_keys(places.folder / key_files.FILE)
    validate(spec, places, keys, models, replicas, envoy, split)
    try:
        places.rendered.mkdir(mode=0o700, parents=True, exist_ok=True)
        places.clusters.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(places.rendered, error, UsageError) from error
    _write(places.rendered / SECRETS, secrets(spec, places))
    _write(places.rendered / STRANGERS_RATE, strangers_rate())
    write_routes(spec, places, models, split)
    write_clusters(spec, places, replicas, split)
    file = places.clusters.parent / BOOTSTRAP
    _write(file, _bootstrap(spec, places))
    return file


def write_routes(spec: GatewaySpec, places: Places, models: Sequence[str], split: Split | None = None) -> None:
    """Write only the keys' rights and the routes; a running gateway picks them up immediately."""
    keys = key_files.read_keys(places.folder / key_files.FILE)
    _write(places.rendered / ROUTES, {"resources": [routes(keys, models, spec, split)]})


def write_clusters(spec: GatewaySpec, places: Places, replicas: Sequence[Upstream], split: Split | None = None) -> None:
    """Write only the replicas, and the candidate of a split."""
    _write(places.clusters, {"resources": clusters(replicas, spec.limits, split)})


def gateway_command(envoy: Path, config: str) -> list[str]:
    """The command line of a gateway; lines of the audit log are on the disk within half a second.

    It has a thread for every two cores: a call costs less if one thread handles several concurrently, and the replicas
    need the other cores. A single thread would wait for a core that a replica holds, so two cores get two threads.
    """
    threads = max(envoy_threads(cores_each=2), min(2, envoy_threads()))
    return [*envoy_command(envoy, config, threads), "--file-flush-interval-msec", "500"]


def validate(
    spec: GatewaySpec,
    places: Places,
    keys: Sequence[ApiKey],
    models: Sequence[str],
    replicas: Sequence[Upstream],
    envoy: Path,
    split: Split | None = None,
) -> None:
    """Let Envoy check everything, including the content that it would read from files later.

    Raises:
        UsageError: the spec's host is not an address.
        RenderError: Envoy does not accept the files; the error contains its message.
    """
    with tempfile.TemporaryDirectory(prefix="tritonkit-gateway-") as name:
        folder = Path(name)
        own = replace(
            places,
            rendered=folder,
            clusters=folder / CLUSTERS,
            audit=None if places.audit is None else folder / "audit.jsonl",
        )
        whole = _bootstrap(spec, own)
        # Envoy reads no watched files in this mode, so their content stands in the bootstrap.
        listener = whole["static_resources"]["listeners"][0]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        del manager["rds"], whole["dynamic_resources"]
        manager["route_config"] = _without_type(routes(keys, models, spec, split))
        made = [_without_type(cluster) for cluster in clusters(replicas, spec.limits, split)]
        whole["static_resources"].setdefault("clusters", []).extend(made)
        _write(folder / SECRETS, secrets(spec, own))
        _write(folder / STRANGERS_RATE, strangers_rate())
        _write(folder / BOOTSTRAP, whole)
        done = _run_validate(envoy, folder)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        first = (output.splitlines() or ["it said nothing"])[0]
        raise RenderError(
            f"the gateway's configuration from {places.folder}",
            found=f"Envoy does not take it: {first}",
            wanted="a gateway.yaml whose values Envoy takes",
            todo="the lines below are Envoy's",
            details=output[-3000:],
        )


def _run_validate(envoy: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(envoy), "--mode", "validate", "--config-path", str(folder / BOOTSTRAP), "--log-level", "warning"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_VALIDATE_S, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        raise RenderError(
            f"{envoy} --mode validate",
            found=f"no answer in {_VALIDATE_S:g} s",
            wanted="one",
            todo="try again when the machine is less busy; names that are looked up may hang, too",
        ) from None


def _bootstrap(spec: GatewaySpec, places: Places) -> dict[str, Any]:
    try:
        return bootstrap(spec, places)
    except ValueError as error:
        raise UsageError(
            f"{places.folder} host",
            found=str(error),
            wanted="an address of this machine",
            todo="127.0.0.1 for this machine alone, 0.0.0.0 for all that reach it",
        ) from error


def _without_type(resource: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resource.items() if name != "@type"}


def _write(file: Path, content: dict[str, Any]) -> None:
    """Replace a file in one step: Envoy reads a file when it is moved."""
    try:
        # Who can write it can give themselves keys.
        write_private(file, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise unwritable(file, error, UsageError) from error
