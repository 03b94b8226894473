"""Replicas behind a gateway, watched over by one process: all of it starts, or nothing is left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import threading
import time

from tritonkit.errors import ServerDied, ServerStartError, UsageError
from tritonkit.operate import certificates, keys
from tritonkit.operate.gateway import Places, read_gateway, write_gateway
from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.gateway.bootstrap import CLUSTERS
from tritonkit.operate.gateway.render import RENDERED
from tritonkit.operate.gateway.spec import FILE as GATEWAY_FILE
from tritonkit.operate.stack import companions
from tritonkit.operate.stack.audit_logs import AuditLogs
from tritonkit.operate.stack.control import Control
from tritonkit.operate.stack.releasing import Releasing
from tritonkit.operate.stack.replicas import RunningReplica, start_replicas, stop_replicas
from tritonkit.operate.stack.routing import Routing
from tritonkit.operate.stack.shared_limits import SharedLimitsWatch
from tritonkit.operate.stack.state import FOLDER, StateFile, clear_state, read_state, write_state
from tritonkit.operate.stack.values import StackPart, StackSettings
from tritonkit.operate.store.keys import read_public_key
from tritonkit.operate.store.whole import require_whole
from tritonkit.repository.publish import copy_models
from tritonkit.serve.install import find_server
from tritonkit.serve.ports import check_free, reachable

__all__ = ["Stack"]

_TICK_S, _STATE_S = 0.25, 1.0
_RELEASED = "model_repository"
"""The folder that the replicas serve: a copy of the repository at the start, plus later releases."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stack:
    """A stack as a context manager; `parts` is its state, `watch` keeps it running."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings
        self._spec = read_gateway(settings.gateway)
        self._replicas: list[RunningReplica] = []
        self._companions: dict[str, companions.Companion] = {}
        self._absent: dict[str, str] = {}
        self._folder = settings.root / FOLDER
        self._released = (settings.models_folder or self._folder) / _RELEASED
        self._admin = GatewayAdmin(self._folder / "gateway")
        self._lock: int | None = None
        self._control: Control | None = None
        self._releasing: Releasing | None = None
        self._limits = SharedLimitsWatch(self._admin.undecided)
        self._state = StateFile(settings.root)
        self.address = ""
        """Address of the gateway, `host:port`."""
        self.ending = threading.Event()

    def __enter__(self) -> Stack:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "gateway").mkdir(mode=0o700, exist_ok=True)
        self._lock = self._locked()
        try:
            self._check()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def parts(self) -> list[StackPart]:
        """The current state of all parts."""
        absent = [StackPart(name, "absent", said=why) for name, why in self._absent.items()]
        parts = [replica.part() for replica in self._replicas]
        parts += self._releasing.parts() if self._releasing else []
        return [*parts, *(companion.part() for companion in self._companions.values()), *absent]

    def watch(self) -> None:
        """Keep it running until `ending` is set.

        Raises:
            ServerDied: no replica is left, or the gateway is gone.
        """
        said_at = 0.0
        while not self.ending.wait(_TICK_S):
            for companion in self._companions.values():
                companion.poll()
            self._routing.poll()
            if time.monotonic() > said_at + _STATE_S:
                said_at = time.monotonic()
                self._say()
            self._want_alive()

    def run_until_signal(self) -> None:
        """`watch` until SIGINT, SIGTERM or SIGHUP. For the main thread."""
        former = [signal.signal(one, lambda *_: self.ending.set()) for one in _SIGNALS]
        try:
            self.watch()
        finally:
            for one, handler in zip(_SIGNALS, former, strict=True):
                signal.signal(one, handler)

    def stop(self) -> None:
        """Let the gateway take no more requests and answer those it has, then end everything."""
        self.ending.set()
        if self._control is not None:
            self._control.close()
            self._control = None
        if "gateway" in self._companions:
            self._settings.emit("gateway", "stopping: answering the requests under way")
            self._admin.drain(self._settings.drain_s)
        while self._companions:
            self._companions.popitem()[1].stop()
        stop_replicas(self._replicas)
        self._replicas = []
        shutil.rmtree(self._released, ignore_errors=True)
        if self._lock is not None:
            clear_state(self._settings.root)
            os.close(self._lock)
            self._lock = None

    def _want_alive(self) -> None:
        if all(replica.lost for replica in self._replicas):
            raise ServerDied(
                "the stack",
                found="no replica runs any more",
                wanted="one at least",
                todo="tritonkit serve shows why one ends; the logs are .tritonkit/run/*/server.log",
            )
        gateway = self._companions["gateway"]
        if gateway.lost:
            raise ServerDied("the gateway", found="it ended again and again", todo=f"its log is {gateway.log}")

    def _say(self) -> None:
        """Write the state, and rotate audit logs; a full disk does not end serving."""
        if message := self._state.write(self.address, self.parts):
            self._settings.emit("stack", message)
        if self._spec.limits.shared and (message := self._limits.look()):
            self._settings.emit("gateway", message)
        if message := self._audits.look():
            self._settings.emit("gateway", message)

    # -- the start

    def _locked(self) -> int:
        """Take a lock for the stack's lifetime, because two stacks of one project would share files."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            running = read_state(self._settings.root)
            who = f", watched by process {running['owner']}" if running else ""
            raise ServerStartError(
                f"the stack of {self._settings.root}", found=f"it runs already{who}", todo="tritonkit down"
            ) from None
        return descriptor

    def _check(self) -> None:
        """Check everything that can be refused before anything runs."""
        settings, tls = self._settings, self._spec.tls
        if not settings.repository.is_dir():
            raise UsageError(str(settings.repository), found="there is no such folder", todo="tritonkit build")
        if settings.replicas < 1:
            raise UsageError("--replicas", found=str(settings.replicas), wanted="1 or more")
        self._require_whole()
        folder = settings.gateway
        certificates.check_pair(folder / tls.certificate, folder / tls.key)
        if tls.client_ca:
            certificates.read_certificate(folder / tls.client_ca)
        companions.check_limiter(self._spec.limits.shared, folder)
        if not keys.read_keys(folder / keys.FILE) and self._spec.jwt is None:
            settings.emit("gateway", "nobody may call yet: tritonkit keys add NAME")
        try:
            self._port = check_free(self._spec.host, self._spec.port)
        except ServerStartError as error:
            raise ServerStartError(
                error.where,
                found=error.found,
                wanted="the gateway's port",
                todo=f"stop what uses it, or set another `port` in {folder / GATEWAY_FILE} (0 takes any free one)",
            ) from None

    def _require_whole(self) -> None:
        """Refuse a repository that is damaged, or not as it was signed."""
        settings = self._settings
        if settings.public_key is not None:
            key = read_public_key(settings.public_key)
            require_whole(settings.repository, settings.models or (), public_key=key)
        elif settings.verify:
            require_whole(settings.repository, settings.models or ())

    def _start(self) -> None:
        settings = self._settings
        envoy = find_server(settings.root).envoy
        if envoy is None:
            raise companions.no_envoy()
        # Builds write into the repository: what runs, and is started again, is what was there at the start, or was
        # released since.
        released = self._released
        shutil.rmtree(released, ignore_errors=True)
        copy_models(settings.repository, released)
        self._replicas = start_replicas(settings, released)
        with contextlib.ExitStack() as bound:  # all together, so that none is chosen twice
            ports = [check_free("127.0.0.1", 0, bound) for _ in range(2)]
        self.address = reachable(self._spec.host, self._port)
        metrics = f"127.0.0.1:{ports[0]}"
        self._places = self._places_of(metrics)
        self._audits = AuditLogs(self._admin, self._places.audit)
        models = self._replicas[0].endpoint.models
        replicas = [replica.replica for replica in self._replicas]
        config = write_gateway(self._spec, self._places, models, replicas, envoy)
        shared = self._spec.limits.shared
        if shared and shared.service is None:
            self._add(companions.limiter(settings, self._folder / "gateway"), "limiter")
        self._add(companions.gateway(settings, envoy, config, self.address), "gateway")
        if settings.prometheus:
            targets = {"triton": [replica.endpoint.metrics for replica in self._replicas], "gateway": [metrics]}
            folder = self._folder / "prometheus"
            self._add(companions.prometheus(settings, folder, ports[1], targets), "prometheus")
        if settings.redis:
            self._add(companions.redis(settings, self._folder / "redis"), "redis")
        for companion in self._companions.values():
            companion.wait_ready()
        self._routing = Routing(settings, self._spec, self._places, self._admin, models, replicas)
        self._control = Control(self._folder / "gateway", self._release)
        write_state(settings.root, os.getpid(), self.address, self.parts)

    def _release(self) -> Releasing:
        self._releasing = Releasing(self._settings, self._routing, self._replicas, self._released, self._folder)
        return self._releasing

    def _add(self, companion: companions.Companion | str, name: str) -> None:
        """Take a companion, or the reason why it is not started."""
        if isinstance(companion, str):
            self._absent[name] = companion
            self._settings.emit(name, f"not started: {companion}")
        else:
            self._companions[name] = companion

    def _places_of(self, metrics: str) -> Places:
        own = self._folder / "gateway"
        folder = self._settings.gateway.resolve()
        audit = (own / "audit.jsonl").resolve() if self._spec.audit == "file" else None
        clusters = (own / CLUSTERS).resolve()
        return Places(folder, folder / RENDERED, clusters, audit, self._port, metrics, releases=True)
