"""What a call gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["Origin", "Reply", "Timing"]

Origin = Literal["server"]
"""Where an answer was made."""


class Timing(NamedTuple):
    """Where the time of one call went, by this process's monotonic clock.

    `total_s` runs from entering `predict` to its return; `wait_s` is the part spent in the
    transport: the network and the server. The rest is checking, encoding and decoding here.
    """

    total_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The outputs of one call by name, and who made them.

    Arrays have the batch axis first (length 1 for one item) if the model batches, and are read-only
    views of the answer: copy one to write to it. BYTES outputs are object arrays of bytes.
    """

    outputs: Mapping[str, NDArray[Any]]
    model: str
    version: str
    timing: Timing
    origin: Origin = "server"

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One output; a `KeyError` names those there are."""
        try:
            return self.outputs[name]
        except KeyError:
            there = ", ".join(self.outputs)
            raise KeyError(f"model {self.model} gave no output {name!r}; it gave {there}") from None

    def __iter__(self) -> Iterator[str]:
        """The output names, in the server's order."""
        return iter(self.outputs)

    def __len__(self) -> int:
        """How many outputs there are."""
        return len(self.outputs)
