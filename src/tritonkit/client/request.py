"""One call of a model, from the caller's arguments to the message, and the server's description of the model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tritonkit.client.batching import BatcherPool, Joining
from tritonkit.client.dlpack import any_on_device, on_host
from tritonkit.client.inputs import Inputs, assumed_specs, checked_outputs
from tritonkit.client.parameters import checked_classes, checked_parameters, checked_request_id
from tritonkit.client.wire.request import Prepared
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client.shm.cuda import CudaDevice
    from tritonkit.client.wire.parameters import Parameter
    from tritonkit.client.wire.request import Region
    from tritonkit.client.wire.signature import ModelSignature
    from tritonkit.client.wire.transport import Body, Headers

__all__ = ["InferRequest", "ModelKey", "ModelState", "model_key"]

ModelKey: TypeAlias = tuple[str, str]
"""A model's name and the requested version, empty for the server's choice."""

_MOST_ASSUMED = 64
"""Remembered kinds of inputs for a model whose server declares none."""

_NOTHING: Mapping[str, Any] = {}

_MOST_PREPARED = 256
"""Remembered choices of version, outputs and classes of one model."""

Classes: TypeAlias = tuple[tuple[str, int], ...]
"""The number of classes for each of these outputs."""


class ModelState:
    """A model's signature as last read, and the requests prepared for it.

    Args:
        signature: the model's inputs and outputs.
        idempotent: whether its calls may run twice; None: the model's configuration decides.
        gpu: leaves inputs on a GPU there, for shared memory.
    """

    __slots__ = (
        "_assumed",
        "_prepared",
        "batchers",
        "fixed",
        "gpu",
        "idempotent",
        "inputs",
        "joining",
        "read_at",
        "signature",
        "undeclared",
        "where",
    )

    def __init__(
        self, signature: ModelSignature, idempotent: bool | None = None, gpu: CudaDevice | None = None
    ) -> None:
        self.signature = signature
        self.gpu = gpu
        self.idempotent = signature.idempotent if idempotent is None else idempotent
        self.inputs = Inputs(signature, gpu)
        self.where = f"model {signature.name}"
        """The model, for messages."""
        self.undeclared = not (signature.inputs or signature.configured)
        """Whether the server does not report the model's inputs: see `assuming`."""
        self._assumed: dict[tuple[Any, ...], ModelState] = {}
        self.joining = Joining(signature)
        """Whether items of several callers may go in one request."""
        inputs = signature.inputs.values()
        self.fixed = not any(spec.optional or -1 in spec.dims for spec in inputs)
        """Whether the arrays of all items have the same names, types and shapes."""
        self.batchers = BatcherPool()
        self.read_at = time.monotonic()
        self._prepared: dict[tuple[str, tuple[str, ...] | None, Classes], Prepared] = {}

    def assuming(self, inputs: Mapping[str, Any]) -> ModelState:
        """The same model, with a call's inputs as its declared ones."""
        specs = assumed_specs(self.where, inputs)
        key = tuple(specs.values())
        state = self._assumed.get(key)
        if state is None:
            if len(self._assumed) >= _MOST_ASSUMED:
                self._assumed.clear()
            state = ModelState(replace(self.signature, inputs=specs), self.idempotent)
            self._assumed[key] = state
        return state

    def prepared(self, version: str, outputs: tuple[str, ...] | None, classes: Classes = ()) -> Prepared:
        """The part that is the same in every request for these outputs."""
        made = self._prepared.get((version, outputs, classes))
        if made is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            made = Prepared(self.signature, version, outputs, dict(classes))
            made = self._prepared.setdefault((version, outputs, classes), made)
        return made


