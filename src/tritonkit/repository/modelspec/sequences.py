"""`serving.sequence_batching`: requests that belong together, and what Triton keeps between them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tritonkit.datatypes import DataType
from tritonkit.repository.modelspec.base import InnerPath, Strict
from tritonkit.repository.modelspec.units import Microseconds, PositiveInt, QueueDelay

__all__ = ["MOST_SEQUENCES", "ControlInput", "Direct", "Oldest", "SequenceBatching", "State"]

_FLAG_DTYPES = ("FP32", "INT32", "BOOL")
_CORRID_DTYPES = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")


class ControlInput(Strict):
    """A tensor in which Triton gives a model the state of the sequence that a request belongs to."""

    kind: Literal["start", "end", "ready", "corrid"]
    dtype: DataType = "FP32"
    false_true: tuple[float, float] = (0, 1)
    """The values for no and yes; not used by `corrid`."""

    @model_validator(mode="after")
    def _dtype_fits(self) -> Self:
        """Triton has flags of three dtypes and correlation ids of five (model_config.proto)."""
        dtypes = _CORRID_DTYPES if self.kind == "corrid" else _FLAG_DTYPES
        if self.dtype not in dtypes:
            raise ValueError(f"{self.kind} is {self.dtype}; wanted one of {', '.join(dtypes)}")
        fraction = any(value != int(value) for value in self.false_true)
        if self.dtype == "BOOL" and not set(self.false_true) <= {0, 1}:
            raise ValueError(f"false_true is {self.false_true} for BOOL; wanted 0 and 1")
        if self.dtype == "INT32" and fraction:
            raise ValueError(f"false_true is {self.false_true} for INT32; wanted whole numbers")
        return self


class State(Strict):
    """A tensor that Triton keeps between the requests of a sequence."""

    input: str
    output: str
    dtype: DataType
    shape: tuple[int, ...]
    initial: Literal["zero"] | InnerPath | None = None
    """First value: zeros (the default), or a file in `initial_state/`. Triton has none for a state with a free axis, so
    the model must handle start."""
    use_same_buffer_for_input_output: bool = False
    use_growable_memory: bool = False

    @model_validator(mode="after")
    def _first_value_has_a_size(self) -> Self:
        if self.initial is not None and -1 in self.shape:
            raise ValueError(f"initial is given for the shape {list(self.shape)}; wanted a size for every axis")
        return self


class Direct(Strict):
    """Each sequence keeps one batch slot of one instance."""

    max_queue_delay: QueueDelay = 0
    minimum_slot_utilization: Annotated[float, Field(ge=0, le=1)] = 0.0


class Oldest(Strict):
    """Dynamic batches are formed from the oldest requests of different sequences."""

    max_candidate_sequences: PositiveInt
    preferred_batch_size: tuple[PositiveInt, ...] = ()
    max_queue_delay: QueueDelay = 0
    preserve_ordering: bool = False


MOST_SEQUENCES = 256
"""Open sequences where the spec names no strategy."""


class SequenceBatching(Strict):
    """Send the requests of one sequence to the same instance, in order."""

    max_sequence_idle: Annotated[Microseconds, Field(serialization_alias="max_sequence_idle_microseconds")] = 1_000_000
    direct: Direct | None = None
    """Each sequence keeps a slot; the number of instances times max_batch_size is the most that are open at a time."""
    oldest: Oldest | None = None
    """Requests of any open sequences form batches. It is the choice, for 256 open sequences, where neither is given,
    Triton keeps all state, and there is no control input of kind ready."""
    control_input: dict[str, ControlInput] = {}
    state: tuple[State, ...] = ()
    iterative_sequence: bool = False

    @model_validator(mode="after")
    def _one_strategy(self) -> Self:
        if self.direct is not None and self.oldest is not None:
            raise ValueError("both direct and oldest are given; wanted one strategy")
        return self

    @property
    def without_first_value(self) -> tuple[str, ...]:
        """Inputs whose first value is uninitialized memory, which the network cannot know."""
        if any(control.kind == "start" for control in self.control_input.values()):
            return ()
        return tuple(state.input for state in self.state if state.initial is None and -1 in state.shape)

    @property
    def strategy(self) -> Direct | Oldest:
        """The given strategy, or the one that serves most sequences at a time."""
        if self.oldest or self.direct:
            return self.oldest or self.direct or Direct()
        in_slots = any(control.kind == "ready" for control in self.control_input.values())
        return Oldest(max_candidate_sequences=MOST_SEQUENCES) if self.state and not in_slots else Direct()
