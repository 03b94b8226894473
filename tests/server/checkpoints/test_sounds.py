"""Sound models of `tritonkit new --hf`: their answers are those of transformers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bench.families.checkpoints import SOUND_FAMILIES, sound_checkpoint, sounds, speech_checkpoint
from bench.families.sounds import waveform
from tests.server.checkpoints.serving import served
from tritonkit import Client
from tritonkit.client import Adaptive
from tritonkit.errors import InvalidInput


@pytest.mark.parametrize("family", SOUND_FAMILIES)
def test_classes_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    """The probability of each label is that of transformers."""
    from transformers import pipeline

    labels = {0: "yes", 1: "no", 2: "up"}
    given = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    folder = sound_checkpoint(tmp_path / "checkpoint", family, "ForSequenceClassification", **given)
    with served(tmp_path, {"classes": folder}) as client:
        replies = [client.model("classes").predict(audio=encoded) for encoded in sounds()]
    reference = pipeline("audio-classification", model=str(folder), top_k=None)
    for encoded, reply in zip(sounds(), replies, strict=True):
        expected = {entry["label"]: entry["score"] for entry in reference(waveform(encoded))}
        names = [label.decode() for label in reply["label"][0]]
        np.testing.assert_allclose(reply["score"][0], [expected[name] for name in names], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", SOUND_FAMILIES)
def test_speech_is_the_text_of_the_pipeline(tmp_path: Path, family: str) -> None:
    """The same letters, in the case that the tokenizer gives."""
    from transformers import pipeline

    plain, lower = (
        speech_checkpoint(tmp_path / "plain", family),
        speech_checkpoint(tmp_path / "l", family, do_lower_case=True),
    )
    with served(tmp_path, {"speech": plain, "lower": lower}) as client:
        texts = [client.model("speech").predict(audio=encoded)["text"].item().decode() for encoded in sounds()]
        lowered = [client.model("lower").predict(audio=encoded)["text"].item().decode() for encoded in sounds()]
    reference = pipeline("automatic-speech-recognition", model=str(plain))
    assert texts == [reference(waveform(encoded))["text"] for encoded in sounds()]
    assert lowered == [text.lower() for text in texts]
    assert len(set(texts)) == len(texts)
    assert all(len(set(text)) > 1 for text in texts)


def test_an_answer_does_not_depend_on_the_company_of_a_sound(tmp_path: Path) -> None:
    """Sounds of several lengths from 16 callers, with a client that joins calls, get what each gets alone.

    The network has no mask, so no request has more than one sound; those of one length share a batch of the network.
    """
    from transformers import pipeline

    folder = sound_checkpoint(tmp_path / "checkpoint", "wav2vec2", "ForSequenceClassification", num_labels=3)
    with served(tmp_path, {"classes": folder}) as client, Client(client.address, batching=Adaptive()) as joining:
        called = joining.model("classes")
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda encoded: called.predict(audio=encoded), sounds() * 16))
        with pytest.raises(InvalidInput, match="max_batch_size"):
            client.model("classes").predict(audio=np.array([[sound] for sound in sounds()], dtype=object))
        many = list(client.model("classes").predict_many([{"audio": sound} for sound in sounds()]))
    reference = pipeline("audio-classification", model=str(folder), top_k=None)
    expected = [[entry["score"] for entry in reference(waveform(encoded))] for encoded in sounds()]
    given = [np.sort(reply["score"][0])[::-1] for reply in [*replies, *many]]
    np.testing.assert_allclose(given, expected * 17, rtol=1e-3, atol=1e-4)
