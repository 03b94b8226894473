"""A running server that serves a model in a different way for each measurement.

Triton takes a configuration with a load, in place of the repository's, whose files stay as they are. What
was served before is served again at the end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from tritonkit.client import Client
from tritonkit.errors import (
    ClientError,
    InferenceError,
    ModelNotFound,
    ServerError,
    ServerUnavailable,
    Unsupported,
    UsageError,
)
from tritonkit.perf.load.openloop import Generator
from tritonkit.perf.simulation import Costs
from tritonkit.perf.tune.costs import costs_of
from tritonkit.perf.tune.override import Configs, configurations, in_order, unlike
from tritonkit.perf.tune.server import Gone
from tritonkit.perf.tune.space import Point
from tritonkit.repository.export import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.base import Target

__all__ = ["Remote"]

Handler: TypeAlias = Callable[[int, FrameType | None], Any] | signal.Handlers

_LOAD_S, _ASK_S = 120.0, 10.0
_BACK_S, _LOOK_S = 30.0, 0.5
"""Seconds within which a lost server must answer again, and between two attempts."""


class Remote:
    """A model of a running server, as a context manager: at its end the model is served as before.

    Args:
        root: the project.
        spec: the model's.
        artifact: the artifact of the variant that is served there.
        cores: the number of cores of the server's machine.
        first: the present way of serving there.
        address: its gRPC address.
        admin_key: the key that the server requires for loads, if any.
        allow_plaintext: send that key without TLS to another machine.
        target: the target of the build that it serves.

    Raises, when it is entered:
        UsageError: the address is invalid, a key would go in plain text, or the model is not served as the spec says.
        ServerUnavailable: no server answers there.
        ModelNotFound: the model, or a part of it, is not served there.
        InferenceError: the server refuses the key, or does not load models on request.
    """

    def __init__(
        self,
        root: Path,
        spec: Spec,
        artifact: Artifact,
        cores: int,
        first: Point,
        address: str,
        admin_key: str | None = None,
        *,
        allow_plaintext: bool = False,
        target: Target = "cpu",
    ) -> None:
        self._root, self._spec, self._artifact, self._cores = root, spec, artifact, cores
        self._target = target
        self._point = first
        self._address, self._key, self._plaintext = address, admin_key, allow_plaintext
        self._before: Configs = {}
        self._handled = contextlib.ExitStack()

    @property
    def address(self) -> str:
        """Its gRPC address."""
        return self._address

    def __enter__(self) -> Remote:
        configurations = self._configurations(self._point)
        with self._client() as client:
            _check_served(client, configurations)
            _check_control(client, self._spec.name)
            self._before = {name: client.config(name) for name in configurations}
        self._check_same(configurations)
        # All of them end the search as Ctrl-C does: a trial's configuration must not stay.
        self._handled.enter_context(_signals(signal.default_int_handler))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._handled, _signals(signal.SIG_IGN):
            try:
                self._restore()
            except ServerUnavailable:
                pass  # it reads its own repository when it is started again
            except ClientError as failed:
                raise ServerError(
                    f"model {self._spec.name} at {self._address}",
                    found=f"it is not served as before the search: {failed.in_a_line()}",
                    wanted="its configuration of before",
                    todo="restart the server: its repository is as it was",
                    details="" if error is None else str(error),
                ) from failed

    def serve(self, point: Point) -> None:
        """See `Served`.

        Raises:
            Gone: the server no longer answers, and did not come back.
        """
        self._point = point
        if not self._answers():
            self._await()
        configurations = self._configurations(point)
        with self._client() as client:
            self._load(client, configurations)
            if not client.is_ready(self._spec.name):
                raise InferenceError(
                    f"model {self._spec.name} at {self._address}",
                    found="it was loaded but is not ready",
                    wanted="a model that answers",
                    todo="see the reason with: tritonkit models",
                )

    def costs(self, generator: Generator, shapes: Sequence[int]) -> Costs:
        """See `costs_of`."""
        return costs_of(self._point, generator, self._spec.network_name, shapes)

    def used_s(self) -> None:
        """See `Served`; the processor time of another machine or user cannot be seen."""

    # -- loads

    def _configurations(self, point: Point) -> dict[str, Any]:
        return configurations(self._spec, self._artifact, self._root, self._cores, point, self._target)

    def _load(self, client: Client, configs: Configs) -> None:
        """Load these configurations; models that already have them stay."""
        served = _served(client, configs)
        for name in in_order(configs, served):
            if name not in served or unlike(configs[name], served[name]) is not None:
                client.load(name, config=configs[name], timeout_s=_LOAD_S)
        self._check(_served(client, configs), configs)

    def _check_same(self, configs: Configs) -> None:
        for name, config in configs.items():
            reason = unlike(config, self._before[name])
            if reason is not None:
                raise UsageError(
                    f"model {name} at {self._address}",
                    found=f"it is served with {reason}",
                    wanted=f"what {self._spec.file} says on a machine with {self._cores} cores",
                    todo="give the server's cores (--cores N), or build it for them and restart the server",
                )

    def _check(self, served: Configs, configs: Configs) -> None:
        for name, config in configs.items():
            reason = unlike(config, served[name]) if name in served else "no configuration"
            if reason is not None:
                raise InferenceError(
                    f"model {name} at {self._address}",
                    found=f"it was loaded with a configuration, and is served with {reason}",
                    wanted="a Triton that accepts a configuration with a load",
                )

    def _restore(self) -> None:
        with self._client() as client:
            # Older Tritons take the repository's configuration again, newer ones keep the last one.
            client.load(self._spec.name, timeout_s=_LOAD_S)
            served = _served(client, self._before)
            for name in in_order(self._before, served):
                if served.get(name) != self._before[name]:
                    client.load(name, config=self._before[name], timeout_s=_LOAD_S)
            self._check(_served(client, self._before), self._before)

    # -- a server that is lost

    def _answers(self) -> bool:
        try:
            with self._client() as client:
                return client.is_ready(self._spec.name)
        except ClientError:
            return False

    def _await(self) -> None:
        """Wait until the model answers again, with the repository's configuration if the server was restarted."""
        until = time.monotonic() + _BACK_S
        while time.monotonic() < until:
            with contextlib.suppress(ClientError), self._client() as client:
                client.load(self._spec.name, timeout_s=_LOAD_S)
                if client.is_ready(self._spec.name):
                    return
            time.sleep(_LOOK_S)
        raise Gone(f"{self._spec.name} at {self._address} no longer answers")

    def _client(self) -> Client:
        return Client(
            self._address,
            admin_key=self._key,
            allow_plaintext_credentials=self._plaintext,
            timeout_s=_ASK_S,
            retry=None,
            breaker=None,
        )


