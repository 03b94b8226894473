"""The files of a gateway whose Envoy runs elsewhere, as in a container: written, and written again as keys change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import TritonkitError
from tritonkit.operate import certificates, keys
from tritonkit.operate.gateway.bootstrap import CLUSTERS, Places
from tritonkit.operate.gateway.clusters import Split, Upstream
from tritonkit.operate.gateway.render import RENDERED, validate, write_gateway, write_routes
from tritonkit.operate.gateway.spec import GatewaySpec, read_gateway

__all__ = ["GatewayFiles", "GatewaySources", "served_models"]

_TICK_S, _AGAIN_S = 1.0, 5.0


@dataclass(frozen=True)
class GatewaySources:
    """Inputs from which the files of a gateway are made.

    Args:
        folder: the folder of `gateway.yaml`, keys and certificates; Envoy reads the certificates there itself.
        repository: the repository whose models are served.
        replicas: the addresses of the servers.
        listen: host and port to listen on; None: those of `gateway.yaml`.
        metrics: `host:port` of the metrics for Prometheus; empty: none.
        models: names of the models that are served; empty: those of `repository`.
        candidate: the server with the next version of all models; None: none.
        percent: the share of the requests that goes to the candidate.
    """

    folder: Path
    repository: Path
    replicas: Sequence[Upstream]
    listen: tuple[str, int] | None = None
    metrics: str = ""
    models: Sequence[str] = ()
    candidate: Upstream | None = None
    percent: float = 0.0


class GatewayFiles:
    """The files in a folder, where `envoy.json` is the one to start Envoy with. The audit log is its standard output.

    Args:
        out: the folder, which Envoy must see under the same path.
        envoy: the program that checks them.

    Raises:
        SpecError: gateway.yaml is not valid.
    """

    def __init__(self, sources: GatewaySources, out: Path, envoy: Path) -> None:
        self._sources, self._envoy = sources, envoy
        spec = read_gateway(sources.folder)
        host, port = sources.listen or (spec.host, spec.port)
        self._spec: GatewaySpec = spec.model_copy(update={"host": host, "port": port})
        self._places = Places(sources.folder, out / RENDERED, out / CLUSTERS, None, port, sources.metrics)
        self._seen = self._look()

    def write(self) -> Path:
        """Write all files, once Envoy has accepted them; returns `envoy.json`.

        Raises:
            UsageError: certificates or keys cannot be used, or the host is not an address.
            RenderError: Envoy does not accept the files.
        """
        tls, folder = self._spec.tls, self._sources.folder
        certificates.check_pair(folder / tls.certificate, folder / tls.key)
        if tls.client_ca:
            certificates.read_certificate(folder / tls.client_ca)
        self._seen = self._look()
        models, replicas = self._models(), self._sources.replicas
        split = self._split(models)
        return write_gateway(self._spec, self._places, models, replicas, self._envoy, split)

    def follow(self, ending: threading.Event, tell: Callable[[str], None]) -> None:
        """Write routes again when keys or models change, until `ending` is set. Unusable changes are ignored.

        Args:
            tell: called with a message for each change, and once for each that cannot be used.
        """
        last_problem = ""
        wait_s = _TICK_S
        while not ending.wait(wait_s):
            wait_s, now = _TICK_S, self._look()
            if now == self._seen:
                continue
            try:
                self._write_changed()
            except TritonkitError as error:
                wait_s, problem = _AGAIN_S, f"{error.where}: {error.found}"
                if problem != last_problem:
                    tell(f"the keys are left as they were: {problem}")
                last_problem = problem
                continue
            self._seen, last_problem = now, ""
            tell("keys and models were read again")

    def _write_changed(self) -> None:
        api_keys = keys.read_keys(self._sources.folder / keys.FILE)
        models, replicas = self._models(), self._sources.replicas
        split = self._split(models)
        validate(self._spec, self._places, api_keys, models, replicas, self._envoy, split)
        write_routes(self._spec, self._places, models, split)

    def _models(self) -> list[str]:
        return sorted(self._sources.models) or served_models(self._sources.repository)

    def _split(self, models: Sequence[str]) -> Split | None:
        candidate = self._sources.candidate
        if candidate is None:
            return None
        return Split(tuple(models), candidate, self._sources.percent)

    def _look(self) -> tuple[object, ...]:
        try:
            state = (self._sources.folder / keys.FILE).stat()
            of_keys: tuple[int, ...] = (state.st_ino, state.st_mtime_ns, state.st_size)
        except OSError:
            of_keys = ()
        return (of_keys, *self._models())


def served_models(repository: Path) -> list[str]:
    """Names of the models in a repository; empty if there is no repository yet."""
    return sorted(file.parent.name for file in repository.glob("*/config.pbtxt"))
