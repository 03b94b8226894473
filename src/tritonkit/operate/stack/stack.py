"""Replicas behind a gateway, watched over by one process: all of it starts, or nothing is left."""

from __future__ import annotations

import os
import signal
import threading
import time

from tritonkit.errors import ServerDied, ServerStartError, UsageError
from tritonkit.operate import certificates, keys
from tritonkit.operate.gateway import Places, read_gateway, write_gateway, write_routes
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.gateway.bootstrap import CLUSTERS
from tritonkit.operate.gateway.render import RENDERED
from tritonkit.operate.stack import companions
from tritonkit.operate.stack.replicas import RunningReplica, start_replicas, stop_replicas
from tritonkit.operate.stack.state import FOLDER, clear_state, read_state, write_state
from tritonkit.operate.stack.values import Part, StackSettings
from tritonkit.serve.install import find_server
from tritonkit.serve.ports import check_free, reachable

__all__ = ["Stack"]

TICK_S = 0.25
_STATE_S = 1.0
_GATEWAY_DRAIN_S = 10.0
_AUDIT_BYTES, _AUDITS = 64 << 20, 8
"""Of the audit log, before another one is begun, and how many are kept."""


class Stack:
    """A stack as a context manager; `parts` says what it is like, `watch` keeps it running."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings
        self._spec = read_gateway(settings.gateway)
        self._replicas: list[RunningReplica] = []
        self._companions: dict[str, companions.Companion] = {}
        self._absent: list[str] = []
        self._folder = settings.root / FOLDER
        self._admin = GatewayAdmin(self._folder / "gateway")
        self.address = ""
        """Of the gateway, `host:port`."""
        self.ending = threading.Event()

    def __enter__(self) -> Stack:
        self._check()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "gateway").mkdir(mode=0o700, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def parts(self) -> list[Part]:
        """All of it, as it is now."""
        absent = [
            Part(name, "absent", said="its program is not installed") for name in self._absent
        ]
        found = [each.part() for each in self._replicas]
        return [*found, *(each.part() for each in self._companions.values()), *absent]

    def watch(self) -> None:
        """Keep it running until `ending` is set.

        Raises:
            ServerDied: no replica is left.
        """
        said_at, known = 0.0, self._keys_changed()
        while not self.ending.wait(TICK_S):
            for each in self._companions.values():
                each.poll()
            if (changed := self._keys_changed()) != known:
                known = changed
                self._take_keys()
            if time.monotonic() > said_at + _STATE_S:
                said_at = time.monotonic()
                write_state(self._settings.root, os.getpid(), self.address, self.parts)
                if self._places.audit is not None:
                    self._admin.rotate(self._places.audit, _AUDIT_BYTES, _AUDITS)
            if all(each.lost for each in self._replicas):
                raise ServerDied(
                    "the stack", found="no replica runs any more", wanted="one at least"
                )

    def run_until_signal(self) -> None:
        """`watch` until SIGINT or SIGTERM. For the main thread."""
        signals = (signal.SIGINT, signal.SIGTERM)
        former = [signal.signal(one, lambda *_: self.ending.set()) for one in signals]
        try:
            self.watch()
        finally:
            for one, handler in zip(signals, former, strict=True):
                signal.signal(one, handler)

    def stop(self) -> None:
        """The gateway takes no more, answers what it has, then all ends."""
        self.ending.set()
        if "gateway" in self._companions:
            self._settings.emit("gateway", "stopping: answering the requests under way")
            self._admin.drain(min(_GATEWAY_DRAIN_S, self._settings.drain_s))
        while self._companions:
            self._companions.popitem()[1].stop()
        stop_replicas(self._replicas)
        self._replicas = []
        clear_state(self._settings.root)

    # -- the start

    def _check(self) -> None:
        """All that can be refused before anything runs."""
        settings, tls = self._settings, self._spec.tls
        if settings.replicas < 1:
            raise UsageError("--replicas", found=str(settings.replicas), wanted="1 or more")
        if (running := read_state(settings.root)) is not None:
            raise ServerStartError(
                f"the stack of {settings.root}", found=f"it runs already, watched by process {running['owner']}",
                todo="tritonkit down",
            )  # fmt: skip
        folder = settings.gateway
        certificates.check_pair(folder / tls.certificate, folder / tls.key)
        if tls.client_ca:
            certificates.read_certificate(folder / tls.client_ca)
        if not keys.read_keys(folder / keys.FILE) and self._spec.jwt is None:
            settings.emit("gateway", "nobody may call yet: tritonkit keys add NAME")
        self._port = check_free(self._spec.host, self._spec.port)

    def _start(self) -> None:
        settings = self._settings
        self._replicas = start_replicas(settings)
        envoy = find_server(settings.root).envoy
        ports = [check_free("127.0.0.1", 0) for _ in range(3)]
        metrics = f"127.0.0.1:{ports[0]}"
        self.address = reachable(self._spec.host, self._port)
        if envoy is None:
            companions.gateway(settings, None, self._folder, "")
        assert envoy is not None  # noqa: S101
        self._places = self._places_of(metrics)
        models = self._replicas[0].endpoint.models
        replicas = [each.replica for each in self._replicas]
        config = write_gateway(self._spec, self._places, models, replicas, envoy)
        self._add(companions.gateway(settings, envoy, config, self.address), "gateway")
        if settings.prometheus:
            targets = {
                "triton": [each.endpoint.metrics for each in self._replicas], "gateway": [metrics],
            }  # fmt: skip
            self._add(
                companions.prometheus(settings, self._folder / "prometheus", ports[1], targets),
                "prometheus",
            )
        if settings.redis:
            self._add(companions.redis(settings, self._folder / "redis", ports[2]), "redis")
        for each in self._companions.values():
            each.wait_ready()
        write_state(settings.root, os.getpid(), self.address, self.parts)

    def _add(self, companion: companions.Companion | None, name: str) -> None:
        if companion is None:
            self._absent.append(name)
            self._settings.emit(name, "not started: its program is not installed")
        else:
            self._companions[name] = companion

    def _places_of(self, metrics: str) -> Places:
        own = self._folder / "gateway"
        folder = self._settings.gateway.resolve()
        audit = own / "audit.jsonl" if self._spec.audit == "file" else None
        return Places(folder, folder / RENDERED, own / CLUSTERS, audit, self._port, metrics)

    # -- keys that change while it runs

    def _keys_changed(self) -> int:
        try:
            return (self._settings.gateway / keys.FILE).stat().st_mtime_ns
        except OSError:
            return 0

    def _take_keys(self) -> None:
        """A file of keys that cannot be read leaves those that are known."""
        try:
            write_routes(self._spec, self._places, self._replicas[0].endpoint.models)
        except UsageError as error:
            self._settings.emit("gateway", f"keys are left as they were: {error.found}")
        else:
            self._settings.emit("gateway", "keys were read again")
