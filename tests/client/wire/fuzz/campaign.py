"""Many episodes, one after the other."""

from __future__ import annotations

import faulthandler
import gc
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.client.wire.fuzz.driver import Episode
from tests.client.wire.fuzz.mutation import Mutator, recorded
from tests.client.wire.fuzz.record import CORPUS

__all__ = ["fuzz"]

HANG_S = 120.0
"""A thousand episodes take about a second."""
LEAK_BLOCKS = 500
"""The blocks that may be added after the first tenth: a few for each new line of the figures."""
LEAK_MIB = 8
"""What the process may grow by after its first tenth; ten million frames of 50 bytes are 500. True of a process that
does nothing else."""


def fuzz(
    mutated: int, seed: int = 0, first: int = 0, report: Callable[[str], None] = lambda line: None
) -> Counter[str]:
    """Read frames until so many were mutated ones.

    Args:
        mutated: how many.
        seed: another one gives other frames.
        first: the number of the episode to begin with.
        report: is given a line now and then that says how far it is.

    Returns:
        How many frames were read, and how often connections and calls ended in which way.

    Raises:
        AssertionError: a promise was broken; the note names the episode.
    """
    recordings, found = recorded(CORPUS), Counter[str]()
    random = Random()
    mutator = Mutator(recordings, random)
    number, resident, blocks, started = first, 0.0, 0, time.monotonic()
    while found["mutated frames"] < mutated:
        random.seed(seed << 40 | number)
        if number % 1000 == 0:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        episode = Episode(number, random, mutator)
        try:
            episode.run(found)
        except BaseException as error:
            error.add_note(f"again: python -m tests.client.wire.fuzz --seed {seed} --first {number}")
            raise
        number += 1
        found["frames"] += episode.frames
        found["mutated frames"] += episode.mutated
        if not blocks and found["mutated frames"] > mutated / 10:
            resident, blocks = _resident_mib(), _blocks()
        if number % 50_000 == 0:
            report(f"{found['mutated frames']:,} frames, {time.monotonic() - started:.0f} s")
    faulthandler.cancel_dump_traceback_later()
    assert _blocks() < blocks + LEAK_BLOCKS, "objects leak"
    assert _resident_mib() < resident + LEAK_MIB, "memory leaks"
    found["connections"] = number - first
    return found


def _blocks() -> int:
    """The blocks that Python has allocated: every object, also the ones that the garbage collector does not follow."""
    gc.collect()
    return sys.getallocatedblocks()


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
