"""The loop around OpenVINO GenAI's continuous batching: sequences join and leave the running batch at every step.

One thread owns the pipeline. Others send it commands through a queue, and it sends the results of a step before it
makes the next one. It relies on these facts about the engine:

- `step()` holds Python's global lock for its whole duration (seen with 2026.4), so other threads run only between two
  steps. Results sent by another thread would leave one step later, and most of them many steps later.
- A sequence that finds no free block waits, and is computed again later without giving a token twice.
- A sequence larger than the whole cache is dropped without an exception; its status says IGNORED.
- The blocks of a stopped sequence are free after the next step.
- Sequences that have begun to answer are scheduled before prompts, and `max_batched_tokens` has room for a token of
  each: one that gets none in a step had no block.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from llm_metrics import DECODE, PREFILL
from llm_sampling import config_maker
from llm_vocabulary import engine_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_config import Settings
    from llm_metrics import Counts
    from llm_request import Task

STOP, LENGTH = "stop", "length"
MOST_GRAMMARS = 256
"""Grammars after which the engine is made again: it keeps each that it has compiled, some 0.5 MiB."""


class Overloaded(Exception):
    """The queue of waiting requests is full."""


@dataclass(frozen=True)
class Failure:
    """The error that ended a sequence without an answer: a name of Triton's error codes, a text, and the outcome it
    counts as."""

    code: str
    message: str
    outcome: str = "failed"


@dataclass(eq=False, slots=True)
class Sequence:
    """One request in progress.

    Args:
        task: the checked request.
        arrived: moment of `time.monotonic()`, seconds.
        reply: the value that the receiver of steps needs to answer it; the engine does not use it.
    """

    task: Task
    arrived: float
    reply: Any = None
    handle: Any = field(default=None, init=False)
    last: float = field(default=0.0, init=False)
    """The moment of its last token."""
    paused: bool = field(default=False, init=False)
    """Whether it has begun to answer and got no token in the last step."""


@dataclass(slots=True)
class Step:
    """The results of a step for one sequence: tokens, their log probabilities, and its end (STOP, LENGTH or a
    failure)."""

    sequence: Sequence
    tokens: list[int]
    logprobs: list[float]
    end: str | Failure | None


class Engine:
    """Runs sequences in a thread of its own.

    Args:
        settings: the model's settings.
        make: function that makes the pipeline, also a new one after a failed step.
        deliver: function that sends the results of a step; the next step waits for it.
        counts: counters for the metrics.
    """

    def __init__(
        self, settings: Settings, make: Callable[[], Any], deliver: Callable[[list[Step]], None], counts: Counts
    ) -> None:
        self._settings = settings
        self._make = make
        self._deliver = deliver
        self._counts = counts
        self._pipeline = make()
        self._config = config_maker(settings)
        self._tensor, self._none, self._ends, self._ignored = _names()
        self._commands: SimpleQueue[tuple[Sequence | None, str | Failure | None]] = SimpleQueue()
        self._waiting: deque[Sequence] = deque()
        self._running: dict[Sequence, None] = {}
        self._number = 0
        self._grammars: set[str] = set()
        self._most_open = settings.max_sequences + settings.max_waiting
        self.between_steps = Lock()
        """A lock that other threads hold to run before the next step, which would otherwise make them wait for Python's
        lock."""
        self.open: set[Sequence] = set()
        """Sequences that were taken and have not ended. Python's own lock makes each change of the set atomic."""
        self._thread = Thread(target=self._run, name="llm-engine", daemon=True)
        self._thread.start()

    def submit(self, sequence: Sequence) -> None:
        """Take a sequence.

        Raises:
            Overloaded: the queue of waiting requests is full.
        """
        if len(self.open) >= self._most_open:
            limit = self._settings.max_waiting
            raise Overloaded(f"{limit} requests wait already, the most of max_waiting; send it later")
        self.open.add(sequence)
        self._commands.put((sequence, None))

    def drop(self, sequence: Sequence, end: str | Failure) -> None:
        """End a sequence, running or waiting; one that has ended is left alone.

        A sequence that `submit` has not handed over yet is left alone too; the thread that watches sequences tries
        again.
        """
        self._commands.put((sequence, end))

    def close(self) -> None:
        """End all sequences with an error, and the thread."""
        self._commands.put((None, None))
        self._thread.join()

    def _run(self) -> None:
        while self._turn():
            pass
        gone = Failure("UNAVAILABLE", "the model is being unloaded")
        self._end_all([*self._running, *self._waiting], gone)
        self._lose_pipeline()

    def _turn(self) -> bool:
        """Run commands, admission and a step; False at the end. No failure here may end the thread."""
        try:
            if not self._obey():
                return False
            self._admit()
            stalled, cache = self._step() if self._running else (0, 0.0)
            self._counts.now(len(self._running), len(self._waiting), stalled, cache)
        except Exception as error:
            # The engine's state is unknown after that: waiting sequences get a new one.
            failure = Failure("INTERNAL", f"a step of the engine failed: {error}")
            self._end_all(list(self._running), failure)
            self._lose_pipeline()
            self._counts.now(0, len(self._waiting), 0, 0.0)
        return True

    def _obey(self) -> bool:
        """Run the commands in the queue, and wait for one if there is nothing else to do; False at the end."""
        while not (self._running or self._waiting) or not self._commands.empty():
            sequence, end = self._commands.get()
            if sequence is None:
                return False
            if end is not None:
                self._drop(sequence, end)
                if not self._running:
                    break  # so that the metrics show it
            else:
                self._waiting.append(sequence)
        return True

    def _drop(self, sequence: Sequence, end: str | Failure) -> None:
        if sequence not in self.open:
            return
        running = sequence in self._running
        if running:
            sequence.handle.stop()
            del self._running[sequence]
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        else:
            return
        self.open.discard(sequence)
        self._deliver([Step(sequence, [], [], end)])
        if running:
            self._free()

    def _free(self) -> None:
        """Let the engine take back the blocks of stopped sequences; if others run, their next step does it."""
        if not self._running and self._pipeline is not None and self._pipeline.has_non_finished_requests():
            self._pipeline.step()

    def _admit(self) -> None:
        """Give the pipeline the waiting sequences, as far as they may run."""
        if not self._waiting or (self._settings.static and self._running):
            return
        while self._waiting and len(self._running) < self._settings.max_sequences:
            if not self._may_compile(self._waiting[0].task.grammar):
                return
            sequence = self._waiting.popleft()
            try:
                if self._pipeline is None:
                    self._pipeline = self._make()
                self._number += 1
                tokens = self._tensor([sequence.task.prompt])
                sequence.handle = self._pipeline.add_request(self._number, tokens, self._config(sequence.task))
            except Exception as error:  # an error of this sequence only
                self._end_all([sequence], Failure("INTERNAL", f"the engine refuses this request: {error}"))
                continue
            self._running[sequence] = None

    def _may_compile(self, grammar: str) -> bool:
        """Whether a sequence with this grammar may begin. A grammar too many waits until no sequence runs."""
        if not grammar or grammar in self._grammars:
            return True
        if len(self._grammars) >= MOST_GRAMMARS:
            if self._running:
                return False
            self._lose_pipeline()
        self._grammars.add(grammar)
        return True

    def _step(self) -> tuple[int, float]:
        """Run one step. Returns the number of running sequences without a part in it, and the part of the cache that
        sequences hold, 0 to 1. Blocks that are kept for equal beginnings can be freed and do not count."""
        time.sleep(0)  # threads that waited for Python's lock, such as that of a new request, run now
        with self.between_steps:
            pass
        running, began = len(self._running), time.monotonic()
        self._pipeline.step()
        now = time.monotonic()
        steps, decoded = self._read(now)
        if steps:
            self._deliver(steps)
        metrics = self._pipeline.get_metrics()
        scheduled = metrics.scheduled_requests
        self._counts.step(PREFILL if scheduled > decoded else DECODE, now - began)
        return running - scheduled, metrics.cache_usage / 100 if self._running else 0.0

    def _read(self, now: float) -> tuple[list[Step], int]:
        """The results of a step for every sequence with news, and the number of these that had tokens before. One pass,
        because this is paid for each token."""
        steps = []
        ended = []
        decoded = 0
        for sequence in self._running:
            step = self._read_one(sequence)
            if step is None:
                if sequence.last and not sequence.paused:
                    sequence.paused = True
                    self._counts.preemptions += 1
                continue
            steps.append(step)
            sequence.paused = False
            decoded += sequence.last > 0
            if step.tokens:
                self._count(sequence, len(step.tokens), now)
            if step.end is not None:
                ended.append(sequence)
        for sequence in ended:
            del self._running[sequence]
            sequence.handle = None
            self.open.discard(sequence)
        return steps, decoded

    def _read_one(self, sequence: Sequence) -> Step | None:
        handle = sequence.handle
        if not handle.can_read():
            if handle.get_status() == self._ignored:
                return Step(sequence, [], [], _too_large())
            return None
        tokens: list[int] = []
        logprobs: list[float] = []
        end: str | Failure | None = None
        while handle.can_read():
            for output in handle.read().values():
                tokens += output.generated_ids
                if sequence.task.logprobs:
                    logprobs += output.generated_log_probs
                if (reason := output.finish_reason) != self._none:
                    end = self._ends.get(reason, STOP)
        if end is None and handle.get_status() == self._ignored:
            end = _too_large()
        return Step(sequence, tokens, logprobs, end)

    def _count(self, sequence: Sequence, tokens: int, now: float) -> None:
        if sequence.last:
            self._counts.between.add(now - sequence.last)
        else:
            self._counts.first.add(now - sequence.arrived)
            self._counts.prompt_tokens += len(sequence.task.prompt)
        self._counts.tokens += tokens
        sequence.last = now

    def _end_all(self, sequences: list[Sequence], failure: Failure) -> None:
        for sequence in sequences:
            self._running.pop(sequence, None)
            sequence.handle = None
            self.open.discard(sequence)
        self._deliver([Step(sequence, [], [], failure) for sequence in sequences])

    def _lose_pipeline(self) -> None:
        """Drop the pipeline with its memory; the next sequence makes another."""
        self._pipeline = None
        self._grammars.clear()


