"""A server with models on a fake GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from tests.fakecuda import FakeCuda
from tests.server.cuda_models import product
from tests.server.raw import Client, Running, start_triton
from tests.server.sharing import present
from tests.waiting import PATIENCE_S, eventually

KEPT = ("allocations", "allocated_bytes", "streams", "sessions")


@dataclass(frozen=True)
class Gpu:
    """A server with models on a fake GPU."""

    running: Running
    client: Client
    fake: FakeCuda

    @property
    def log(self) -> str:
        """The lines of Triton so far."""
        return self.running.log.read_text()

    def changes(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """The counters that have changed, and by how much."""
        after = self.fake.counters()
        return {name: after[name] - before[name] for name in after if after[name] != before[name]}

    def kept(self) -> Mapping[str, int]:
        """The counters of what is allocated."""
        counters = self.fake.counters()
        return {name: counters[name] for name in KEPT}

    def failure(self, model: str) -> str:
        """The reason why a model cannot be loaded."""
        with pytest.raises(InferenceServerException) as raised:
            self.client.load_model(model, client_timeout=PATIENCE_S)
        return str(raised.value)


@contextlib.contextmanager
def serving(native: Path, fake: FakeCuda, folder: Path, *flags: str, **models: Callable[[Path], None]) -> Iterator[Gpu]:
    """A server whose models are loaded by request; at its end nothing of the GPU is left."""
    for name, write in models.items():
        write(folder / "repository" / name)
    more = ["--model-control-mode=explicit", *flags]
    with (
        start_triton(folder / "repository", folder, native, more, fake) as running,
        grpc.InferenceServerClient(running.address) as client,
    ):
        yield Gpu(running, client, fake)
        assert fake.counters()["faults"] == 0
    assert fake.left_over() == {}


def write_product(more: str) -> Callable[[Path], None]:
    """A writer of products of these fields."""
    return lambda folder: product(folder, more)


@contextlib.contextmanager
def loaded(gpu: Gpu, *names: str) -> Iterator[None]:
    """Models for the time of a block."""
    for name in names:
        gpu.client.load_model(name, client_timeout=PATIENCE_S)
    try:
        yield
    finally:
        for name in reversed(names):
            gpu.client.unload_model(name)
        eventually(lambda: not set(names) & set(present(gpu.client)), "models that are unloaded")
