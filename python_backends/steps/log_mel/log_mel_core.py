"""Log-mel features as Whisper and Kaldi compute them: frames, spectrum, mel filters, logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1024  # frames whose spectra are computed together
WINDOWS = {
    "hanning": np.hanning,
    "hamming": np.hamming,
    "rectangular": np.ones,
    "povey": lambda size: np.hanning(size) ** 0.85,
}
EPSILON = float(np.finfo(np.float32).eps)  # the least energy whose logarithm Kaldi takes


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    kind: str = "whisper"
    rate: int = 16_000
    mels: int = 80
    window: int = 400
    hop: int = 160
    high_frequency: float = 8_000.0
    low_frequency: float = 20.0
    window_type: str = "povey"
    preemphasis: float = 0.97
    snip_edges: bool = True
    scale: float = 1.0
    subtract_mean: bool = False
    mean: float = 0.0
    std: float = 1.0
    length: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        for name, choices in (("kind", ("whisper", "kaldi")), ("window_type", tuple(WINDOWS))):
            if getattr(self, name) not in choices:
                raise ValueError(f"parameter {name}: found '{getattr(self, name)}', wanted one of {', '.join(choices)}")
        for name, least in (("rate", 1000), ("mels", 1), ("window", 2), ("hop", 1), ("length", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"parameter {name}: found {getattr(self, name)}, wanted at least {least}")
        if not self.low < self.high <= self.rate / 2:
            raise ValueError(
                f"parameter high_frequency: found {self.high_frequency}, wanted more than {self.low:g} and at most"
                f" {self.rate / 2:g}, half the rate"
            )
        if not 0 <= self.preemphasis <= 1:
            raise ValueError(f"parameter preemphasis: found {self.preemphasis}, wanted 0 to 1")
        if not (np.isfinite([self.scale, self.mean, self.std]).all() and self.std > 0):
            raise ValueError(f"parameter std: found {self.std}, wanted a number above 0; scale and mean finite")

    @property
    def low(self) -> float:
        """The lower end of the filters."""
        return self.low_frequency if self.kind == "kaldi" else 0.0

    @property
    def high(self) -> float:
        """The upper end of the filters."""
        above = self.high_frequency > 0 or self.kind == "whisper"
        return self.high_frequency if above else self.rate / 2 + self.high_frequency

    @property
    def least(self) -> int:
        """Samples that a frame of Kaldi's takes, of which the mirrored ends may be half."""
        return self.window if self.snip_edges else max(self.hop - self.hop // 2, self.window - self.window // 2)


class LogMel:
    """Features of one kind, with their window and filters at hand."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def features(self, waveforms: np.ndarray, samples: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The features of a request and the number of each sound's frames, int32 [batch, 1].

        Args:
            waveforms: float32 [batch, length].
            samples: how many of each waveform's samples are sound; what follows is padding.

        Raises:
            ValueError: a waveform is too short for a frame, or has a number that is not finite.
        """
        for item, (waveform, count) in enumerate(zip(waveforms, samples, strict=True)):
            if not 0 < count <= len(waveform):
                raise ValueError(f"item {item}: samples is {count}, wanted 1 to {len(waveform)}, the waveform's length")
            if not np.isfinite(waveform).all():
                raise ValueError(f"item {item}: a sample is not a finite number")
        return (self._whisper if self._settings.kind == "whisper" else self._kaldi)(waveforms, samples)

    def _whisper(self, waveforms: np.ndarray, samples: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Features [batch, mels, frames] of whole waveforms: Whisper hears the silence of the padding, too."""
        settings = self._settings
        if waveforms.shape[1] < settings.hop:
            raise ValueError(f"{waveforms.shape[1]} samples give no frame, wanted at least {settings.hop}")
        features = np.empty((len(waveforms), settings.mels, waveforms.shape[1] // settings.hop), dtype=np.float32)
        for row, waveform in zip(features, waveforms, strict=True):
            padded = np.pad(waveform, settings.window // 2, mode="reflect")
            energies = self._energies(self._framed(padded)[: row.shape[1]], settings.window)
            logarithms = np.log10(np.maximum(energies, 1e-10))
            row[:] = (np.maximum(logarithms, logarithms.max() - 8).T + 4) / 4
        frames = [min(-(-count // settings.hop), features.shape[2]) for count in samples]
        return features, np.array(frames, dtype=np.int32).reshape(-1, 1)

    def _kaldi(self, waveforms: np.ndarray, samples: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Features [batch, frames, mels] of the sounds without their padding, then padded with zeros."""
        settings = self._settings
        rows = [
            self._fbank(row[:count], item) for item, (row, count) in enumerate(zip(waveforms, samples, strict=True))
        ]
        length = settings.length or max((len(row) for row in rows), default=0)
        features = np.zeros((len(rows), length, settings.mels), dtype=np.float32)
        for place, row in zip(features, rows, strict=True):
            place[: len(row)] = row[:length]
        frames = np.array([min(len(row), length) for row in rows], dtype=np.int32).reshape(-1, 1)
        return (features - np.float32(settings.mean)) / np.float32(settings.std), frames

    def _fbank(self, waveform: np.ndarray, item: int) -> np.ndarray:
        settings = self._settings
        if len(waveform) < settings.least:
            raise ValueError(f"item {item}: {len(waveform)} samples give no frame, wanted at least {settings.least}")
        sound = waveform.astype(np.float64) * settings.scale
        if not settings.snip_edges:
            sound = _mirrored(sound, settings.window, settings.hop)
        energies = self._energies(self._framed(sound), 1 << (settings.window - 1).bit_length())
        features = np.log(np.maximum(energies, EPSILON))
        return features - features.mean(axis=0) if settings.subtract_mean else features

    def _framed(self, sound: np.ndarray) -> np.ndarray:
        """Overlapping frames [frames, window], without a copy."""
        frames: np.ndarray = sliding_window_view(sound, self._settings.window)[:: self._settings.hop]
        return frames

    def _energies(self, frames: np.ndarray, size: int) -> np.ndarray:
        """The energy in each mel filter [frames, mels]; `size` is the length of the transform."""
        blocks = [frames[start : start + BLOCK] for start in range(0, len(frames), BLOCK)]
        return np.concatenate([self._energy(block.astype(np.float64), size) for block in blocks])

    def _energy(self, frames: np.ndarray, size: int) -> np.ndarray:
        settings = self._settings
        if settings.kind == "kaldi":
            frames = frames - frames.mean(axis=1, keepdims=True)
            before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
            frames = frames - settings.preemphasis * before
        spectrum = np.fft.rfft(frames * self._window, size, axis=1)
        energies: np.ndarray = (spectrum.real**2 + spectrum.imag**2) @ self._filters
        return energies

    @cached_property
    def _window(self) -> np.ndarray:
        size = self._settings.window
        if self._settings.kind == "whisper":
            return np.hanning(size + 1)[:-1]
        return np.asarray(WINDOWS[self._settings.window_type](size), dtype=np.float64)

    @cached_property
    def _filters(self) -> np.ndarray:
        """The mel filters [bins, mels]."""
        return whisper_filters(self._settings) if self._settings.kind == "whisper" else kaldi_filters(self._settings)


def whisper_filters(settings: Settings) -> np.ndarray:
    """Triangles over hertz, equally far apart on Slaney's scale and of equal area: [bins, mels]."""
    bins = np.linspace(0, settings.rate // 2, settings.window // 2 + 1)
    edges = _slaney_hertz(np.linspace(0, _slaney_mel(settings.high), settings.mels + 2))
    widths = np.diff(edges)
    slopes = edges - bins[:, None]
    triangles = np.maximum(0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    return triangles * 2 / (edges[2:] - edges[:-2])


def _slaney_mel(hertz: float) -> float:
    return float(hertz * 3 / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4))


def _slaney_hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mels - 15)))


