"""Sequences for threads and for tasks; what happens in them is decided in `sequence_call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.client.inputs import merged_inputs
from tritonkit.client.request import InferRequest
from tritonkit.client.steps import run_async, run_blocking
from tritonkit.client.streams.sequence_call import SequenceCalls

if TYPE_CHECKING:
    from collections import abc
    from types import TracebackType

    from tritonkit.client.core import Core
    from tritonkit.client.reply import Reply
    from tritonkit.client.request import ModelKey

__all__ = ["AsyncSequence", "Sequence"]


class _Named:
    """A sequence, by its name at the server.

    Args:
        core: of the client.
        key: the model and version.
        correlation_id: 1 to 2**63 - 1, or text up to 128 bytes; None draws a number.
    """

    def __init__(self, core: Core, key: ModelKey, correlation_id: int | str | None = None) -> None:
        self._calls = SequenceCalls(core, key, correlation_id)
        self._key = key

    @property
    def correlation_id(self) -> int | str:
        """The name of the sequence at the server."""
        return self._calls.correlation_id


class Sequence(_Named):
    """Calls that share state in one server, for a model with `sequence_batching`: a context manager.

    All of them go to the server that got the first, none is sent again that may have begun, and one ends
    before the next begins. They take places in the client's in-flight limit as other calls do.

    Leaving the block ends the sequence at the server, so that its state is freed. If no call was the
    `last`, the inputs of the latest are sent once more as the end, and that answer is dropped: send the
    last yourself where it counts. If the block is left by an exception, this takes 1 s at most.
    """

    def predict(
        self,
        *,
        inputs: abc.Mapping[str, Any] | None = None,
        outputs: abc.Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        last: bool = False,
        **named: Any,
    ) -> Reply:
        """Send the next inputs of the sequence and wait for the answer; see `Model.predict`.

        Args:
            inputs: values by name.
            outputs: names of the outputs to request; None requests all.
            timeout_s: seconds for this call; the client's if None.
            priority: Triton's.
            last: ends the sequence; no call may follow.
            **named: values by input name.

        Raises:
            DeadlineExceeded: no answer in time; whether the state has these inputs is not known.
            ServerUnavailable: after a first answer it takes the state along: begin a new sequence.
            UsageError: outside of the block, after the end or the loss of the server, or while
                another call of the sequence is under way.
            ClientError: as `Model.predict`; the sequence may go on.
        """
        given = merged_inputs(self._key[0], inputs, named)
        request = InferRequest(self._key, given, outputs, timeout_s, priority)
        return run_blocking(self._calls.predict(request, last))

    def __enter__(self) -> Sequence:
        """Begin; the first call says so to the server."""
        self._calls.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the sequence, if no call did."""
        run_blocking(self._calls.leave(error))


class AsyncSequence(_Named):
    """`Sequence` for tasks."""

    async def predict(
        self,
        *,
        inputs: abc.Mapping[str, Any] | None = None,
        outputs: abc.Sequence[str] | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
        last: bool = False,
        **named: Any,
    ) -> Reply:
        """Send the next inputs of the sequence and wait for the answer; see `Sequence.predict`."""
        given = merged_inputs(self._key[0], inputs, named)
        request = InferRequest(self._key, given, outputs, timeout_s, priority)
        return await run_async(self._calls.predict(request, last))

    async def __aenter__(self) -> AsyncSequence:
        """Begin; the first call says so to the server."""
        self._calls.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the sequence, if no call did."""
        await run_async(self._calls.leave(error))
