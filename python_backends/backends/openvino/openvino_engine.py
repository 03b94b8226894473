"""Runs a network in OpenVINO, at the sizes it was compiled for or at any size.

A network compiled for one shape need not find shapes, kernels and memory again when the batch changes. Whether that
outweighs padding a batch to the next compiled size depends on network and processor, so it is measured when the model
loads (`openvino_choice`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from backend_batch import RequestError, batch_size, joined
from backend_config import TRITON_TO_NUMPY, ModelError, configured_dims, is_batched
from openvino import Tensor
from openvino_choice import Choice, measure
from openvino_config import batch_sizes, pads_batches
from openvino_network import first_reason, input_specs, sized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backend_batch import Arrays
    from openvino import CompiledModel, Core, InferRequest, Model


class Compiled:
    """A compiled network, of one batch size or (None) of any, and the memory it works in."""

    def __init__(self, compiled: CompiledModel, size: int | None) -> None:
        self.compiled = compiled
        self.size = size
        self._requests: list[InferRequest] = []
        self._buffers: list[Arrays] = []
        self._used = 0

    def begin(self) -> None:
        """From now on, earlier results of `run` may be overwritten."""
        self._used = 0

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs for the parts together, as views of OpenVINO's memory; raises RuntimeError."""
        place, self._used = self._used, self._used + 1
        if place == len(self._requests):
            self._requests.append(self.compiled.create_infer_request())
            self._buffers.append({})
        request = self._requests[place]
        count = sum(map(batch_size, parts)) if self.size else None
        fed = self._fed(parts, self._buffers[place])  # must outlive the run: a Tensor owns nothing
        for name, array in fed.items():
            request.set_tensor(name, Tensor(array, shared_memory=True))
        request.infer()
        arrays = {name: request.get_tensor(name).data for name in outputs}
        return arrays if count is None else {name: array[:count] for name, array in arrays.items()}

    def _fed(self, parts: Sequence[Arrays], buffers: Arrays) -> Arrays:
        """One array per input: the caller's own if it fits unchanged, else a copy."""
        if self.size is None or (len(parts) == 1 and batch_size(parts[0]) == self.size):
            return {name: _usable(array) for name, array in joined(parts).items()}
        for name, first in parts[0].items():
            if name not in buffers:
                buffers[name] = np.zeros((self.size, *first.shape[1:]), first.dtype)
            row = 0
            for part in parts:
                rows = part[name]
                buffers[name][row : row + len(rows)] = rows
                row += len(rows)
            buffers[name][row:] = 0  # no data of an earlier request: scales may span the batch
        return buffers


@dataclass(frozen=True)
class Engine:
    """A network's compiled forms, and the batches that each of them takes.

    `free` takes any size, and `fixed` has a form for some. `only` is the one batch size of a model whose configuration
    does not allow padding.
    """

    free: Compiled
    fixed: Mapping[int, Compiled] = field(default_factory=dict)
    choice: Choice = field(default_factory=Choice)
    only: int | None = None

    def begin(self) -> None:
        """Arrays that `run` gave before may be overwritten from now on."""
        for compiled in (self.free, *self.fixed.values()):
            compiled.begin()

    def run(self, parts: Sequence[Arrays], outputs: Sequence[str]) -> Arrays:
        """Outputs by name for the parts joined along the first axis; RequestError if it fails."""
        compiled = self.free
        if self.fixed or self.only:
            count = sum(map(batch_size, parts))
            self._check(count)
            compiled = self.fixed.get(self.choice.size_for(count) or 0, self.free)
        try:
            return compiled.run(parts, outputs)
        except RuntimeError as error:
            raise RequestError(f"OpenVINO: {first_reason(error)}") from error

    def _check(self, count: int) -> None:
        """Refuse batches that the native backend refuses, in its words."""
        if self.only not in (None, count):
            raise RequestError(
                f"expected requests with batch size '{self.only}', got '{count}'... this error can be"
                " avoided by setting 'ENABLE_BATCH_PADDING' parameter in model configuration to"
                " 'YES' at a performance cost."
            )


class Forms:
    """The compiled forms of one network, each made on first use."""

    def __init__(self, core: Core, model: Model, config: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
        self._core = core
        self.model = model
        self._config = config
        self.properties = dict(properties)
        self._made: dict[int, Compiled] = {}
        self._outputs = [entry["name"] for entry in config["output"]]

    def free(self) -> Compiled:
        """The form for any size; ModelError if OpenVINO cannot compile it."""
        whole = None if is_batched(self._config) else sized(self.model, self._config, 0)
        return self._compiled(whole or self.model, None)

    def fixed(self, size: int) -> Compiled | None:
        """The form for one batch size; None if another axis is free."""
        if size not in self._made:
            network = sized(self.model, self._config, size)
            if network is None:
                return None
            self._made[size] = self._compiled(network, size)
        return self._made[size]

    def try_zeros(self, form: Compiled, size: int) -> None:
        """Run a batch of zeros."""
        specs = input_specs(self.model, self._config)
        batch = {
            entry["name"]: np.zeros((size, *configured_dims(entry)), TRITON_TO_NUMPY[specs[entry["name"]].dtype])
            for entry in self._config["input"]
        }
        form.begin()
        form.run([batch], self._outputs)

    def _compiled(self, network: Model, size: int | None) -> Compiled:
        try:
            return Compiled(self._core.compile_model(network, "CPU", self.properties), size)
        except RuntimeError as error:
            raise ModelError(f"OpenVINO cannot compile the model: {first_reason(error)}") from error


def make_engine(forms: Forms, config: Mapping[str, Any]) -> Engine:
    """The network compiled for any size, and for the sizes where that is worthwhile."""
    only = None if pads_batches(config) else int(config["max_batch_size"])
    free, sizes = forms.free(), batch_sizes(config)
    if not sizes or forms.fixed(1) is None:
        return Engine(free, only=only)

    def run_fixed(size: int) -> None:
        form = forms.fixed(size)
        assert form is not None  # noqa: S101  all sizes are equal except the batch
        forms.try_zeros(form, size)

    try:
        choice = measure(sizes, lambda size: forms.try_zeros(free, size), run_fixed)
    except RuntimeError:  # this network cannot run on zeros: nothing can be measured
        return Engine(free, only=only)
    kept = {size: form for size in choice.fixed if (form := forms.fixed(size))}
    return Engine(free, kept, choice, only)


def _usable(array: np.ndarray) -> np.ndarray:
    """The array itself if OpenVINO can work on its memory, else a copy."""
    fits: Any = array.flags.c_contiguous and array.flags.writeable
    return array if fits else np.array(array, order="C")
