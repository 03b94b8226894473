"""What a call gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["Origin", "Reply", "Timing"]

Origin = Literal["server", "l1", "l2"]
"""Where an answer came from: a server, this process's cache, the shared one."""


@dataclass(slots=True)
class Timing:
    """Where the time of one call went, by this process's monotonic clock; parts not passed are 0.

    `total_s` runs from entering `predict` to its return. `queue_s` was spent waiting for the
    client's own in-flight limit, `joining_s` waiting for a batch to leave and for its other parts,
    `wait_s` on the wire: network, server queue and inference. The rest is checking, encoding,
    decoding, and the pauses before retries. Triton's answers do not say how they spent `wait_s`:
    `Client.statistics` has the sums over all requests, `tritonkit profile` splits them.
    """

    total_s: float
    wait_s: float = 0.0
    queue_s: float = 0.0
    joining_s: float = 0.0


@dataclass(slots=True, eq=False)  # not frozen: setting its fields would take far longer
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
    batch_size: int = 1
    """Items in the request that carried this call: more than its own if others joined it."""
    endpoint: str = ""
    """The server that answered; empty for a kept answer."""
    attempts: int = 1
    """Requests sent for this call: 0 for a kept answer, 2 and more after retries or hedging."""

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