def _too_large() -> Failure:
    return Failure("INTERNAL", "the engine gave the request up: the cache is too small for it")


def _names() -> tuple[Callable[[list[list[int]]], Any], Any, dict[Any, str], Any]:
    """Names of the libraries that the loop needs, looked up once: a tensor of token IDs, and ends and states."""
    import numpy as np
    from openvino import Tensor
    from openvino_genai import GenerationFinishReason, GenerationStatus

    ends = {GenerationFinishReason.STOP: STOP, GenerationFinishReason.LENGTH: LENGTH}

    def tensor(tokens: list[list[int]]) -> Any:
        return Tensor(np.array(tokens, np.int64))

    return tensor, GenerationFinishReason.NONE, ends, GenerationStatus.IGNORED


def pipeline_maker(settings: Settings, folder: str, pieces: list[bytes] | None = None) -> Callable[[], Any]:
    """A function that makes the pipeline of a version's folder, with the cache and threads of the settings.

    Args:
        settings: the model's settings.
        folder: the version's folder.
        pieces: each token's bytes, for answers that follow a grammar; None: there are no such answers.
    """
    from openvino_genai import ContinuousBatchingPipeline, SchedulerConfig

    def make() -> Any:
        scheduler = SchedulerConfig()
        scheduler.num_kv_blocks = settings.blocks
        scheduler.cache_size = 0
        scheduler.max_num_batched_tokens = settings.max_batched_tokens
        scheduler.max_num_seqs = settings.max_sequences
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = settings.prefix_cache
        properties = {
            "INFERENCE_NUM_THREADS": settings.threads,
            # Processes that pin their threads independently would all take the first cores.
            "ENABLE_CPU_PINNING": False,
            # The value by which `llm_config` counts the cache's bytes.
            "KV_CACHE_PRECISION": settings.cache_precision,
            # Without a hint OpenVINO computes in bfloat16 wherever the processor can: an answer would depend on the
            # machine, and on the other items of the same batch.
            "INFERENCE_PRECISION_HINT": settings.precision,
        }
        if pieces is None:
            return ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)
        tokenizer = engine_tokenizer(pieces, min(settings.stop_tokens))
        return ContinuousBatchingPipeline(folder, tokenizer, scheduler, "CPU", **properties)

    return make
