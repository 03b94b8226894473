"""frames without Triton: streams in chunks against the frames of the whole sound."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from frames_core import Frames, Settings
from numpy.lib.stride_tricks import sliding_window_view

from tests.python_backends.adapters import Request, adapter

SMALL = {"size": 5, "hop": 3, "context": 2}


def whole(sound: np.ndarray, size: int, hop: int, context: int) -> np.ndarray:
    """The frames of a whole sound, the last filled with zeros."""
    count = max(1, -(-(context + len(sound) - size) // hop) + 1)
    padded = np.zeros((count - 1) * hop + size, np.float32)
    padded[context : context + len(sound)] = sound
    return sliding_window_view(padded, size)[::hop]


def chunks(sound: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    """The sound in chunks that end at these samples, and the rest."""
    return np.split(sound, cuts)


def heard(streams: Frames, name: int | str, parts: list[np.ndarray]) -> np.ndarray:
    """All frames of a stream."""
    last = len(parts) - 1
    given = [streams.frames(name, part, start=n == 0, end=n == last) for n, part in enumerate(parts)]
    return np.concatenate(given)


@pytest.mark.parametrize(
    ("size", "hop", "context"), [(5, 3, 2), (5, 3, 0), (5, 5, 0), (5, 5, 4), (4, 1, 3), (1, 1, 0), (576, 512, 64)]
)
def test_frames_do_not_depend_on_the_chunks(size: int, hop: int, context: int, random: np.random.Generator) -> None:
    """A stream in chunks of any size that completes a frame gives the frames of its sound."""
    for length in range(3 * size + 4) if size < 9 else (1, 511, 512, 513, 5_000):
        sound = random.normal(size=length).astype(np.float32)
        cuts, place = [], size - context
        while place < length:
            cuts.append(place)
            place += hop + int(random.integers(0, 2 * hop))
        streams = Frames(Settings(size, hop, context), 1)
        given = heard(streams, 1, chunks(sound, cuts))
        assert given.dtype == np.float32
        np.testing.assert_array_equal(given, whole(sound, size, hop, context))
        assert len(streams) == 0


def test_frames_of_silero() -> None:
    """The defaults are frames of 512 samples, each after the last 64 of the frame before."""
    sound = np.arange(1, 1025, dtype=np.float32)
    given = Frames(Settings(), 1).frames(1, sound, start=True, end=False)
    np.testing.assert_array_equal(given[0], [*np.zeros(64), *sound[:512]])
    np.testing.assert_array_equal(given[1], sound[448:])


def test_without_padding_the_rest_is_dropped() -> None:
    """A last chunk that completes no frame has no answer then, and ends its stream all the same."""
    sound = np.arange(1, 9, dtype=np.float32)
    streams = Frames(Settings(**SMALL, pad=False), 1)
    assert heard(streams, 1, chunks(sound, [4])).tolist() == [[0, 0, 1, 2, 3], [2, 3, 4, 5, 6]]
    with pytest.raises(ValueError, match="the chunk of 2 samples completes no frame, wanted at least 3"):
        heard(streams, 1, [sound[:3], sound[:2]])
    assert len(streams) == 0


def test_an_empty_last_chunk_ends_the_stream() -> None:
    """It gives the rest, and a frame of silence where there is none."""
    streams = Frames(Settings(**SMALL), 1)
    assert heard(streams, 1, chunks(np.float32([1, 2, 3, 4]), [4])).tolist() == [[0, 0, 1, 2, 3], [2, 3, 4, 0, 0]]
    assert heard(streams, 1, chunks(np.float32([1, 2, 3]), [3])).tolist() == [[0, 0, 1, 2, 3], [2, 3, 0, 0, 0]]
    assert heard(streams, 1, [np.zeros(0, np.float32)]).tolist() == [[0] * 5]


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        ([], "the chunk of 0 samples completes no frame, wanted at least 2"),
        ([7], "the chunk of 1 samples completes no frame, wanted at least 2"),
        ([5, float("nan"), 7], "a sample is not a finite number"),
        ([5, 6, float("-inf")], "a sample is not a finite number"),
        (range(15), "the chunk gives 5 frames; at most 4 are given"),
    ],
)
def test_a_refused_chunk_leaves_its_stream(chunk: list[float], error: str) -> None:
    """The stream goes on as if it had not come."""
    sound = np.arange(1, 9, dtype=np.float32)
    streams = Frames(Settings(**SMALL, max_frames=4), 1)
    first = streams.frames("a", sound[:4], start=True, end=False)
    with pytest.raises(ValueError, match=error):
        streams.frames("a", np.float32(chunk), start=False, end=False)
    rest = streams.frames("a", sound[4:], start=False, end=True)
    np.testing.assert_array_equal(np.concatenate([first, rest]), whole(sound, **SMALL))


def test_a_very_long_chunk_is_refused_before_it_takes_memory() -> None:
    """Frames that overlap much are many times their samples."""
    long = np.broadcast_to(np.float32(0), (1 << 50,))
    with pytest.raises(ValueError, match="at most 1024 are given"):
        Frames(Settings(size=1000, hop=1), 1).frames(1, long, start=True, end=False)


@pytest.mark.parametrize("flags", [{"start": True, "end": False}, {"start": False, "end": True}])
def test_a_refused_first_or_last_chunk_ends_the_stream(flags: dict[str, bool]) -> None:
    """Its caller begins again; nothing of the stream before is left."""
    streams = Frames(Settings(**SMALL), 1)
    streams.frames(1, np.float32([1, 2, 3]), start=True, end=False)
    with pytest.raises(ValueError, match="not a finite number"):
        streams.frames(1, np.float32([1, 2, np.nan]), **flags)
    with pytest.raises(ValueError, match="sequence 1 has not begun here, or was idle for too long; start it again"):
        streams.frames(1, np.float32([1, 2, 3]), start=False, end=False)


def test_streams_that_alternate(random: np.random.Generator) -> None:
    """Each has its own samples; a stream that begins again under its id, without an end before, has new ones."""
    streams = Frames(Settings(**SMALL), 2)
    one, other, again = random.normal(size=(3, 9)).astype(np.float32)
    given: dict[str, list[np.ndarray]] = {"one": [], "other": []}
    for start in (0, 4):
        for name, sound in (("one", one), ("other", other)):
            given[name].append(streams.frames(name, sound[start : start + 4], start=start == 0, end=False))
    given["other"].append(streams.frames("other", other[8:], start=False, end=True))
    np.testing.assert_array_equal(np.concatenate(given["other"]), whole(other, **SMALL))
    np.testing.assert_array_equal(np.concatenate(given["one"]), whole(one, **SMALL)[:2])
    np.testing.assert_array_equal(heard(streams, "one", chunks(again, [4])), whole(again, **SMALL))


def test_streams_without_an_end_are_bounded() -> None:
    """The one that waited longest goes first."""
    streams = Frames(Settings(**SMALL), 2)
    chunk = np.ones(3, np.float32)
    for name in (1, 2):
        streams.frames(name, chunk, start=True, end=False)
    streams.frames(1, chunk, start=False, end=False)
    streams.frames(3, chunk, start=True, end=False)
    assert len(streams) == 2
    streams.frames(1, chunk, start=False, end=False)
    with pytest.raises(ValueError, match="sequence 2 has not begun here"):
        streams.frames(2, chunk, start=False, end=False)


@pytest.mark.parametrize(
    ("name", "value"), [("hop", 0), ("hop", 577), ("context", -1), ("context", 576), ("max_frames", 0), ("size", 0)]
)
def test_unfit_parameters_are_refused(name: str, value: int) -> None:
    """A hop beyond the frame would drop samples, and a context as long as a frame would be a frame of nothing."""
    with pytest.raises(ValueError, match=r"parameter \w+: found -?\d+, wanted"):
        Settings(**{name: value})


class Chunk(Request):
    """A request of a sequence."""

    def __init__(self, stream: int | str, flags: int, sound: list[float]) -> None:
        super().__init__(waveform=np.float32([sound]))
        self._stream, self._flags = stream, flags

    def correlation_id(self) -> int | str:
        """The id of its sequence."""
        return self._stream

    def flags(self) -> int:
        """1 where the sequence starts, 2 where it ends."""
        return self._flags


def test_the_adapter_reads_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of several sequences come together, and a bad one fails alone."""
    model: Any = adapter("frames", monkeypatch, size="4", hop="2", context="2")
    one, other = model.execute([Chunk(1, 1, [1, 2, 3]), Chunk("b", 3, [7, 8])])
    assert one.tolist() == [[[0, 0, 1, 2]]]
    assert other.tolist() == [[[0, 0, 7, 8]]]
    failed, last = model.execute([Chunk("b", 0, [1, 2]), Chunk(1, 2, [4, 5])])
    assert failed.kind == "invalid"
    assert failed.text == "model 'm': input 'waveform': sequence b has not begun here, or was idle for too long; " + (
        "start it again"
    )
    assert last.tolist() == [[[1, 2, 3, 4], [3, 4, 5, 0]]]


@pytest.mark.parametrize(("oldest", "room"), [({"max_candidate_sequences": 3}, 6), ({}, 2)])
def test_the_adapter_has_room_for_the_sequences_of_triton(
    oldest: dict[str, int], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For twice as many, because the step is not told of those that were idle for too long."""
    model = adapter("frames", monkeypatch)
    config = json.dumps({"sequence_batching": {"oldest": oldest}})
    model.initialize({"model_config": config, "model_name": "m", "model_repository": "", "model_version": "1"})
    for name in range(room + 1):
        model.streams.frames(name, np.zeros(512, np.float32), start=True, end=False)
    assert len(model.streams) == room