@dataclass(slots=True, eq=False, repr=False)  # its values are in no log
class InferRequest:
    """One call of a model: the caller's arguments, to which `check` adds the rest.

    Args:
        key: the model and version.
        inputs: values by name.
        output_names: names of the outputs to request; None requests all.
        timeout_s: seconds for the whole call; None: the client's.
        priority: Triton's priority.
        idempotent: whether it may run twice; None: the client or the model's configuration decides.
        parameters: values for the model that are not tensors, by name.
        request_id: returned in the server's answer; empty for none.
        classification: the number of best classes in place of values, for all outputs or by name.
    """

    key: ModelKey
    inputs: Mapping[str, Any]
    output_names: Sequence[str] | None = None
    timeout_s: float | None = None
    priority: int = 0
    idempotent: bool | None = None
    parameters: Mapping[str, Parameter] | None = None
    request_id: str = ""
    classification: int | Mapping[str, int] | None = None
    headers: Headers = ()
    """Observers' metadata."""
    model: ModelState = field(init=False)
    arrays: Mapping[str, NDArray[Any]] = field(init=False)
    """The inputs in the form in which they are sent: `items` of them. Some may be a `DeviceArray` if the model's
    state has a `gpu`."""
    items: int = field(init=False)
    outputs: tuple[str, ...] | None = field(init=False)
    classes: Classes = field(init=False, default=())
    deadline: float = field(init=False)
    """A moment of the monotonic clock."""

    @property
    def where(self) -> str:
        """The model, for messages."""
        return f"model {self.key[0]}"

    def check(self, model: ModelState) -> None:
        """Check the call against the model.

        Raises:
            InvalidInput: a name, type, shape or size does not fit.
        """
        if model.undeclared:
            model = model.assuming(self.inputs)
        self.model = model
        self.arrays, self.items = model.inputs.checked(self.inputs)
        self.outputs = None if self.output_names is None else checked_outputs(model.signature, self.output_names)
        if self.idempotent is None:
            self.idempotent = model.idempotent
        if self.parameters is not None:
            self.parameters = checked_parameters(self.where, self.parameters)
        if self.request_id:
            checked_request_id(self.where, self.request_id)
        if self.classification is not None:
            self.classes = checked_classes(model.signature, self.outputs, self.classification)

    @property
    def on_device(self) -> bool:
        """Whether inputs lie on a GPU."""
        return any_on_device(self.arrays.values())

    def typed(self) -> dict[str, tuple[str, NDArray[Any]]]:
        """Datatype and array by input name."""
        specs = self.model.signature.inputs
        return {name: (specs[name].datatype, array) for name, array in self.arrays.items()}

    def canonical(self) -> Body:
        """The message without parts that do not change its answer: deadline, priority, the inputs' order."""
        arrays = self.arrays
        if len(arrays) > 1:
            arrays = {name: arrays[name] for name in sorted(arrays)}
        prepared = self.model.prepared(self.key[1], self.outputs, self.classes)
        return prepared.encode(arrays, parameters=self.parameters or _NOTHING)

    def shared_kind(self) -> tuple[Any, ...]:
        """All that must be equal in calls that share one request, next to the layout of their arrays."""
        parameters = self.parameters
        # Written out, because 1, 1.0 and True are equal in Python but differ for a model.
        named = tuple((name, repr(parameters[name])) for name in sorted(parameters)) if parameters else ()
        return self.key[1], self.outputs, self.priority, self.idempotent, self.classes, named

    def with_inputs(self, inputs: Mapping[str, Any]) -> InferRequest:
        """The same call with other inputs, not checked yet."""
        return InferRequest(
            self.key,
            inputs,
            self.output_names,
            self.timeout_s,
            self.priority,
            self.idempotent,
            self.parameters,
            self.request_id,
            self.classification,
        )

    def of_batch(self, arrays: Mapping[str, NDArray[Any]], items: int, deadline: float) -> InferRequest:
        """A copy of this request for a batch of several callers' items, without headers."""
        batch = InferRequest(self.key, {}, None, None, self.priority, self.idempotent)
        batch.model, batch.outputs, batch.classes = self.model, self.outputs, self.classes
        batch.parameters = self.parameters
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
        own, arrays = self.parameters, self.arrays
        if self.model.gpu is not None:
            arrays = on_host(arrays, but=regions)
        return self.model.prepared(self.key[1], self.outputs, self.classes).encode(
            arrays,
            timeout_s=self.deadline - time.monotonic(),
            priority=self.priority,
            request_id=self.request_id,
            parameters={**own, **parameters} if own else parameters,
            regions=regions,
            output_regions=output_regions,
        )


def model_key(name: str, version: str | int | None) -> ModelKey:
    """The key of a model and version.

    Raises:
        UsageError: the name is empty, or the version is not a whole number.
    """
    key = (name, "" if version is None else str(version))
    if not name or (key[1] and not key[1].isdecimal()):
        raise UsageError(
            f"model {name!r}, version {version!r}",
            found="not a model's name and version number",
            wanted="a name, and a whole number above 0 or None",
        )
    return key
