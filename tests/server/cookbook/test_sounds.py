"""Pages about sound: a small random checkpoint of speech recognition, and the real network of voice activity."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile
import tritonclient.grpc as grpc
from numpy.lib.stride_tricks import sliding_window_view
from tritonclient.utils import InferenceServerException

from bench.families.kitchen import Kitchen, Page
from tests.python_backends.sounds import encoded
from tests.server.cookbook.conftest import CALLERS, Answer, assert_equal
from tests.waiting import PATIENCE_S
from tritonkit.client import Client, Model
from tritonkit.errors import InferenceError


def test_speech_recognition(place: Kitchen, answers: Answer) -> None:
    """Texts are those of transformers' pipeline, for 16 callers at the same time."""
    expected = assert_equal(place, answers, Page.read("speech-recognition"))
    assert place.output == f"{expected[1].names[0]}\n"


RATE = 16_000
NETWORK = "silero_vad_16k_sequence.onnx"


@pytest.fixture(scope="module")
def silero(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, np.ndarray]:
    """The network of Silero VAD, and a minute of speech, float32 [samples], from the sources of its package."""
    folder = tmp_path_factory.mktemp("silero")
    package = ["silero-vad==6.2.3", "--no-binary=silero-vad"]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *package], check=True
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        files = {Path(member.name).name: member for member in sources if member.isfile()}
        network, recording = (sources.extractfile(files[name]) for name in (NETWORK, "test.wav"))
        assert network is not None
        assert recording is not None
        sound, rate = soundfile.read(io.BytesIO(recording.read()), dtype="float32")
        assert rate == RATE
        return network.read(), sound


def probabilities(network: bytes, sound: np.ndarray) -> np.ndarray:
    """Speech in each frame of a whole sound, by ONNX Runtime alone: one frame after the other."""
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    padded = np.pad(sound, (64, -len(sound) % 512))
    h = c = np.zeros((1, 1, 128), np.float32)
    given = []
    for frame in sliding_window_view(padded, 576)[::512]:
        (one, h, c) = session.run(["speech_probs", "hn", "cn"], {"input": frame[None], "h": h, "c": c})
        given.append(one.item())
    return np.array(given)


def pieces(sound: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Chunks of a sound, of any lengths above a frame, and whether each is the last."""
    generator = np.random.default_rng(seed)
    start = 0
    while start < len(sound):
        stop = start + int(generator.integers(512, 4_000))
        yield sound[start:stop], stop >= len(sound)
        start = stop


def spoken(model: Model, name: int | str, sound: np.ndarray, seed: int) -> np.ndarray:
    """What a stream of this id answers, chunk by chunk."""
    with model.sequence(name) as stream:
        parts = [stream.predict(waveform=chunk, last=last)["speech_probs"] for chunk, last in pieces(sound, seed)]
    return np.concatenate(parts)


def test_voice_activity(place: Kitchen, silero: tuple[bytes, np.ndarray]) -> None:
    """Each of 16 streams at the same time gets what ONNX Runtime gives for its own sound."""
    network, sound = silero
    (place.folder / NETWORK).write_bytes(network)
    (place.folder / "speech.wav").write_bytes(encoded(sound[: 3 * RATE], RATE))
    place.cook(Page.read("voice-activity"))
    assert len(place.output.splitlines()) >= 3 * RATE / 4_000
    sounds = [sound[start : start + 3 * RATE + 100 * n] for n, start in enumerate(range(0, 50 * RATE, 3 * RATE))]
    expected = [probabilities(network, one) for one in sounds[:CALLERS]]
    assert max(one.max() for one in expected) > 0.9 > 0.1 > min(one.min() for one in expected)
    with Client(place.address, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(CALLERS) as pool:
        model = client.model("voice")
        given = list(pool.map(lambda n: spoken(model, n + 1, sounds[n], n), range(CALLERS)))
        for one, other in zip(given, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)
        check_beginnings(model, sounds[:2], expected)
    check_starts(place.address)


def check_beginnings(model: Model, sounds: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """A stream begins clean, also under the id of another that ended or did not, and never without the start."""
    for name in (1, 1, "caller"):
        np.testing.assert_allclose(spoken(model, name, sounds[1], 7), expected[1], atol=1e-4)
    model.sequence(5).__enter__().predict(waveform=sounds[0][:8_000])  # never ended
    np.testing.assert_allclose(spoken(model, 5, sounds[1], 8), expected[1], atol=1e-4)
    with pytest.raises(InferenceError, match="'voice_frames' must specify a non-zero or non-empty correlation ID"):
        model.predict(waveform=sounds[0][:512])
    with model.sequence() as stream:
        first = stream.predict(waveform=sounds[0][:1_000])["speech_probs"]
        with pytest.raises(InferenceError, match="the chunk of 10 samples completes no frame, wanted at least 24"):
            stream.predict(waveform=sounds[0][:10])
        rest = stream.predict(waveform=sounds[0][1_000:], last=True)["speech_probs"]
    np.testing.assert_allclose(np.concatenate([first, rest]), expected[0], atol=1e-4)


def check_starts(address: str) -> None:
    """A chunk of a stream that has not begun, or has ended, is refused."""
    chunk = grpc.InferInput("waveform", [512], "FP32")
    chunk.set_data_from_numpy(np.zeros(512, np.float32))
    refused = "'voice_frames' must specify the START flag on the first request of the sequence"
    with grpc.InferenceServerClient(address) as client:
        with pytest.raises(InferenceServerException, match=refused):
            client.infer("voice", [chunk], sequence_id=9)
        client.infer("voice", [chunk], sequence_id=9, sequence_start=True, sequence_end=True)
        with pytest.raises(InferenceServerException, match=refused):
            client.infer("voice", [chunk], sequence_id=9)
