"""One Triton for a whole session of tests: each module adds the models that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.server.models import ModelText, write_repository
from tests.waiting import PATIENCE_S
from tritonkit.client import Client
from tritonkit.serve import Endpoint

__all__ = ["SharedServer"]


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
