"""Sound files that tests make."""

import io

import numpy as np
import soundfile


def tone(samples: int, rate: int = 16_000, hertz: float = 440.0) -> np.ndarray:
    """A sine of amplitude 0.5: float32 [samples]."""
    return np.float32(0.5 * np.sin(2 * np.pi * hertz / rate * np.arange(samples)))


def encoded(sound: np.ndarray, rate: int = 16_000, kind: str = "WAV", codec: str | None = None) -> bytes:
    """The file of a sound [samples] or [samples, channels]."""
    file = io.BytesIO()
    soundfile.write(file, sound, rate, format=kind, subtype=codec)
    return file.getvalue()
