"""Cut streams into overlapping frames: each chunk gives the frames that it completes, and the rest waits for the next.

A stream's state is a tail of samples, always shorter than a frame. Frames of a stream do not depend on how it was cut
into chunks.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    size: int = 576
    hop: int = 512
    context: int = 64
    pad: bool = True
    max_frames: int = 1024

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        for name, least, most in (("hop", 1, self.size), ("context", 0, self.size - 1)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"parameter {name}: found {getattr(self, name)}, wanted {least} to {most}")
        if self.max_frames < 1:
            raise ValueError(f"parameter max_frames: found {self.max_frames}, wanted at least 1")


class Frames:
    """Streams by the ids of their sequences.

    Args:
        settings: the step's parameters.
        most: streams that are kept; a further one takes the place of that which waited longest.
    """

    def __init__(self, settings: Settings, most: int) -> None:
        self._settings = settings
        self._most = most
        self._tails: OrderedDict[int | str, np.ndarray] = OrderedDict()

    def __len__(self) -> int:
        """Number of streams that are kept."""
        return len(self._tails)

    def frames(self, stream: int | str, chunk: np.ndarray, *, start: bool, end: bool) -> np.ndarray:
        """The frames that the next chunk of a stream completes: float32 [frames, size], at least one.

        A chunk that is refused leaves its stream as it was; a refused first or last one ends it.

        Args:
            stream: the id of the stream.
            chunk: float32 [samples].
            start: whether the stream begins with this chunk; one of the same id is forgotten.
            end: whether it is the last; the stream is forgotten.

        Raises:
            ValueError: the stream has not begun, a sample is not a finite number, or the chunk gives no frame or too
                many.
        """
        kept = self._tails.pop(stream, None) if start or end else self._tails.get(stream)
        if start:
            kept = np.zeros(self._settings.context, dtype=np.float32)
        elif kept is None:
            raise ValueError(f"sequence {stream} has not begun here, or was idle for too long; start it again")
        frames, tail = cut(kept, chunk, self._settings, end=end)
        if not end:
            self._tails[stream] = tail
            self._tails.move_to_end(stream)
            if len(self._tails) > self._most:
                self._tails.popitem(last=False)
        return frames


def cut(tail: np.ndarray, chunk: np.ndarray, settings: Settings, *, end: bool) -> tuple[np.ndarray, np.ndarray]:
    """The frames [frames, size] of a stream's tail and its next chunk, and the tail after them.

    Raises:
        ValueError: a sample is not a finite number, or there are no frames or too many.
    """
    size, hop = settings.size, settings.hop
    length = len(tail) + len(chunk)
    count = max(0, length - size + hop) // hop
    left = length - count * hop  # samples from the beginning of the first frame that is not complete
    padding = size - left if end and settings.pad and (left > size - hop or not count) else 0
    count += padding > 0
    if not count:
        raise ValueError(f"the chunk of {len(chunk)} samples completes no frame, wanted at least {size - len(tail)}")
    if count > settings.max_frames:
        raise ValueError(f"the chunk gives {count} frames; at most {settings.max_frames} are given (max_frames)")
    if not np.isfinite(chunk).all():
        raise ValueError("a sample is not a finite number")
    samples = np.concatenate([tail, chunk, np.zeros(padding, dtype=np.float32)])
    frames = np.ascontiguousarray(sliding_window_view(samples, size)[::hop])
    return frames, samples[count * hop :].copy()
