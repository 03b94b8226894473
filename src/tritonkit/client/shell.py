"""The common part of the blocking and the asyncio model; nothing here waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.client.inputs import merged_inputs
from tritonkit.client.many import ManyArguments, check_concurrency, with_errors
from tritonkit.client.request import InferRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tritonkit.client.core import Core
    from tritonkit.client.request import ModelKey
    from tritonkit.client.steps import Steps
    from tritonkit.client.wire.parameters import Parameter

__all__ = ["ModelShell"]


class ModelShell:
    """One model on the servers.

    Args:
        core: the client's core.
        key: the model and version.
    """

    __slots__ = ("_core", "_key")

    def __init__(self, core: Core, key: ModelKey) -> None:
        self._core = core
        self._key = key

    @property
    def name(self) -> str:
        """The model's name on the server."""
        return self._key[0]

    @property
    def version(self) -> str:
        """The requested version; empty if the server chooses."""
        return self._key[1]

    def _request(
        self,
        inputs: Mapping[str, Any] | None,
        named: Mapping[str, Any],
        outputs: Sequence[str] | None,
        timeout_s: float | None,
        priority: int = 0,
        idempotent: bool | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        request_id: str = "",
        classification: int | Mapping[str, int] | None = None,
    ) -> InferRequest:
        """A call with inputs given as a mapping, as arguments, or both."""
        values = named if inputs is None else merged_inputs(self._key[0], inputs, named)
        if self._core.gpu is not None:  # now: the call may go on in another thread, with another stream
            values = self._core.gpu.take_item(values)
        return InferRequest(
            self._key, values, outputs, timeout_s, priority, idempotent, parameters, request_id, classification
        )

    def _many(
        self,
        keep_errors: bool,
        *,
        concurrency: int = 8,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        idempotent: bool | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        classification: int | Mapping[str, int] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> ManyArguments:
        """The arguments of `many` after the items: the steps of a call for one item, `concurrency` and `progress`."""
        core, key = self._core, self._key
        core.check_process()
        check_concurrency(concurrency)

        def steps_of(item: Any) -> Steps[Any]:
            request = InferRequest(key, {}, outputs, timeout_s, 0, idempotent, parameters, "", classification)
            steps = core.predict_item(request, item if core.gpu is None else core.gpu.take_item(item))
            return with_errors(steps) if keep_errors else steps

        return steps_of, concurrency, progress
