"""`tritonkit new --hf` for sound: `decode_audio` in front of the network, as its feature extractor works."""

from __future__ import annotations

import io
import json
import math
import struct
import wave
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.checkpoint_config import FROM_FOLDER
from tritonkit.repository.export.checkpoint_files import read_errors
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.scaffold.hf_checkpoint import AUTO_CLASSES, PROCESSOR, Encoder
from tritonkit.repository.scaffold.hf_parts import Parts, label_parts

__all__ = ["EXAMPLE", "extractor_facts", "sound_parts", "tone"]

EXAMPLE = "example.wav"
"""The file of a model's example."""
_WAVEFORMS = "Wav2Vec2FeatureExtractor"
_VOCABULARY = "vocab.json"
_MOST_TOKENS = 1 << 16
_DECODE_DEFAULTS = {"blank": "<pad>", "word_delimiter": "|", "lowercase": False, "stride": 320, "field": 400}
"""Parameters that ctc_decode has by default."""
_SECONDS = 30
"""Longest sound that a new model takes."""
_RATES = range(1_000, 192_001)
"""Samples per second of networks for sound; most take 16,000."""
_SHORTEST_S = 0.1
"""Shortest sound: the convolutions in front of such networks need 25 ms for a frame."""


def sound_parts(encoder: Encoder) -> Parts:
    """The parts for a network of waveforms: classes, or the text that is spoken."""
    facts = extractor_facts(encoder)
    if facts.get("feature_extractor_type") != _WAVEFORMS:
        raise encoder.refusal(
            PROCESSOR,
            f"features by {facts.get('feature_extractor_type')}",
            f"waveforms, as {_WAVEFORMS} gives them",
            "serve it with --torch, or from an ONNX file",
        )
    if encoder.task not in _TASKS:
        raise encoder.refusal(
            "config.json architectures",
            encoder.architecture,
            "a classifier of sound, or speech recognition with CTC",
            "serve it with --torch, or from an ONNX file",
        )
    return _TASKS[encoder.task](encoder, facts)


def _classes(encoder: Encoder, facts: Mapping[str, Any]) -> Parts:
    labels = label_parts(encoder.labels, encoder.config)
    base = _base(encoder, facts, {"logits": {"dtype": "FP32", "shape": [len(encoder.labels)]}})
    return replace(
        base,
        pipeline=[*base.pipeline, labels.step],
        files={**base.files, **labels.files},
        quality=["metric: accuracy", "samples: {folder: samples}   # a folder of sounds for each label"],
    )


