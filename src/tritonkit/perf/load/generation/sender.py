"""The process that sends: `python -m tritonkit.perf.load.generation.sender FOLDER`, with a plan in that folder.

One event loop runs a task for each stream. Its timers are at most a millisecond late, while a language model's first
token takes several milliseconds. In an open loop requests leave when they are due, independent of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tritonkit.client import AsyncClient, AsyncModel, Reply
from tritonkit.errors import ClientError, DeadlineExceeded, TritonkitError
from tritonkit.perf.load.generation.prompts import Corpus
from tritonkit.perf.load.generation.records import GenerationRecord, StreamedAnswer, record_of, save_record
from tritonkit.perf.load.generation.sending_plan import READY, SendingPlan, load_plan
from tritonkit.perf.load.openloop.generator import end_with_parent
from tritonkit.perf.load.openloop.sender import INTERRUPTED

__all__ = ["main"]

_AHEAD_S: Final = 0.25
"""Seconds before the first request, in which connections are made."""
_ASKED_AGAIN: Final = 8
_ASKED_TOKENS: Final = 64
"""Right answers of a run that are requested again at its end, and the most tokens of each."""
_GONE_S: Final = 5.0
"""Seconds without any reachable server after which the run ends."""


def main(folder: Path) -> int:
    """Send as the folder's plan says, and write `record.npz` there; if nothing could be sent, `error.json`, and
    return 1."""
    end_with_parent(os.getppid())
    try:
        record = asyncio.run(_Sender(load_plan(folder)).run())
    except TritonkitError as error:
        (folder / "error.json").write_text(json.dumps(error.to_dict()))
        return 1
    save_record(record, folder / "record.npz")
    return 0


class _Sender:
    """One run, as tasks of an event loop, one for each stream."""

    def __init__(self, plan: SendingPlan) -> None:
        self._plan, self._corpus = plan, Corpus()
        self._answers: list[StreamedAnswer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._ended = ""
        self._start = 0.0
        self._gone_since: float | None = None

    async def run(self) -> GenerationRecord:
        """Send, wait for the answers, request some again, and return the record."""
        plan = self._plan
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._end, INTERRUPTED)
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(AsyncClient(address, retry=None, breaker=None))
                for address in plan.addresses
            ]
            models = [await client.model(plan.model) for client in clients]
            gc.collect()
            gc.freeze()
            cpu_s = time.process_time()
            self._start = time.monotonic() + _AHEAD_S
            await (self._closed(models) if plan.users else self._open(models))
            cpu_s = time.process_time() - cpu_s
            if not self._ended:
                await self._again(models)
        return record_of(self._answers, cpu_s, self._ended, self._start)

    def _end(self, why: str) -> None:
        """Send no more, and leave requests in flight."""
        self._ended = self._ended or why
        self._stop.set()
        for task in self._tasks:
            task.cancel()

    def _now(self) -> float:
        return time.monotonic() - self._start

    async def _open(self, models: Sequence[AsyncModel]) -> None:
        for index, due in enumerate(self._plan.due.tolist()):
            if await self._stopped(due):
                break
            self._begin(self._one(models[index % len(models)], index, due))
        await self._all()

    async def _closed(self, models: Sequence[AsyncModel]) -> None:
        """Each user sends its next request when its last answer has ended."""
        numbers = iter(range(1 << 62))
        await self._stopped(0.0)

        async def user() -> None:
            while not self._stop.is_set() and self._now() < self._plan.duration_s:
                number = next(numbers)
                index = number % len(self._plan.requests)
                answer = await self._one(models[number % len(models)], index, None)
                if answer.words:
                    # If the server refuses everything immediately, a loop without a pause would be a flood.
                    await self._stopped(self._now() + 0.05)

        for _ in range(self._plan.users):
            self._begin(user())
        await self._all()

    async def _stopped(self, until: float) -> bool:
        """Wait for a moment of the run; return whether the run was ended before it."""
        left = until - self._now()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), left)
        return self._stop.is_set()

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _all(self) -> None:
        """Wait for all answers in flight; the first unforeseen error ends it."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if not task.cancelled():
                    task.result()

    async def _one(self, model: AsyncModel, index: int, due: float | None, output: int = 0) -> StreamedAnswer:
        """Send a request and read its answer; the answer's `words` name its fault.

        Args:
            due: the moment at which it was due; None: now.
            output: tokens to request instead of the request's own number.
        """
        output = output or int(self._plan.requests.output[index])
        inputs = self._inputs(self._plan.requests.text(self._corpus, index), output)
        sent = self._now()
        answer = StreamedAnswer(index, sent if due is None else due, sent, [], [], [])
        self._answers.append(answer)
        text = bytearray()
        reason = ""
        try:
            left = max(self._plan.timeout_s - (sent - answer.due), 0.001)
            async with model.stream(inputs=inputs, timeout_s=left) as replies:
                async for reply in replies:
                    at = self._now()
                    reason = _read(reply, answer, text, at) or reason
        except ClientError as error:
            answer.words = self._words(error)
        else:
            answer.words = _wrong(answer, output, reason, text)
        answer.ended = self._now()
        self._look(answer)
        return answer

    def _inputs(self, text: str, output: int) -> dict[str, Any]:
        settings = {"max_tokens": output, "min_tokens": output, "ignore_eos": True, "temperature": 0.0}
        return {"text": text} | {k: v for k, v in settings.items() if k in self._plan.inputs}

    def _words(self, error: ClientError) -> str:
        if isinstance(error, DeadlineExceeded):
            return f"DeadlineExceeded: no end of the answer within {self._plan.timeout_s:g} s"
        return f"{type(error).__name__}: {error.found}"

    def _look(self, answer: StreamedAnswer) -> None:
        """End the run if no server could be reached for long."""
        if answer.words is None or not answer.words.startswith("ServerUnavailable"):
            self._gone_since = None
            return
        now = self._now()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since > _GONE_S:
            self._end(answer.words)

    async def _again(self, models: Sequence[AsyncModel]) -> None:
        """Request some right answers again, one after the other: greedy answers begin in the same way."""
        right = [answer for answer in self._answers if answer.words == ""]
        step = max(1, len(right) // _ASKED_AGAIN)
        for number, first in enumerate(right[::step][:_ASKED_AGAIN]):
            if self._stop.is_set():
                return
            count = min(len(first.tokens), _ASKED_TOKENS)
            answer = await self._one(models[number % len(models)], first.index, None, count)
            answer.again = True


def _read(reply: Reply, answer: StreamedAnswer, text: bytearray, at: float) -> str:
    """Record a reply that came at a moment; return the reason why the answer ended, if it was the last reply."""
    outputs = reply.outputs
    tokens = outputs["tokens"].ravel().tolist() if "tokens" in outputs else []
    if tokens:
        answer.pieces.append(at)
        answer.counts.append(len(tokens))
        answer.tokens += tokens
    for piece in outputs["text"].ravel() if "text" in outputs else ():
        text += piece
    if "prompt_tokens" in outputs and outputs["prompt_tokens"].size:
        answer.prompt_tokens = int(outputs["prompt_tokens"].ravel()[0])
    if "finish_reason" in outputs and outputs["finish_reason"].size:
        return bytes(outputs["finish_reason"].ravel()[0]).decode(errors="replace")
    return ""


def _wrong(answer: StreamedAnswer, output: int, reason: str, text: bytearray) -> str:
    """The fault of an answer that has ended; empty for a right one."""
    if len(answer.tokens) != output:
        return f"{len(answer.tokens)} tokens came, {output} were requested"
    if reason != "length":
        return f"finish_reason is {reason!r} after all requested tokens, not 'length'"
    if not answer.prompt_tokens:
        return "no prompt_tokens came with the last reply"
    try:
        text.decode()
    except UnicodeDecodeError:
        return "its text is not UTF-8"
    return ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
