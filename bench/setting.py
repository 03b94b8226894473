"""The settings of every measurement, and the server it measures."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Setting", "chosen", "served"]


@dataclass(frozen=True)
class Setting:
    """The place and duration of measurements.

    Args:
        repository: the model repository, in which the engine alone also finds its ONNX files.
        address: the gRPC address of a running server; None starts one.
        rounds: repeats of each measurement, in turns with the others.
        seconds: duration of one load.
        engine_python: the Python that runs the engine without Triton.
        peers, models: the servers (of `peers`) and models (of `peers` and `serving`) to measure; empty: all.
        minutes, kills, seed, svg: of `chaos`: its duration, faults in a minute, the seed that draws them, and the file
            of the picture.
    """

    repository: Path
    address: str | None
    rounds: int
    seconds: float
    engine_python: Path
    peers: Sequence[str] = ()
    models: Sequence[str] = ()
    minutes: float = 5.0
    kills: float = 6.0
    seed: int = 1
    svg: Path | None = None

    def refuse_address(self) -> None:
        """Refuse --address for a measurement that starts servers of its own."""
        if self.address is not None:
            raise UsageError("--address", found=self.address, wanted="none: this measurement starts its own servers")


def chosen(option: str, names: Sequence[str], choices: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """The names in an option, or all.

    Raises:
        UsageError: one of them is unknown.
    """
    unknown = [name for name in names if name not in choices]
    if unknown:
        raise UsageError(option, found=", ".join(unknown), wanted=f"some of {', '.join(choices)}")
    return list(names or choices)


@contextmanager
def served(setting: Setting, models: Sequence[str]) -> Iterator[str]:
    """The gRPC address of a server with these models, started for the block unless one was given."""
    if setting.address is not None:
        yield setting.address
        return
    from tritonkit.serve import serve

    with serve(setting.repository, models=models) as endpoint:
        yield endpoint.grpc
