"""`tritonkit new --hf` for sound: `decode_audio` in front of the network, as its feature extractor works."""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.checkpoint_config import FROM_FOLDER
from tritonkit.repository.export.checkpoint_files import read_errors
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.scaffold.hf_checkpoint import AUTO_CLASSES, PROCESSOR, Encoder
from tritonkit.repository.scaffold.hf_parts import Parts, label_parts

__all__ = ["sound_parts"]

_EXAMPLE = "example.wav"
_WAVEFORMS = "Wav2Vec2FeatureExtractor"
_SECONDS = 30
"""Longest sound that a new model takes."""
_RATES = range(1_000, 192_001)
"""Samples per second of networks for sound; most take 16,000."""
_SHORTEST_S = 0.1
"""Shortest sound: the convolutions in front of such networks need 25 ms for a frame."""


def sound_parts(encoder: Encoder) -> Parts:
    """The parts for a network of waveforms: classes."""
    facts = _extractor(encoder)
    if facts.get("feature_extractor_type") != _WAVEFORMS:
        raise encoder.refusal(
            PROCESSOR,
            f"features by {facts.get('feature_extractor_type')}",
            f"waveforms, as {_WAVEFORMS} gives them",
            "serve it with --torch, or from an ONNX file",
        )
    if encoder.task != "AUDIO_CLASSIFICATION":
        raise encoder.refusal(
            "config.json architectures",
            encoder.architecture,
            "a classifier of sound",
            "serve it with --torch, or from an ONNX file",
        )
    labels = label_parts(encoder.labels, encoder.config)
    base = _base(encoder, facts, {"logits": {"dtype": "FP32", "shape": [len(encoder.labels)]}})
    return replace(
        base,
        pipeline=[*base.pipeline, labels.step],
        files={**base.files, **labels.files},
        quality=["metric: accuracy", "samples: {folder: samples}   # a folder of sounds for each label"],
    )


def _base(encoder: Encoder, facts: Mapping[str, Any], outputs: Mapping[str, Any]) -> Parts:
    rate = facts.get("sampling_rate")
    if isinstance(rate, bool) or not isinstance(rate, int) or rate not in _RATES:
        wanted = f"a whole number from {_RATES.start:,} to {_RATES.stop - 1:,}, in samples per second"
        raise encoder.refusal(f"{PROCESSOR} sampling_rate", repr(rate)[:120], wanted)
    decode = {
        "rate": rate,
        "max_seconds": _SECONDS,
        "buckets": [],  # padding would change the answer
        "normalize": bool(facts.get("do_normalize")),
    }
    return Parts(
        loader=AUTO_CLASSES.get(encoder.task, "AutoModel"),
        inputs={"input_values": {"dtype": "FP32", "shape": ["samples"]}},
        outputs=outputs,
        free_axes={"samples": {"min": int(rate * _SHORTEST_S), "max": rate * _SECONDS}},
        pipeline=[
            {"step": "decode_audio", "parameters": decode, "outputs": {"waveform": "input_values"}},
            "network",
        ],
        example={"audio": {"file": _EXAMPLE}},
        quality=(),
        files={_EXAMPLE: _tone(rate)},
    )


def _extractor(encoder: Encoder) -> dict[str, Any]:
    """The facts of its feature extractor, with transformers' defaults."""
    transformers = need("transformers", "models")
    with read_errors(encoder.folder / PROCESSOR, "a feature extractor of transformers"), quiet():
        extractor = transformers.AutoFeatureExtractor.from_pretrained(str(encoder.folder), **FROM_FOLDER)
        return {**extractor.to_dict(), "feature_extractor_type": type(extractor).__name__}


def _tone(rate: int) -> bytes:
    """A WAV file of half a second in which a tone rises, for warm-up."""
    stream = io.BytesIO()
    values = [int(8000 * math.sin(2 * math.pi * (200 + 300 * n / rate) * n / rate)) for n in range(rate // 2)]
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(struct.pack(f"<{len(values)}h", *values))
    return stream.getvalue()
