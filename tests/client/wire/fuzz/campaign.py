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
"""Allowed growth of the process after its first tenth, if it does nothing else; ten million frames are 500 MB."""


def fuzz(
    mutated: int, seed: int = 0, first: int = 0, report: Callable[[str], None] = lambda line: None
) -> Counter[str]:
    """Read frames until this many were mutated ones.

    Args:
        mutated: the number of mutated frames.
        seed: another seed gives other frames.
        first: the number of the first episode.
        report: gets a line about the progress now and then.

    Returns:
        The number of frames that were read, and counts of the ways in which connections and calls ended.

    Raises:
        AssertionError: a promise was broken; the note names the episode.
    """
    recordings, counts = recorded(CORPUS), Counter[str]()
    random = Random()
    mutator = Mutator(recordings, random)
    number, resident, blocks, started = first, 0.0, 0, time.monotonic()
    while counts["mutated frames"] < mutated:
        random.seed(seed << 40 | number)
        if number % 1000 == 0:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        episode = Episode(number, random, mutator)
        try:
            episode.run(counts)
        except BaseException as error:
            error.add_note(f"again: python -m tests.client.wire.fuzz --seed {seed} --first {number}")
            raise
        number += 1
        counts["frames"] += episode.frames
        counts["mutated frames"] += episode.mutated
        if not blocks and counts["mutated frames"] > mutated / 10:
            resident, blocks = _resident_mib(), _blocks()
        if number % 50_000 == 0:
            report(f"{counts['mutated frames']:,} frames, {time.monotonic() - started:.0f} s")
    faulthandler.cancel_dump_traceback_later()
    assert _blocks() < blocks + LEAK_BLOCKS, "objects leak"
    assert _resident_mib() < resident + LEAK_MIB, "memory leaks"
    counts["connections"] = number - first
    return counts


def _blocks() -> int:
    """The blocks that Python has allocated: every object, also the ones that the garbage collector does not follow."""
    gc.collect()
    return sys.getallocatedblocks()


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
