"""The page about speech, with a small random checkpoint of the kind that it names."""

from __future__ import annotations

from tests.repository.scaffold.checkpoints import sounds, speech_checkpoint
from tests.server.checkpoints.test_sounds import waveform
from tests.server.cookbook.conftest import Answer
from tests.server.kitchen import Kitchen, Page


def test_speech_recognition(place: Kitchen, answers: Answer) -> None:
    """Texts are those of transformers' pipeline, for 16 callers at the same time."""
    from transformers import pipeline

    folder = speech_checkpoint(place.folder / "wav2vec2")
    (place.folder / "speech.wav").write_bytes(sounds()[1])
    place.cook(Page.read("speech-recognition"))
    reference = pipeline("automatic-speech-recognition", model=str(folder))
    expected = [reference(waveform(encoded))["text"] for encoded in sounds()]
    assert place.output == f"{expected[1]}\n"
    replies = answers(place, "speech", [{"audio": [encoded]} for encoded in sounds() * 8])
    assert [reply["text"].item().decode() for reply in replies] == expected * 8
