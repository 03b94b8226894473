"""Whether items of several callers may share a request: an item's answer must not depend on its neighbors.

The model's configuration may say so: the build proves it. For other models the first real items that callers send are
the check. Each of them goes alone; the caller that completes them sends them together once more, and the answers are
compared. Nothing is joined before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tritonkit.client.batching.closeness import difference
from tritonkit.client.log import logger

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.wire.signature import ModelSignature

    Arrays: TypeAlias = Mapping[str, NDArray[Any]]

__all__ = ["CHECKED_ITEMS", "CheckedItem", "Joining", "JoiningState", "Trial", "differ"]

JoiningState: TypeAlias = Literal["proven", "declared", "independent", "unknown", "refused"]
CHECKED_ITEMS = 4
"""Different items of the check, or as many as the model takes."""
_MOST_KINDS = 256
_MOST_ATTEMPTS = 3
"""Checks of one kind that may fail for reasons unrelated to the model."""
_MOST_BYTES = 1 << 20
"""Largest item in bytes that is kept for a check: joining larger ones gains nothing."""
_DECLARE = (
    "; where items are independent, say so: Adaptive(independent_items=True), or"
    " serving: {independent_items: true} in the spec"
)


class CheckedItem(NamedTuple):
    """An item that was sent alone, and its answer."""

    arrays: Arrays
    outputs: Arrays


class Trial:
    """State of the check for one kind of call: calls that could share a request.

    Args:
        sample_count: the number of different items of the check.
    """

    def __init__(self, sample_count: int) -> None:
        self.independent = False
        self.version = ""
        """The model's version that answered the check."""
        self.attempts = 0
        self._needed = sample_count
        self._samples: list[CheckedItem] = []
        self._checking = False
        self._lock = threading.Lock()

    def take(self, arrays: Arrays, outputs: Arrays, version: str) -> list[CheckedItem] | None:
        """Keep an item with its answer; return all samples if they suffice, for this caller to check."""
        if sum(array.nbytes for array in arrays.values()) > _MOST_BYTES:
            return None
        with self._lock:
            if self._checking or self.independent:
                return None
            if version != self.version:
                self._samples, self.version = [], version
            if len(self._samples) < self._needed and all(differ(arrays, sample.arrays) for sample in self._samples):
                # The caller may write into its arrays, and into the answer.
                self._samples.append(CheckedItem(_copied(arrays), _copied(outputs)))
            if len(self._samples) < self._needed:
                return None
            self._checking = True
            self.attempts += 1
            return list(self._samples)

    def end(self, *, independent: bool = False, again: bool = False) -> None:
        """Record that the check is over: with a result, or to be made `again`."""
        with self._lock:
            # Callers that began before the result may still arrive: they must not start another check.
            self._checking, self.independent = not again, independent
            if not again:
                self._samples = []

    def forget(self, version: str) -> None:
        """Record that a version answers that was not the checked one."""
        with self._lock:
            if version != self.version:
                return
            self.independent, self._checking, self.attempts, self._samples = False, False, 0, []


class Joining:
    """Whether calls of a model are joined, and why.

    Args:
        signature: the model's.
    """

    def __init__(self, signature: ModelSignature) -> None:
        self._signature = signature
        self.state: JoiningState = "unknown"
        """`proven` and `declared` by its configuration; `independent` or `refused` by a check with real items."""
        self.reason = "no check was made yet: it takes a few different items"
        self.coupled = False
        """Whether a check has shown that an item's answer depends on others."""
        self._trials: OrderedDict[Hashable, Trial] = OrderedDict()
        self._lock = threading.Lock()
        tensors = (*signature.inputs.values(), *signature.outputs.values())
        if signature.max_batch_size <= 1 or not all(tensor.batched for tensor in tensors):
            self.state = "refused"
            self.reason = "its requests hold one item: max_batch_size is at most 1, or a tensor has no batch axis"
        elif signature.independent_items == "proven":
            self.state, self.reason = "proven", "the build proved that its items are independent"
        elif signature.independent_items == "declared":
            self.state, self.reason = ("declared", "its configuration says that its items are independent")

    @property
    def known(self) -> bool:
        """Whether the configuration says that items are independent."""
        return self.state in ("proven", "declared")

    def trial(self, kind: Hashable) -> Trial:
        """State of the check for a kind of call."""
        with self._lock:
            trial = self._trials.get(kind)
            if trial is None:
                trial = self._trials[kind] = Trial(min(CHECKED_ITEMS, self._signature.max_batch_size))
                if len(self._trials) > _MOST_KINDS:
                    self._trials.popitem(last=False)
            else:
                self._trials.move_to_end(kind)
            return trial

    def not_idempotent(self) -> None:
        """Record that no check may be made: it would run a request twice, which this model does not allow."""
        if self.state == "unknown" and not self.reason.startswith("a check"):
            self._note(
                "unknown",
                "a check would run a request twice, and the model is not declared idempotent: "
                "serving: {idempotent: true}, or Client(idempotent=True)" + _DECLARE,
            )

    def judge(self, trial: Trial, samples: Sequence[CheckedItem], together: Sequence[Arrays]) -> None:
        """Compare the answers of the samples alone with those of one request with all of them."""
        datatypes = {name: spec.datatype for name, spec in self._signature.outputs.items()}
        for place, (sample, outputs) in enumerate(zip(samples, together, strict=True)):
            if mismatch := difference(sample.outputs, outputs, datatypes):
                self.coupled = True
                self.refuse(
                    f"an item's answer depends on the other items of its request: {mismatch} (item {place + 1} of"
                    f" {len(samples)}, compared with its answer alone)" + _DECLARE
                )
                return
        trial.end(independent=True)
        if self.state == "unknown":
            self.state = "independent"
            self.reason = f"{len(samples)} different items had the answers together that each has alone"
            logger.info("model %s: calls are joined: %s", self._signature.name, self.reason)

    def refuse(self, reason: str) -> None:
        """Join nothing of this model from now on."""
        self._note("refused", reason)

    def failed(self, trial: Trial, reason: str) -> None:
        """Record a check that failed for a reason unrelated to the items; the number of repetitions is limited."""
        if trial.attempts >= _MOST_ATTEMPTS:
            self.refuse(f"the check with several items in one request failed: {reason}" + _DECLARE)
        else:
            trial.end(again=True)

    def _note(self, state: JoiningState, reason: str) -> None:
        self.state, self.reason = state, reason
        logger.warning("model %s: calls are not joined: %s", self._signature.name, reason)


def differ(one: Arrays, other: Arrays) -> bool:
    """Whether two items of one layout have other values."""
    return any(not np.array_equal(array, other[name]) for name, array in one.items())


def _copied(arrays: Arrays) -> Arrays:
    return {name: np.array(array) for name, array in arrays.items()}
