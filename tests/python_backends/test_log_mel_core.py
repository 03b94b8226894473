"""log_mel without Triton, against other implementations of the same features."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from log_mel_core import LogMel, Settings

CHIRP = np.float32(0.5 * np.sin(2 * np.pi * np.arange(800) ** 2 / 8000))
NOISE = np.float32(np.random.default_rng(0).normal(0, 0.1, 24_000))

# torchaudio.compliance.kaldi.fbank 2.11 gave these for CHIRP in float64: num_mel_bins=8, dither=0, energy_floor=0, and
# for the second window_type="hamming", snip_edges=False, high_freq=-400, subtract_mean=True of CHIRP * 32768.
PLAIN = [
    [1.89021, 4.75706, 5.77946, 4.41948, -2.41562, -11.63211, -15.34452, -15.94239],
    [-7.27965, 0.48588, 5.3971, 6.98991, 5.62533, -3.09057, -12.55855, -15.9422],
    [-12.09314, -9.4914, -0.73118, 6.23666, 7.77143, 5.65096, -7.59591, -14.19837],
]
MIRRORED = [
    [4.90661, 4.07227, 1.17259, -4.23796, -8.36506, -7.77719, -5.21564, -4.47597],
    [2.06943, 4.00534, 3.82766, 1.99851, -1.84188, -4.69915, -2.04754, -0.9489],
    [-2.8159, -2.08834, 2.14884, 3.41157, 2.98649, 0.30362, -1.29862, -0.68032],
    [-2.80144, -4.02404, -4.48335, 1.47253, 4.17795, 5.30624, 1.26074, 0.852],
    [-1.3587, -1.96524, -2.66574, -2.64466, 3.0425, 6.86648, 7.30105, 5.2532],
]


def features(waveform: np.ndarray, **parameters: Any) -> np.ndarray:
    """The features of one sound."""
    given, _ = LogMel(Settings(**parameters)).features(waveform[None], [len(waveform)])
    return given[0]


def test_kaldi_as_torchaudio() -> None:
    """The figures that torchaudio gave, of whole frames and of mirrored ends."""
    given = features(CHIRP, kind="kaldi", mels=8)
    assert given.dtype == np.float32
    np.testing.assert_allclose(given, PLAIN, atol=1e-4)
    more = {"window_type": "hamming", "snip_edges": False, "high_frequency": -400.0, "subtract_mean": True}
    np.testing.assert_allclose(features(CHIRP, kind="kaldi", mels=8, scale=32768.0, **more), MIRRORED, atol=1e-4)


@pytest.mark.filterwarnings("ignore:At least one mel filter has all zero values")
def test_kaldi_as_transformers() -> None:
    """Audio Spectrogram Transformer's features: its window, padding, mean and deviation."""
    transformers = pytest.importorskip("transformers")
    extractor = transformers.ASTFeatureExtractor()
    if not hasattr(extractor, "mel_filters"):
        pytest.skip("transformers computes these features with torchaudio where it is installed, and differently")
    expected = extractor(NOISE, sampling_rate=16_000, return_tensors="np")["input_values"][0]
    more = {"window_type": "hanning", "mean": extractor.mean, "std": 2 * extractor.std, "length": 1024}
    given = features(NOISE, kind="kaldi", mels=128, **more)
    assert given.shape == (1024, 128)
    np.testing.assert_allclose(given, expected, atol=1e-4)


@pytest.mark.parametrize("mels", [80, 128])
def test_whisper_as_transformers(mels: int) -> None:
    """The features of 30 seconds, of which all but the beginning is padding."""
    transformers = pytest.importorskip("transformers")
    expected = transformers.WhisperFeatureExtractor(feature_size=mels)(NOISE, sampling_rate=16_000, return_tensors="np")
    padded = np.pad(NOISE, (0, 480_000 - len(NOISE)))[None]
    given, frames = LogMel(Settings(mels=mels)).features(padded, [len(NOISE)])
    assert given.dtype == np.float32
    np.testing.assert_allclose(given, expected["input_features"], atol=1e-4)
    assert frames.tolist() == [[150]]
    assert frames.dtype == np.int32


