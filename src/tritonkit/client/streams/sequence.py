"""Sequences for threads and for tasks; what happens in them is decided in `sequence_call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.client.steps import run_async, run_blocking
from tritonkit.client.streams.sequence_call import SequenceCalls

if TYPE_CHECKING:
    from collections import abc

    from tritonkit.client.reply import Reply

__all__ = ["AsyncSequence", "Sequence"]


class Sequence(SequenceCalls):
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
        return run_blocking(self._call(inputs, named, outputs, timeout_s, priority, last))

    def __enter__(self) -> Sequence:
        """Begin; the first call says so to the server."""
        self._enter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the sequence, if no call did."""
        run_blocking(self._leave(error))


class AsyncSequence(SequenceCalls):
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
        return await run_async(self._call(inputs, named, outputs, timeout_s, priority, last))

    async def __aenter__(self) -> AsyncSequence:
        """Begin; the first call says so to the server."""
        self._enter()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the sequence, if no call did."""
        await run_async(self._leave(error))
