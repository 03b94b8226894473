"""Actions of a stack for a release: start a candidate, give it a part of the requests, load the next version in all
replicas."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tritonkit.errors import ServerError, ServerUnavailable, TritonkitError, UsageError
from tritonkit.operate.gateway import Split
from tritonkit.operate.stack.replicas import RunningReplica
from tritonkit.operate.stack.routing import Routing
from tritonkit.operate.stack.values import StackPart, StackSettings
from tritonkit.repository.publish import copy_models, replace_models
from tritonkit.repository.publish.existing import made_from

__all__ = ["Releasing"]

_LOAD_S, _BACK_S, _PAUSE_S = 300.0, 120.0, 0.25


class Releasing:
    """One session of `StackSession`.

    Args:
        released: the repository that the replicas serve.
        folder: a folder for temporary files.
    """

    def __init__(
        self,
        settings: StackSettings,
        routing: Routing,
        replicas: Sequence[RunningReplica],
        released: Path,
        folder: Path,
    ) -> None:
        self._settings, self._routing, self._replicas = settings, routing, replicas
        self._released, self._folder = released, folder
        self._candidate: RunningReplica | None = None
        self._models: tuple[str, ...] = ()
        self._ending = False

    def parts(self) -> list[StackPart]:
        """The candidate's state; empty without a candidate."""
        candidate = self._candidate
        return [] if candidate is None else [candidate.part()]

    def do(self, what: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Perform an action: `served`, `start`, `split`, `look`, `install` or `end`."""
        actions: dict[str, Callable[..., dict[str, Any]]] = {
            "served": self._served,
            "start": self._start,
            "split": self._split,
            "look": self._look,
            "install": self._install,
            "end": self._end,
        }
        if what not in actions:
            raise UsageError("the stack", found=f"unknown action {what!r}")
        if self._settings.public_key is not None and what not in ("end", "look"):
            raise UsageError(
                "the stack",
                found="it serves signed models alone (--public-key), and a release is not signed",
                wanted="a repository that is signed as a whole",
                todo="tritonkit build, tritonkit sign, then: tritonkit down, tritonkit up --public-key FILE",
            )
        if self._settings.models_folder is not None and what != "end":
            raise UsageError(
                "the stack",
                found="it serves a backup from memory, and a release would copy models to the disk",
                wanted="one that serves the project's repository",
                todo="back up the new version, then: tritonkit down, tritonkit up --from-backup URL",
            )
        return actions[what](**facts)

    def close(self) -> None:
        """Send all requests to the replicas again, and end the candidate."""
        self._end()

    def hurry(self) -> None:
        """End the candidate now, even while it starts, because the stack ends."""
        self._ending, candidate = True, self._candidate
        if candidate is not None:
            candidate.kill()

    def _served(self) -> dict[str, Any]:
        first = next((replica for replica in self._replicas if not replica.lost), self._replicas[0])
        return {
            "repository": str(self._released),
            "source": str(self._settings.repository.resolve()),
            "grpc": first.endpoint.grpc,
        }

    def _start(self, repository: str, model: str, models: Sequence[str]) -> dict[str, Any]:
        """Start a candidate on all cores that serves a repository's model and the models that it needs."""
        self._end()
        settings, self._models = self._settings, tuple(models)
        self._candidate = RunningReplica(
            settings,
            "candidate",
            sorted(os.sched_getaffinity(0)),
            repository=Path(repository),
            models=(model,),
            restarts=0,
        )
        try:
            self._candidate.wait_ready()
        except BaseException:
            self._end()
            raise
        endpoint = self._candidate.endpoint
        return {"grpc": endpoint.grpc, "http": endpoint.http, "pid": endpoint.pid}

    def _split(self, percent: float, shadow: str = "", shadow_percent: float = 0.0) -> dict[str, Any]:
        """Send a part of the requests to the candidate."""
        candidate = self._needed()
        split = Split(self._models, candidate.replica, percent, shadow, shadow_percent)
        self._routing.split(split)
        self._settings.emit("candidate", f"it gets {percent:g} % of the requests")
        return {}

    def _look(self) -> dict[str, Any]:
        part = self._needed().part()
        return {"state": part.state, "said": part.said}

    def _install(self, repository: str, model: str, models: Sequence[str]) -> dict[str, Any]:
        """Replace the models made from the same spec by those of a repository: first each replica loads them, then the
        project's repository gets them. Either all of it is done, or nothing."""
        before, own = self._folder / "before", self._settings.repository
        shutil.rmtree(before, ignore_errors=True)
        copy_models(self._released, before, made_from(self._released, model))
        try:
            replace_models(Path(repository), self._released, model, models)
            try:
                self._load(model)
                replace_models(Path(repository), own, model, models)
            except TritonkitError:
                self._go_back(before, model)
                raise
        finally:
            shutil.rmtree(before, ignore_errors=True)
        for replica in self._replicas:
            if not replica.lost:
                replica.serve_too(model)
        self._routing.learn(models)
        return {}

    def _go_back(self, before: Path, model: str) -> None:
        names = [path.name for path in before.iterdir()]
        replace_models(before, self._released, model, names)
        if not names:
            self._settings.emit("replicas", f"{model} stays loaded until they are started again")
            return
        self._settings.emit("replicas", "the version before is loaded again")
        for replica in self._replicas:
            # One that does not load it must not keep the others from it; it has it when it is started again.
            try:
                self._load_in(replica, model)
            except TritonkitError as error:
                self._settings.emit(replica.name, f"{model}: {error.found}")

    def _end(self) -> dict[str, Any]:
        try:
            self._routing.split(None)
        except TritonkitError as error:
            # What goes to a candidate that is gone, the replicas answer.
            self._settings.emit("gateway", f"{error.where}: {error.found}; it is tried again")
        finally:
            if self._candidate is not None:
                self._candidate.stop()
                self._candidate = None
        return {}

    def _needed(self) -> RunningReplica:
        if self._candidate is None:
            raise UsageError("the stack", found="there is no candidate", wanted="one")
        return self._candidate

    def _load(self, model: str) -> None:
        for replica in self._replicas:
            self._load_in(replica, model)

    def _load_in(self, replica: RunningReplica, model: str) -> None:
        if self._answers(replica):
            self._load_at(replica, model)
            self._settings.emit(replica.name, f"{model} was loaded again")

    def _answers(self, replica: RunningReplica) -> bool:
        """Whether the replica can load a model; waits for one that is being restarted, which then has it already."""
        deadline = time.monotonic() + _BACK_S
        while not (replica.ready or replica.lost or self._ending):
            if time.monotonic() > deadline:
                raise ServerError(
                    replica.name, found=f"it has not been ready for {_BACK_S:g} s", wanted="it to load a model"
                )
            time.sleep(_PAUSE_S)
        return replica.ready

    def _load_at(self, replica: RunningReplica, model: str) -> None:
        """Load a model and those that it needs. If this ends the server, the others must not load it."""
        from tritonkit.client import Client
        from tritonkit.client.reload import reload_models

        endpoint = replica.endpoint
        try:
            with Client(endpoint.grpc, admin_key=endpoint.admin_key, timeout_s=30.0) as client:
                reload_models(client, [model], timeout_s=_LOAD_S)
        except ServerUnavailable as error:
            raise ServerError(
                replica.name,
                found=f"it ended while it loaded {model}: {error.found}",
                wanted="it to load it",
                todo=f"its log is {endpoint.log}",
            ) from error