def test_silence() -> None:
    """It has features, at the lower end."""
    assert features(np.zeros(800, dtype=np.float32)).max() == pytest.approx(-1.5)
    assert features(np.zeros(800, dtype=np.float32), kind="kaldi").max() == pytest.approx(np.log(2.0**-23))


@pytest.mark.parametrize("subtract_mean", [False, True])
def test_padding_is_no_sound_for_kaldi(subtract_mean: bool) -> None:
    """A sound next to a longer one has the features that it has alone, then zeros."""
    settings = Settings(kind="kaldi", subtract_mean=subtract_mean)
    waveforms = np.stack([NOISE[:4000], np.pad(NOISE[:2000], (0, 2000), constant_values=1)])
    given, frames = LogMel(settings).features(waveforms, [4000, 2000])
    assert frames.tolist() == [[23], [11]]
    alone = features(NOISE[:2000], kind="kaldi", subtract_mean=subtract_mean)
    np.testing.assert_array_equal(given[1, :11], alone)
    assert not given[1, 11:].any()


def test_a_length() -> None:
    """Features are cut and padded to it, and frames says how many are of the sound."""
    settings = Settings(kind="kaldi", length=15)
    given, frames = LogMel(settings).features(np.stack([NOISE[:4000]] * 2), [4000, 2000])
    assert given.shape == (2, 15, 80)
    assert frames.tolist() == [[15], [11]]


def test_many_frames_are_those_of_their_parts() -> None:
    """Frames are worked on in blocks, whose edges leave no trace."""
    whole = features(np.tile(NOISE, 8), kind="kaldi")
    assert len(whole) > 1024
    part = features(np.tile(NOISE, 8)[1020 * 160 :], kind="kaldi")
    np.testing.assert_allclose(whole[1020:], part, rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "parameters"),
    [(160, {}), (400, {"kind": "kaldi"}), (200, {"kind": "kaldi", "snip_edges": False}), (1, {"hop": 1})],
)
def test_the_shortest_sound(count: int, parameters: dict[str, Any]) -> None:
    """It gives one frame, and a sample less gives an error that says what a frame takes."""
    assert 1 in features(NOISE[:count], **parameters).shape
    if count > 1:
        with pytest.raises(ValueError, match=f"{count - 1} samples give no frame, wanted at least {count}"):
            features(NOISE[: count - 1], **parameters)


@pytest.mark.parametrize(
    ("waveform", "samples", "message"),
    [
        (NOISE[:500], 501, "item 1: samples is 501, wanted 1 to 500"),
        (NOISE[:500], 0, "item 1: samples is 0, wanted 1 to 500"),
        (NOISE[:500], -1, "item 1: samples is -1"),
        (np.full(500, np.nan, dtype=np.float32), 500, "item 1: a sample is not a finite number"),
    ],
)
@pytest.mark.parametrize("kind", ["whisper", "kaldi"])
def test_unfit_waveforms_are_refused(kind: str, waveform: np.ndarray, samples: int, message: str) -> None:
    """The message names the item."""
    with pytest.raises(ValueError, match=message):
        LogMel(Settings(kind=kind)).features(np.stack([NOISE[:500], waveform]), [500, samples])


@pytest.mark.parametrize("kind", ["whisper", "kaldi"])
def test_an_empty_batch(kind: str) -> None:
    """A request without items is answered without items."""
    given, frames = LogMel(Settings(kind=kind)).features(np.zeros((0, 800), dtype=np.float32), [])
    assert len(given) == 0
    assert frames.shape == (0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "htk"),
        ("window_type", "blackman"),
        ("rate", 10),
        ("mels", 0),
        ("window", 1),
        ("hop", 0),
        ("length", -1),
        ("high_frequency", 8001.0),
        ("high_frequency", -8000.0),
        ("high_frequency", float("nan")),
        ("preemphasis", 1.5),
        ("std", 0.0),
        ("std", float("nan")),
    ],
)
def test_unfit_parameters_are_refused(name: str, value: object) -> None:
    """The message names the parameter."""
    make: Callable[..., Settings] = Settings
    with pytest.raises(ValueError, match=f"parameter {name}: found"):
        make(**{"kind": "kaldi", name: value})
