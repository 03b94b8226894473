"""`tritonkit new --hf` for Whisper's encoder: `decode_audio` and `log_mel` in front of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tritonkit.repository.scaffold.hf_checkpoint import AUTO_CLASSES, PROCESSOR, Encoder
from tritonkit.repository.scaffold.hf_parts import Parts, label_parts
from tritonkit.repository.scaffold.hf_sounds import EXAMPLE, extractor_facts, tone

__all__ = ["whisper_parts"]

_EXTRACTOR = "WhisperFeatureExtractor"
_HIGHEST_HERTZ = 8_000
"""Upper end of Whisper's mel filters, whatever the rate."""
_FRAMES_A_POSITION = 2
"""Frames of the spectrogram for each position of the encoder, whose second convolution skips every other one."""
_RANGES = {
    "sampling_rate": range(2 * _HIGHEST_HERTZ, 192_001),
    "feature_size": range(1, 1_025),
    "n_fft": range(2, 1 << 16),
    "hop_length": range(1, 1 << 16),
    "chunk_length": range(1, 601),
}
"""Whole numbers of the feature extractor that become parameters."""


@dataclass(frozen=True)
class _Sizes:
    """Numbers of the feature extractor."""

    rate: int
    mels: int
    window: int
    hop: int
    seconds: int

    @property
    def frames(self) -> int:
        """The frames of each sound, which is padded to the same length."""
        return self.seconds * self.rate // self.hop


def whisper_parts(encoder: Encoder) -> Parts:
    """The parts for Whisper's encoder: classes of sound, or the features of each position."""
    _check_ranges(encoder, encoder.read(PROCESSOR))  # before transformers makes filters of these sizes
    facts = extractor_facts(encoder)
    kind = facts.get("feature_extractor_type")
    if kind != _EXTRACTOR or encoder.config.model_type != "whisper":
        raise encoder.refusal(
            PROCESSOR,
            f"features by {kind} for {encoder.architecture}",
            f"Whisper, with features by {_EXTRACTOR}",
            "serve it with --torch, or from an ONNX file",
        )
    sizes, notes = _sizes(encoder, facts)
    base = _base(encoder, sizes, notes)
    if encoder.task != "AUDIO_CLASSIFICATION":
        return base
    labels = label_parts(encoder.labels, encoder.config)
    return replace(
        base,
        loader=AUTO_CLASSES[encoder.task],
        part="",
        outputs={"logits": {"dtype": "FP32", "shape": [len(encoder.labels)]}},
        pipeline=[*base.pipeline, labels.step],
        files={**base.files, **labels.files},
        quality=["metric: accuracy", "samples: {folder: samples}   # a folder of sounds for each label"],
    )


def _base(encoder: Encoder, sizes: _Sizes, notes: list[str]) -> Parts:
    # Whisper hears the silence after a sound, so each sound is padded to the whole chunk.
    decode = {"rate": sizes.rate, "max_seconds": sizes.seconds, "length": sizes.seconds * sizes.rate}
    log_mel = {"rate": sizes.rate, "mels": sizes.mels, "window": sizes.window, "hop": sizes.hop}
    features = [sizes.frames // _FRAMES_A_POSITION, encoder.config.d_model]
    return Parts(
        loader="WhisperModel",
        part="encoder",
        inputs={"input_features": {"dtype": "FP32", "shape": [sizes.mels, sizes.frames]}},
        outputs={"last_hidden_state": {"dtype": "FP32", "shape": features}},
        pipeline=[
            {"step": "decode_audio", "parameters": decode},
            {"step": "log_mel", "parameters": log_mel, "outputs": {"features": "input_features"}},
            "network",
        ],
        example={"audio": {"file": EXAMPLE}},
        quality=["metric: cosine", "samples: {folder: samples}   # sounds"],
        files={EXAMPLE: tone(sizes.rate)},
        notes=notes,
    )


def _sizes(encoder: Encoder, facts: Mapping[str, Any]) -> tuple[_Sizes, list[str]]:
    """The numbers of the feature extractor, which fit the network, and notes on what the steps do differently."""
    for name, wanted in (("padding_value", 0), ("padding_side", "right")):
        if facts.get(name, wanted) != wanted:
            raise encoder.refusal(f"{PROCESSOR} {name}", repr(facts[name])[:120], f"{wanted}: zeros follow the sound")
    sizes = _Sizes(*(facts[name] for name in _RANGES))
    for name, value, wanted in (
        ("feature_size", sizes.mels, encoder.config.num_mel_bins),
        ("chunk_length * sampling_rate / hop_length", sizes.frames, _longest(encoder)),
    ):
        if value != wanted:
            raise encoder.refusal(
                f"{PROCESSOR} {name}",
                f"{value:,}",
                f"{wanted:,}, as config.json has it",
                "copy both files again from the same checkpoint",
            )
    noise = facts.get("dither")
    return sizes, ["# transformers adds noise to the sound (dither), which log_mel does not."] if noise else []


def _check_ranges(encoder: Encoder, facts: Mapping[str, Any]) -> None:
    """Check the numbers that a file gives; transformers has defaults for the others."""
    for name, allowed in _RANGES.items():
        encoder.processor_number(name, facts.get(name, allowed.start), allowed)


def _longest(encoder: Encoder) -> int:
    """Frames that the network takes."""
    return int(encoder.config.max_source_positions) * _FRAMES_A_POSITION