def kaldi_filters(settings: Settings) -> np.ndarray:
    """Triangles over mels, equally far apart: [bins, mels]. Kaldi leaves the last bin out.

    They are computed in float32 as torchaudio does: its rounding of the narrow filters can be seen in the features.
    """
    size = 1 << (settings.window - 1).bit_length()
    low, high = (1127 * np.log(1 + hertz / 700) for hertz in (settings.low, settings.high))
    width = np.float32((high - low) / (settings.mels + 1))
    places = np.arange(settings.mels, dtype=np.float32)
    left, center, right = (np.float32(low) + (places + more) * width for more in np.float32([0, 1, 2]))
    hertz = np.float32(settings.rate / size) * np.arange(size // 2, dtype=np.float32)
    bins = np.float32(1127) * np.log(1 + hertz / np.float32(700))[:, None]
    triangles = np.maximum(0, np.minimum((bins - left) / (center - left), (right - bins) / (right - center)))
    return np.pad(triangles.astype(np.float64), ((0, 1), (0, 0)))


def _mirrored(sound: np.ndarray, window: int, hop: int) -> np.ndarray:
    """The sound with as much of its mirror at both ends as a frame for each hop takes."""
    frames = (len(sound) + hop // 2) // hop
    before = window // 2 - hop // 2
    turned = sound[::-1]
    start = turned[len(turned) - before :] if before > 0 else turned[:0]
    whole = np.concatenate([start, sound[max(0, -before) :], turned])
    return whole[: (frames - 1) * hop + window]
