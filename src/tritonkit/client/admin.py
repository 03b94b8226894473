"""Calls other than inference (metadata, readiness, repository, statistics): generators of steps for both clients."""

from __future__ import annotations

import os
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tritonkit.client.status import ModelStatistics, ModelStatus, ServerInfo, info_from, statistics_from, statuses_from
from tritonkit.client.wire.messages import message, parse, schema
from tritonkit.client.wire.transport import Method, checked_timeout
from tritonkit.errors import (
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
    Unsupported,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.client.policy import Policy
    from tritonkit.client.policy.replica import Replica
    from tritonkit.client.steps import Steps

__all__ = ["AdminCalls", "unconfigured"]


class AdminCalls:
    """Calls the servers of a policy; each call may take `timeout_s`."""

    def __init__(self, policy: Policy, timeout_s: float) -> None:
        self.policy = policy
        self.timeout_s = timeout_s
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that made the client: its locks may never be released."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raise a UsageError in a fork; called before any lock is taken."""
        if os.getpid() != self._pid:
            raise UsageError(
                f"client of {self.address}",
                found=f"it was made in process {self._pid} and is used in a fork of it, {os.getpid()}",
                wanted="a client made in this process",
                todo='make one after the fork, or start workers with the "spawn" method',
            )

    @property
    def address(self) -> str:
        """The address that is called; several are joined by commas."""
        return ",".join(self.policy.addresses)

    def is_ready(self, name: str, version: str | int | None) -> Steps[bool]:
        """Whether a server, or one model on it, takes requests."""
        try:
            answer = yield from self._ask("ModelReady" if name else "ServerReady", name, version)
        except (ServerUnavailable, DeadlineExceeded, Overloaded, ModelNotFound):
            return False
        return bool(answer.ready)

    def models(self) -> Steps[tuple[ModelStatus, ...]]:
        """The repository of one server."""
        return statuses_from((yield from self._ask("RepositoryIndex")))

    def server_metadata(self) -> Steps[ServerInfo]:
        """One server's name, version and extensions."""
        return info_from((yield from self._ask("ServerMetadata")))

    def config(self, name: str, version: str | int | None) -> Steps[Any]:
        """A `ModelConfig` message."""
        return (yield from self._ask("ModelConfig", name, version)).config

    def load(self, name: str, config: Any, timeout_s: float | None) -> Steps[None]:
        """Load a model on every server, one after the other."""
        self.check_process()
        where = f"model {name}"
        seconds = checked_timeout(timeout_s or self.timeout_s, where)
        fields = {"model_name": name} | _override(config)
        for replica in (yield from self.policy.resolved(time.monotonic() + seconds)):
            deadline = time.monotonic() + seconds
            yield from self._sent("RepositoryModelLoad", where, deadline, replica, **fields)

    def statistics(self, name: str, version: str | int | None) -> Steps[tuple[ModelStatistics, ...]]:
        """Counters of every server, added up."""
        self.check_process()
        replicas = yield from self.policy.resolved(time.monotonic() + self.timeout_s)
        if len(replicas) < 2:
            return (yield from self._statistics_of(name, version, None))
        rows: list[ModelStatistics] = []
        for replica in replicas:
            rows += yield from self._statistics_of(name, version, replica)
        return _added(rows)

    def _statistics_of(
        self, name: str, version: str | int | None, replica: Replica | None
    ) -> Steps[tuple[ModelStatistics, ...]]:
        try:
            answer = yield from self._ask("ModelStatistics", name, version, replica)
        except (Overloaded, ModelNotFound, Unsupported):
            raise
        except InferenceError as error:
            # Here, unlike elsewhere, Triton calls an unknown model an invalid argument.
            if (yield from self.is_ready(name, version)):
                raise
            raise ModelNotFound(error.where, found=error.found, todo=error.todo) from error
        return statistics_from(answer)

    def _ask(
        self,
        method: Method,
        name: str = "",
        version: str | int | None = None,
        replica: Replica | None = None,
        deadline: float | None = None,
    ) -> Steps[Any]:
        """Ask about a model, or about the server if no name is given; the answer's message."""
        named = {"name": name, "version": "" if version is None else str(version)} if name else {}
        if deadline is None:
            deadline = time.monotonic() + self.timeout_s
        where = f"model {name}" if name else "server"
        return parse(method, (yield from self._sent(method, where, deadline, replica, **named)))

    def _sent(
        self, method: Method, where: str, deadline: float, replica: Replica | None, **fields: Any
    ) -> Steps[memoryview]:
        self.check_process()
        sent = yield from self.policy.call(
            method,
            [message(method, **fields)],
            deadline,
            where=where,
            # The server may have begun to load the model before the connection was lost.
            idempotent=method != "RepositoryModelLoad",
            replica=replica,
        )
        return sent.body


def _override(config: Any) -> dict[str, Any]:
    """The field of a load request that holds a configuration: a `ModelConfig` message or its JSON text."""
    if config is None:
        return {}
    if not isinstance(config, str):
        from google.protobuf import json_format

        config = json_format.MessageToJson(config, preserving_proto_field_name=True, indent=None)
    return {"parameters": {"config": schema().ModelRepositoryParameter(string_param=config)}}


def unconfigured(where: str, what: str, todo: str) -> Unsupported:
    """The error of a feature that needs a model's configuration, at a server that does not report it."""
    return Unsupported(
        where,
        found=f"{what}, and a server that does not report how its models are configured",
        wanted="a server with Triton's extension of the protocol `ModelConfig`",
        todo=todo,
    )


def _added(rows: Iterable[ModelStatistics]) -> tuple[ModelStatistics, ...]:
    """One value for each version: the sums over servers."""
    sums: dict[tuple[str, str], ModelStatistics] = {}
    counters = [field.name for field in fields(ModelStatistics)][2:]
    for row in rows:
        so_far = sums.get((row.name, row.version))
        if so_far is not None:
            added = {name: getattr(so_far, name) + getattr(row, name) for name in counters}
            row = replace(row, **added)
        sums[row.name, row.version] = row
    return tuple(sums[key] for key in sorted(sums, key=lambda key: (key[0], len(key[1]), key[1])))
