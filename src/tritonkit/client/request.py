"""One call of a model, from the caller's arguments to the message; and the model as the server describes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tritonkit.client.batching import BatcherPool
from tritonkit.client.inputs import Inputs, assumed_specs, checked_outputs
from tritonkit.errors import UsageError
from tritonkit.wire.request import Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.wire.request import Region
    from tritonkit.wire.signature import ModelSignature
    from tritonkit.wire.transport import Body, Headers

__all__ = ["InferRequest", "ModelKey", "ModelState", "model_key"]

ModelKey: TypeAlias = tuple[str, str]
"""A model's name and the version asked for, empty for the server's choice."""

_MOST_ASSUMED = 64
"""Kinds of inputs that are remembered of a model whose server declares none."""

_NOTHING: Mapping[str, Any] = {}


class ModelState:
    """A model's signature as last read, and the requests prepared for it.

    Args:
        signature: the model's.
        idempotent: whether its calls may run twice; None: as the model's configuration says.
    """

    __slots__ = (
        "_assumed",
        "_prepared",
        "batchers",
        "fixed",
        "idempotent",
        "inputs",
        "joinable",
        "read_at",
        "signature",
        "undeclared",
        "where",
    )

    def __init__(self, signature: ModelSignature, idempotent: bool | None = None) -> None:
        self.signature = signature
        self.idempotent = signature.idempotent if idempotent is None else idempotent
        self.inputs = Inputs(signature)
        self.where = f"model {signature.name}"
        """For messages."""
        self.undeclared = not (signature.inputs or signature.configured)
        """Whether the server does not say what the model takes: see `assuming`."""
        self._assumed: dict[tuple[Any, ...], ModelState] = {}
        tensors = (*signature.inputs.values(), *signature.outputs.values())
        self.joinable = signature.max_batch_size > 1 and all(each.batched for each in tensors)
        """Whether items of several callers may go in one request: shape tensors cannot be joined."""
        inputs = signature.inputs.values()
        self.fixed = not any(each.optional or -1 in each.dims for each in inputs)
        """Whether the arrays of all items have the same names, types and shapes."""
        self.batchers = BatcherPool()
        self.read_at = time.monotonic()
        self._prepared: dict[tuple[str, tuple[str, ...] | None], Prepared] = {}

    def assuming(self, inputs: Mapping[str, Any]) -> ModelState:
        """The same model, with the inputs of a call as those it declares."""
        specs = assumed_specs(self.where, inputs)
        key = tuple(specs.values())
        found = self._assumed.get(key)
        if found is None:
            if len(self._assumed) >= _MOST_ASSUMED:
                self._assumed.clear()
            found = ModelState(replace(self.signature, inputs=specs), self.idempotent)
            self._assumed[key] = found
        return found

    def prepared(self, version: str, outputs: tuple[str, ...] | None) -> Prepared:
        """What is the same in every request for these outputs."""
        made = self._prepared.get((version, outputs))
        if made is None:
            made = Prepared(self.signature, version, outputs)
            made = self._prepared.setdefault((version, outputs), made)
        return made


@dataclass(slots=True, eq=False, repr=False)  # its values are in no log
class InferRequest:
    """One call of a model: the caller's arguments, to which `check` adds the rest.

    Args:
        key: the model and version.
        inputs: values by name.
        asked: names of the outputs to request; None requests all.
        timeout_s: seconds for the whole call; None: the client's.
        priority: Triton's.
        idempotent: whether it may run twice; None: as the client or the model's configuration says.
    """

    key: ModelKey
    inputs: Mapping[str, Any]
    asked: Sequence[str] | None = None
    timeout_s: float | None = None
    priority: int = 0
    idempotent: bool | None = None
    headers: Headers = ()
    """Observers' metadata."""
    model: ModelState = field(init=False)
    arrays: Mapping[str, NDArray[Any]] = field(init=False)
    """As they are sent: `items` of them."""
    items: int = field(init=False)
    outputs: tuple[str, ...] | None = field(init=False)
    deadline: float = field(init=False)
    """A moment of the monotonic clock."""

    @property
    def where(self) -> str:
        """For messages."""
        return f"model {self.key[0]}"

    def check(self, model: ModelState) -> None:
        """Hold it against the model.

        Raises:
            InvalidInput: a name, type, shape or size does not fit.
        """
        if model.undeclared:
            model = model.assuming(self.inputs)
        self.model = model
        self.arrays, self.items = model.inputs.checked(self.inputs)
        self.outputs = None if self.asked is None else checked_outputs(model.signature, self.asked)
        if self.idempotent is None:
            self.idempotent = model.idempotent

    def typed(self) -> dict[str, tuple[str, NDArray[Any]]]:
        """Datatype and array by input name."""
        specs = self.model.signature.inputs
        return {name: (specs[name].datatype, array) for name, array in self.arrays.items()}

    def canonical(self) -> Body:
        """The message without what does not change its answer: deadline, priority, the inputs' order."""
        arrays = self.arrays
        if len(arrays) > 1:
            arrays = {name: arrays[name] for name in sorted(arrays)}
        return self.model.prepared(self.key[1], self.outputs).encode(arrays)

    def of_batch(
        self, arrays: Mapping[str, NDArray[Any]], items: int, deadline: float
    ) -> InferRequest:
        """The same for a batch of several callers' items, without headers."""
        batch = InferRequest(self.key, {}, None, None, self.priority, self.idempotent)
        batch.model, batch.outputs = self.model, self.outputs
        batch.arrays, batch.items, batch.deadline = arrays, items, deadline
        return batch

    def encode(
        self,
        *,
        parameters: Mapping[str, Any] = _NOTHING,
        regions: Mapping[str, Region] = _NOTHING,
        output_regions: Mapping[str, Region] = _NOTHING,
    ) -> Body:
        """The message; see `Prepared.encode`."""
        return self.model.prepared(self.key[1], self.outputs).encode(
            self.arrays,
            timeout_s=self.deadline - time.monotonic(),
            priority=self.priority,
            parameters=parameters,
            regions=regions,
            output_regions=output_regions,
        )


def model_key(name: str, version: str | int | None) -> ModelKey:
    """The key of a model and version.

    Raises:
        UsageError: an empty name, or a version that is no whole number.
    """
    key = (name, "" if version is None else str(version))
    if not name or (key[1] and not key[1].isdecimal()):
        raise UsageError(
            f"model {name!r}, version {version!r}",
            found="not a model's name and version number",
            wanted="a name, and a whole number above 0 or None",
        )
    return key