def _speech(encoder: Encoder, facts: Mapping[str, Any]) -> Parts:
    """The text that is spoken: the best token of each frame, as transformers decodes it without a language model."""
    vocabulary, decode = _vocabulary(encoder)
    stride, field = _frames(encoder)
    decode |= {"stride": stride, "field": field}
    decode = {name: value for name, value in decode.items() if value != _DECODE_DEFAULTS.get(name)}
    # Zeros behind a shorter sound of a request are not decoded.
    decode |= {"length": "samples"}
    base = _base(encoder, facts, {"logits": {"dtype": "FP32", "shape": ["frames", len(vocabulary)]}})
    samples = base.free_axes["samples"]
    text = json.dumps({token: number for number, token in enumerate(vocabulary)}, indent=1)
    return replace(
        base,
        # Warm-up and memory of ctc_decode follow from the frames.
        free_axes={
            "samples": samples,
            "frames": {end: (samples[end] - field) // stride + 1 for end in ("min", "max")},
        },
        pipeline=[*base.pipeline, {"step": "ctc_decode", "parameters": decode}],
        files={**base.files, _VOCABULARY: f"{text}\n".encode()},
        quality=[
            "metric: wer",
            "samples: {csv: samples.csv}   # columns audio (a file) and label",
        ],
    )


_TASKS: Mapping[str, Callable[[Encoder, Mapping[str, Any]], Parts]] = {
    "AUDIO_CLASSIFICATION": _classes,
    "CTC": _speech,
}


def _vocabulary(encoder: Encoder) -> tuple[list[str], dict[str, Any]]:
    """The token of each class, and the parameters with which ctc_decode writes them as the tokenizer does."""
    transformers = need("transformers", "models")
    if not encoder.read(_VOCABULARY):
        raise encoder.refusal(
            _VOCABULARY, "no such file, or no tokens", "a token for each class", "copy it from the original checkpoint"
        )
    tokenizer, classes = encoder.tokenizer, encoder.config.vocab_size
    if not isinstance(tokenizer, transformers.Wav2Vec2CTCTokenizer):
        raise encoder.refusal(
            "tokenizer_config.json tokenizer_class",
            type(tokenizer).__name__,
            "Wav2Vec2CTCTokenizer with a vocab.json",
            "serve it with --torch, or from an ONNX file",
        )
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(list(range(min(classes, _MOST_TOKENS + 1))))]
    if len(tokens) > _MOST_TOKENS or len(set(tokens)) < len(tokens) or tokenizer.pad_token not in tokens:
        raise encoder.refusal(
            _VOCABULARY,
            f"no token of its own for each of {classes:,} classes, or no padding token",
            f"a token for each class, at most {_MOST_TOKENS:,}, and the padding token as blank",
            "copy vocab.json and tokenizer_config.json again from the original checkpoint",
        )
    if tokenizer.replace_word_delimiter_char != " ":
        raise encoder.refusal(
            "tokenizer_config.json replace_word_delimiter_char",
            repr(tokenizer.replace_word_delimiter_char)[:120],
            "a space between words",
        )
    decode = {
        "vocabulary": _VOCABULARY,
        "blank": tokenizer.pad_token,
        "word_delimiter": "" if tokenizer.word_delimiter_token_id is None else tokenizer.word_delimiter_token,
        "skip_special": False,  # transformers' pipeline leaves special tokens in the text too
        "lowercase": bool(tokenizer.do_lower_case),
    }
    return tokens, decode


def _frames(encoder: Encoder) -> tuple[int, int]:
    """The samples between two frames, and those that a frame sees: what the convolutions of the network add up to."""
    stride, field = 1, 1
    for kernel, step in zip(encoder.config.conv_kernel, encoder.config.conv_stride, strict=True):
        field += (int(kernel) - 1) * stride
        stride *= int(step)
    return stride, field


def _base(encoder: Encoder, facts: Mapping[str, Any], outputs: Mapping[str, Any]) -> Parts:
    rate = encoder.processor_number("sampling_rate", facts.get("sampling_rate"), _RATES, ", in samples per second")
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
            {
                "step": "decode_audio",
                "parameters": decode,
                "outputs": {"waveform": "input_values"},
                # The network has no mask: zeros behind the shorter sound of a request would change its answer.
                "serving": {"max_batch_size": 1},
            },
            "network",
        ],
        example={"audio": {"file": EXAMPLE}},
        quality=(),
        files={EXAMPLE: tone(rate)},
    )


def extractor_facts(encoder: Encoder) -> dict[str, Any]:
    """The facts of its feature extractor, with transformers' defaults."""
    transformers = need("transformers", "models")
    with read_errors(encoder.folder / PROCESSOR, "a feature extractor of transformers"), quiet():
        extractor = transformers.AutoFeatureExtractor.from_pretrained(str(encoder.folder), **FROM_FOLDER)
        return {**extractor.to_dict(), "feature_extractor_type": type(extractor).__name__}


def tone(rate: int) -> bytes:
    """A WAV file of half a second in which a tone rises, for warm-up."""
    stream = io.BytesIO()
    values = [int(8000 * math.sin(2 * math.pi * (200 + 300 * n / rate) * n / rate)) for n in range(rate // 2)]
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(struct.pack(f"<{len(values)}h", *values))
    return stream.getvalue()
