"""Whisper's encoder by `tritonkit new --hf`: its answers are those of transformers, for each caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.families.checkpoints import sounds, whisper_checkpoint
from bench.families.sounds import waveform
from tests.python_backends.sounds import encoded, tone
from tests.server.checkpoints.serving import served
from tritonkit import Client
from tritonkit.client import Reply
from tritonkit.errors import InferenceError

CALLERS = 16
RATE = 16_000
SOUNDS = [*sounds(), *(encoded(tone(samples)) for samples in (1, 159, 400, 2 * RATE))]
"""Files within two seconds, one of a single sample and one that fills the chunk."""
CHECKPOINTS: dict[str, Callable[[Path], Path]] = {
    "speech": lambda folder: whisper_checkpoint(folder, "ForConditionalGeneration"),
    "long": lambda folder: whisper_checkpoint(folder, "Model", 30, 128),
    "classes": lambda folder: whisper_checkpoint(folder, "ForAudioClassification", num_labels=4),
    "layers": lambda folder: whisper_checkpoint(
        folder, "ForAudioClassification", num_labels=4, use_weighted_layer_sum=True
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoints, by the names of their models."""
    place = tmp_path_factory.mktemp("whisper")
    return {name: make(place / name) for name, make in CHECKPOINTS.items()}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, folders: dict[str, Path]) -> Iterator[Client]:
    """A client of a server with a model for each checkpoint."""
    with served(tmp_path_factory.mktemp("project"), folders) as made:
        yield made


def reference(folder: Path, encoded_sounds: list[bytes]) -> list[np.ndarray[Any, Any]]:
    """transformers' answers: the features of each position, or the probability of each label."""
    import torch
    import transformers

    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    classes = folder.name in ("classes", "layers")
    kind = transformers.WhisperForAudioClassification if classes else transformers.WhisperModel
    network = kind.from_pretrained(folder).eval()
    answers = []
    for sound in encoded_sounds:
        features = extractor(waveform(sound), sampling_rate=RATE, return_tensors="pt").input_features
        with torch.no_grad():
            answer = network(features).logits.softmax(-1) if classes else network.encoder(features).last_hidden_state
        answers.append(answer[0].numpy())
    return answers


def items(reply: Reply) -> list[np.ndarray[Any, Any]]:
    """The same of a reply, for each item of its request."""
    if "last_hidden_state" in reply:
        return list(reply["last_hidden_state"])
    return [
        scores[np.argsort(labels)]  # LABEL_0, LABEL_1, ...: as the network has them
        for labels, scores in zip(reply["label"], reply["score"], strict=True)
    ]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_answers_are_those_of_transformers(client: Client, folders: dict[str, Path], name: str) -> None:
    """A caller alone, 16 at the same time, and a request with several sounds get the same."""
    expected = reference(folders[name], SOUNDS)
    model = client.model(name)
    alone = [items(model.predict(audio=sound))[0] for sound in SOUNDS]
    with ThreadPoolExecutor(CALLERS) as pool:
        together = [items(reply)[0] for reply in pool.map(lambda sound: model.predict(audio=sound), SOUNDS * 3)]
    batch = items(model.predict(audio=np.array(SOUNDS[:4], dtype=object)[:, None]))
    np.testing.assert_allclose(alone, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(together, expected * 3, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(batch, expected[:4], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["speech", "classes"])
def test_a_sound_that_is_too_long_or_no_sound_is_refused(client: Client, name: str) -> None:
    """It is never cut in silence, and a neighbor in the same moment is answered."""
    model = client.model(name)
    odd = {
        "at most 2 are taken": encoded(tone(2 * RATE + 1)),
        "the file is empty": b"",
        "has no samples": encoded(tone(0)),
        "found an unknown format": b"no sound at all",
    }
    for message, sound in odd.items():
        with ThreadPoolExecutor(2) as pool:
            good, bad = (pool.submit(model.predict, audio=each) for each in (SOUNDS[0], sound))
        assert good.result()
        with pytest.raises(InferenceError, match=message):
            bad.result()


def test_sound_of_another_rate_is_resampled(client: Client) -> None:
    """Two channels of 44,100 samples per second give nearly the features of one of 16,000."""
    model = client.model("speech")
    stereo = encoded(np.stack([tone(44_100, 44_100)] * 2, axis=1), 44_100, "FLAC")
    expected = model.predict(audio=encoded(tone(RATE)))["last_hidden_state"]
    np.testing.assert_allclose(model.predict(audio=stereo)["last_hidden_state"], expected, atol=0.3)
