"""Tritons for a whole session of tests: each module adds the models that it needs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.fakecuda import FakeCuda
from tests.server.models import ModelText, write_repository
from tests.server.raw import Running, start_triton
from tests.waiting import PATIENCE_S, eventually
from tritonkit.client import Client
from tritonkit.serve import Endpoint

__all__ = ["SharedBackends", "SharedServer", "present", "start_backends"]


class SharedServer:
    """A running Triton whose repository grows.

    Models stay loaded until the session ends, so a name stands for one model in all modules.
    """

    def __init__(self, endpoint: Endpoint, repository: Path) -> None:
        self.endpoint = endpoint
        self._repository = repository
        self._models: dict[str, ModelText] = {}

    def serving(self, models: Mapping[str, ModelText]) -> Endpoint:
        """Load the models that are not loaded yet; gives the server's addresses."""
        other = [name for name, model in models.items() if self._models.get(name, model) != model]
        assert not other, f"another module has models of these names: {other}"
        new = {name: model for name, model in models.items() if name not in self._models}
        write_repository(self._repository, new)
        self._models.update(new)
        with (
            Client(self.endpoint.grpc, admin_key=self.endpoint.admin_key, timeout_s=PATIENCE_S) as client,
            ThreadPoolExecutor(4) as pool,
        ):
            # Ensembles, which have no code, come after their parts.
            for ensembles in (False, True):
                names = [name for name, model in new.items() if model.is_ensemble == ensembles]
                list(pool.map(client.load, names))
        return self.endpoint


class SharedBackends:
    """A running tritonserver with our backends, which has the models of one module at a time."""

    def __init__(self, running: Running) -> None:
        self._running = running

    @contextlib.contextmanager
    def serving(self, *writers: Callable[[Path], None]) -> Iterator[Running]:
        """Write models and load them, those that can be loaded; at the end none is left."""
        self._running.require_alive()
        repository = self._running.repository
        for write in writers:
            write(repository)
        names = [folder.name for folder in repository.iterdir()]
        with InferenceServerClient(self._running.address) as client, ThreadPoolExecutor(4) as pool:

            def change(name: str, to: Callable[[str], object]) -> None:
                with contextlib.suppress(InferenceServerException):
                    to(name)

            # Ensembles bring their parts along, which are not loaded again.
            ensembles = [name for name in names if "ensemble" in (repository / name / "config.pbtxt").read_text()]
            for some in (set(names) - set(ensembles), ensembles):
                list(pool.map(lambda name: change(name, client.load_model), some))
            self._running.require_alive()
            try:
                yield self._running
                self._running.require_alive()
            finally:
                list(pool.map(lambda name: change(name, client.unload_model), names))
                try:
                    eventually(lambda: not present(client), "models that are unloaded")
                finally:
                    for name in names:
                        shutil.rmtree(repository / name)


def present(client: InferenceServerClient) -> list[str]:
    """The models that are loaded, or on the way in or out."""
    entries = client.get_model_repository_index().models
    return [entry.name for entry in entries if entry.state not in ("", "UNAVAILABLE")]


@contextlib.contextmanager
def start_backends(folder: Path, native: Path | None, cuda: FakeCuda | None = None) -> Iterator[SharedBackends]:
    """A tritonserver without models, with our native backends where their folder is given, else the stand-ins."""
    repository = folder / "repository"
    repository.mkdir()
    with start_triton(repository, folder, native, ["--model-control-mode=explicit"], cuda) as running:
        yield SharedBackends(running)