def _served(client: Client, configs: Configs) -> dict[str, Any]:
    """The configurations of those of these models that are served."""
    configurations = {}
    for name in configs:
        with contextlib.suppress(ModelNotFound):
            configurations[name] = client.config(name)
    return configurations


def _check_served(client: Client, configs: Configs) -> None:
    """Check that the server accepts the key and serves all models."""
    try:
        ready = {status.name for status in client.models() if status.ready}
    except Unsupported:
        raise
    except InferenceError as error:
        raise InferenceError(
            f"server at {client.address}",
            found=f"it refuses to list its models: {error.found}",
            wanted="the server's admin key",
            todo="name its file: --key-file FILE",
        ) from error
    for name in configs:
        if name not in ready:
            raise ModelNotFound(
                f"model {name} at {client.address}",
                found="the server does not serve it",
                wanted=f"one of {', '.join(sorted(ready)) or 'none'}",
                todo="serve this project's repository there: tritonkit serve",
            )


def _check_control(client: Client, name: str) -> None:
    """Check that it loads models on request; its model is loaded already, so nothing happens."""
    try:
        client.load(name, timeout_s=_LOAD_S)
    except InferenceError as error:
        raise InferenceError(
            f"server at {client.address}",
            found=f"it refuses to load {name}: {error.found}",
            wanted="a server that loads models on request, and its key",
            todo="tritonkit serve, or tritonserver --model-control-mode=explicit",
        ) from error


@contextlib.contextmanager
def _signals(handler: Handler) -> Iterator[None]:
    """Handle the signals that would end this process; ignored ones stay ignored (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, former_handler in former.items():
            signal.signal(number, former_handler)
