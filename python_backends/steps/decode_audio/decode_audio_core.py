"""Decode sound files into mono waveforms of one rate.

A file is read in blocks that are mixed to mono as they come, so memory follows the seconds of sound, and not what a
header says.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import soxr
from decode_audio_container import complete

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1 << 18  # samples of all channels that are read at a time
RATES = (1_000, 384_000)  # of a file; resampling from others would take much memory
UNKNOWN = 1 << 62  # as libsndfile counts the samples of a stream whose header has no number
CODECS = {
    "WAV": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "FLAC": {"PCM_S8", "PCM_16", "PCM_24"},
    "Ogg": {"VORBIS", "OPUS"},
}


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    rate: int = 16_000
    max_seconds: float = 30.0
    buckets: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
    length: int = 0
    multiple: int = 1
    normalize: bool = False
    attention_mask: bool = False
    max_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        least, most = RATES
        if not least <= self.rate <= most:
            raise ValueError(f"parameter rate: found {self.rate}, wanted {least} to {most}")
        if not 0 < self.max_seconds * self.rate < float("inf"):
            raise ValueError(f"parameter max_seconds: found {self.max_seconds}, wanted a finite number above 0")
        if not all(0 < bucket < float("inf") for bucket in self.buckets):
            raise ValueError(f"parameter buckets: found {self.buckets}, wanted seconds above 0")
        if self.length and self.length < self.most_samples:
            raise ValueError(
                f"parameter length: found {self.length}, wanted at least {self.most_samples}, the samples of"
                " max_seconds, or 0"
            )
        for name in ("multiple", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"parameter {name}: found {getattr(self, name)}, wanted at least 1")

    @property
    def most_samples(self) -> int:
        """Samples of the longest waveform."""
        return ceil(self.max_seconds * self.rate)

    def padded(self, samples: int) -> int:
        """The length that a request is padded to whose longest waveform has this many samples."""
        if self.length:
            return self.length
        shorter = (ceil(seconds * self.rate) for seconds in sorted(self.buckets) if seconds < self.max_seconds)
        lengths = (*shorter, self.most_samples) if self.buckets else ()
        length = next((length for length in lengths if length >= samples), samples)
        return ceil(length / self.multiple) * self.multiple


def decode_audio(data: bytes, settings: Settings) -> np.ndarray:
    """The waveform of a WAV, FLAC or Ogg file: float32 [samples], at least one.

    Raises:
        ValueError: the file is too large, too long, empty, truncated, damaged, or not in one of these formats.
    """
    if len(data) > settings.max_bytes:
        raise ValueError(
            f"the file has {len(data)} bytes; at most {settings.max_bytes} are taken (parameter max_bytes)"
        )
    container, data = complete(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check_header(file, container, settings)
            rate = file.samplerate
            mono = _mono(file, container, settings)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ").rstrip(".")
        raise ValueError(f"the {container} file is damaged: {reason}") from None
    if rate != settings.rate:
        mono = soxr.resample(mono, rate, settings.rate)
    waveform = mono[: settings.most_samples] if len(mono) else np.zeros(1, dtype=np.float32)
    if settings.normalize:
        waveform = _normalized(waveform)
    if not np.isfinite(waveform).all():  # of the file, or of a sum beyond float32 that resampling makes
        raise ValueError(f"the {container} file has samples that are not finite numbers, or too large ones")
    return waveform


def pad(waveforms: Sequence[np.ndarray], settings: Settings) -> dict[str, np.ndarray]:
    """The outputs of a request with these waveforms: all of one length, with zeros after the sound."""
    samples = np.array([[len(waveform)] for waveform in waveforms], dtype=np.int32).reshape(-1, 1)
    length = settings.padded(int(samples.max(initial=1)))
    padded = np.zeros((len(waveforms), length), dtype=np.float32)
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = waveform
    outputs = {"waveform": padded, "samples": samples}
    if settings.attention_mask:
        outputs["attention_mask"] = (np.arange(length) < samples).astype(np.int64)
    return outputs


def _check_header(file: soundfile.SoundFile, container: str, settings: Settings) -> None:
    if file.subtype not in CODECS[container]:
        codecs = ", ".join(sorted(CODECS[container]))
        raise ValueError(f"the {container} file has samples of the kind {file.subtype}, wanted one of {codecs}")
    least, most = RATES
    if not least <= file.samplerate <= most:
        raise ValueError(f"the {container} file has {file.samplerate} samples per second, wanted {least} to {most}")
    if file.frames >= UNKNOWN:
        raise ValueError(f"the {container} file does not say how many samples it has; wanted that in its header")
    _check_length(file.frames, file.samplerate, settings)


def _check_length(count: int, rate: int, settings: Settings) -> None:
    if count > settings.max_seconds * rate:
        raise ValueError(
            f"the sound has {count / rate:.1f} seconds; at most {settings.max_seconds:g} are taken"
            " (parameter max_seconds)"
        )


def _mono(file: soundfile.SoundFile, container: str, settings: Settings) -> np.ndarray:
    """All samples of a file, float32, each the mean of its channels."""
    blocks: list[np.ndarray] = []
    count = 0
    while len(block := file.read(max(1, BLOCK // file.channels), dtype="float32", always_2d=True)):
        count += len(block)
        _check_length(count, file.samplerate, settings)  # the header may lie
        blocks.append(block[:, 0] if block.shape[1] == 1 else _mean(block))
    if not count:
        raise ValueError(f"the {container} file has no samples")
    if count < file.frames:
        raise ValueError(
            f"the {container} file is truncated: its header says {file.frames} samples of a channel, found {count}"
        )
    return np.concatenate(blocks)


def _mean(block: np.ndarray) -> np.ndarray:
    """The mean of the channels, in float64, because a sum of large samples may be too large for float32."""
    with np.errstate(invalid="ignore"):  # reported once the waveform is whole
        return block.mean(axis=1, dtype=np.float64).astype(np.float32)


def _normalized(waveform: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1, as transformers' Wav2Vec2FeatureExtractor computes it; in float64, which has the squares
    of all float32 numbers."""
    wide = waveform.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return ((wide - wide.mean()) / np.sqrt(wide.var() + 1e-7)).astype(np.float32)
