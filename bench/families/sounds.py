"""Recipes of the pages about sound."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.families.checkpoints import sounds, speech_checkpoint
from bench.families.recipes import Answer, Item, Recipe, from_json, items_of

if TYPE_CHECKING:
    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["RECIPES", "waveform"]

WAV2VEC2 = {
    "conv_dim": [512] * 7,
    "num_conv_pos_embeddings": 128,
    "num_conv_pos_embedding_groups": 16,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}


def waveform(encoded: str | bytes) -> np.ndarray:
    """The samples of a file, float32 from -1 to 1."""
    assert isinstance(encoded, bytes)  # noqa: S101  a sound is a file
    with wave.open(io.BytesIO(encoded)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def recognizer(place: Kitchen, small: bool) -> list[Item]:
    """A network of letters, and sounds of several lengths."""
    speech_checkpoint(place.folder / "wav2vec2", sizes={} if small else WAV2VEC2)
    (place.folder / "speech.wav").write_bytes(sounds()[1])
    return items_of("audio", sounds() * 8)


def transcripts(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """transformers' texts."""
    from transformers import pipeline

    reference = pipeline("automatic-speech-recognition", model=str(folder / "wav2vec2"))
    return [Answer((), [reference(waveform(item["audio"]))["text"]]) for item in items]


def spoken(reply: Reply) -> Answer:
    """The text that is spoken."""
    return Answer((), [reply["text"].item().decode()])


RECIPES = {
    "speech-recognition": Recipe("speech", "wav2vec2", "sounds:Recognizer", recognizer, transcripts, spoken, from_json)
}
