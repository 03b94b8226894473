"""The steps for sound inside a real Triton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from tests.python_backends.sounds import encoded, tone
from tests.server.onnx_models import step, tensors
from tests.server.raw import Running, ask, ask_together, items
from tests.server.sharing import SharedBackends

AUDIO_IO = tensors("input", audio="STRING [1]") + tensors(
    "output", waveform="FP32 [-1]", samples="INT32 [1]", attention_mask="INT64 [-1]"
)
MEL_IO = tensors("input", waveform="FP32 [-1]", samples="INT32 [1] optional: true") + tensors(
    "output", features="FP32 [-1, 40]", frames="INT32 [1]"
)
CTC_IO = tensors("input", logits="FP32 [-1, -1]", samples="INT32 [1]") + tensors(
    "output", text="STRING [1]", score="FP32 [1]"
)


def write_steps(root: Path) -> None:
    """Each step, as it is published."""
    step(root / "decode_audio", "decode_audio", AUDIO_IO, attention_mask="true", buckets="0.5", max_seconds="1")
    step(root / "log_mel", "log_mel", MEL_IO, kind="kaldi", mels="40")
    more = {"length": "samples", "stride": "10", "field": "10", "vocabulary": "tokens.txt"}
    folder = step(root / "ctc_decode", "ctc_decode", CTC_IO, **more).parent
    (folder / "tokens.txt").write_text("<pad>\n|\nÄ\nB\n")


@pytest.fixture(scope="module")
def triton(stand_in_server: SharedBackends) -> Iterator[Running]:
    """A server with the steps."""
    with stand_in_server.serving(write_steps) as running:
        yield running


@pytest.fixture(scope="module")
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw Triton client."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


def test_files_become_waveforms(client: grpc.InferenceServerClient) -> None:
    """The files of one request, of any kind, have one length and their own numbers of samples."""
    given = ask(
        client, "decode_audio", audio=items(encoded(tone(6_000)), encoded(tone(22_050, 44_100), 44_100, "FLAC"))
    )
    assert given["waveform"].shape == (2, 8_000)
    assert given["samples"].tolist() == [[6_000], [8_000]]
    assert given["attention_mask"].sum(axis=1).tolist() == [6_000, 8_000]
    np.testing.assert_allclose(given["waveform"][0, :6_000], tone(6_000), atol=1e-4)


def test_a_bad_file_fails_alone(client: grpc.InferenceServerClient) -> None:
    """Requests that come together are answered next to one with a bad file."""
    files = [encoded(tone(100)), encoded(tone(100))[:-1], encoded(tone(17_000)), encoded(tone(9_000))]
    given = ask_together(client, "decode_audio", [{"audio": items(file)} for file in files])
    found = [answer if isinstance(answer, str) else answer["waveform"].shape for answer in given]
    assert found[0] == (1, 8_000)
    assert "input 'audio', item 0: the WAV file is truncated" in found[1]
    assert "at most 1 are taken (parameter max_seconds)" in found[2]
    assert found[3] == (1, 16_000)


def test_an_error_names_the_item(client: grpc.InferenceServerClient) -> None:
    """The second file of a request is named."""
    with pytest.raises(InferenceServerException, match="'decode_audio': input 'audio', item 1: the file is empty"):
        ask(client, "decode_audio", audio=items(encoded(tone(100)), b""))


def test_features_are_of_the_sound_alone(client: grpc.InferenceServerClient) -> None:
    """A request may leave out how many samples are sound; then all are."""
    waveform = tone(2_000)[None]
    short = ask(client, "log_mel", waveform=waveform, samples=np.int32([[1_000]]))
    whole = ask(client, "log_mel", waveform=waveform)
    assert (short["frames"].tolist(), whole["frames"].tolist()) == ([[4]], [[11]])
    np.testing.assert_allclose(short["features"][0], whole["features"][0, :4], rtol=1e-5)
    with pytest.raises(InferenceServerException, match="'waveform', item 0: samples is 2001, wanted 1 to 2000"):
        ask(client, "log_mel", waveform=waveform, samples=np.int32([[2_001]]))


def test_text_of_the_frames_that_count(client: grpc.InferenceServerClient) -> None:
    """Each item of a request has its own length."""
    logits = np.float32(np.eye(4)[[2, 2, 0, 2, 1, 3]] * 9)[None]
    given = ask(client, "ctc_decode", logits=logits.repeat(2, axis=0), samples=np.int32([[60], [39]]))
    assert [text.decode() for text in given["text"][:, 0]] == ["ÄÄ B", "Ä"]
    with pytest.raises(InferenceServerException, match="input 'logits', found 3 classes, wanted 4"):
        ask(client, "ctc_decode", logits=logits[:, :, :3], samples=np.int32([[60]]))
