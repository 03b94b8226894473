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


def write_steps(root: Path) -> None:
    """Each step, as it is published."""
    step(root / "decode_audio", "decode_audio", AUDIO_IO, attention_mask="true", buckets="0.5", max_seconds="1")


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
