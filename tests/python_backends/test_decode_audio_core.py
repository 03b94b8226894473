"""decode_audio without Triton: real files, and files that lie."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from decode_audio_core import Settings, decode_audio, pad
from hypothesis import given
from hypothesis import strategies as st

from tests.python_backends.sounds import encoded, tone

TONE = tone(16_000)
WAV, FLAC, OGG = (encoded(TONE, kind=kind) for kind in ("WAV", "FLAC", "OGG"))
DATA = WAV.index(b"data") + 4  # where the header says the bytes of samples


@pytest.mark.parametrize(
    ("kind", "codec", "error"),
    [
        ("WAV", "PCM_U8", 1 / 100),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 0),
        ("WAV", "DOUBLE", 0),
        ("WAV", "ULAW", 1 / 50),
        ("WAV", "ALAW", 1 / 50),
        ("WAVEX", "PCM_16", 1e-4),
        ("RF64", "PCM_16", 1e-4),
        ("FLAC", "PCM_S8", 1 / 100),
        ("FLAC", "PCM_16", 1e-4),
        ("FLAC", "PCM_24", 1e-6),
    ],
)
def test_every_codec_gives_the_sound(kind: str, codec: str, error: float) -> None:
    """8, 16, 24 and 32 bits, floating point and companded samples come within their own rounding."""
    waveform = decode_audio(encoded(TONE, kind=kind, codec=codec), Settings())
    assert waveform.dtype == np.float32
    np.testing.assert_allclose(waveform, TONE, atol=error)


def test_big_endian_wav() -> None:
    """A RIFX file is read like a RIFF file."""
    samples = np.int16(TONE * 32767)
    body = b"WAVEfmt " + struct.pack(">IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    body += b"data" + struct.pack(">I", samples.nbytes) + samples.astype(">i2").tobytes()
    waveform = decode_audio(b"RIFX" + struct.pack(">I", len(body)) + body, Settings())
    np.testing.assert_allclose(waveform, TONE, atol=1e-4)


@pytest.mark.parametrize("codec", ["VORBIS", "OPUS"])
def test_ogg(codec: str) -> None:
    """Vorbis and Opus lose some, and keep the tone and its length."""
    waveform = decode_audio(encoded(TONE, kind="OGG", codec=codec), Settings())
    assert len(waveform) == len(TONE)
    assert np.corrcoef(waveform, TONE)[0, 1] > 0.95


@pytest.mark.parametrize("channels", [2, 6])
def test_channels_are_averaged(channels: int) -> None:
    """Stereo and 5.1 become the mean of their channels."""
    weights = np.arange(1, channels + 1, dtype=np.float32) / channels
    waveform = decode_audio(encoded(TONE[:, None] * weights, codec="FLOAT"), Settings())
    np.testing.assert_allclose(waveform, TONE * weights.mean(), atol=1e-6)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 44_101, 48_000])
def test_other_rates_are_resampled(rate: int) -> None:
    """A tone is the same tone at the rate of the step, in phase, but for its two ends."""
    waveform = decode_audio(encoded(tone(rate, rate), rate, codec="FLOAT"), Settings())
    assert len(waveform) == 16_000
    np.testing.assert_allclose(waveform[500:-500], TONE[500:-500], atol=1e-3)


def test_what_the_lower_rate_cannot_have_is_filtered() -> None:
    """A tone of 7 kHz does not come back as one of 1 kHz at 8,000 samples per second."""
    waveform = decode_audio(encoded(tone(16_000, hertz=7_000), codec="FLOAT"), Settings(rate=8_000))
    assert np.abs(waveform[500:-500]).max() < 1e-3


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_a_single_sample(rate: int) -> None:
    """The shortest file gives at least one sample at every rate."""
    waveform = decode_audio(encoded(TONE[1:2], rate), Settings(normalize=True))
    assert 1 <= len(waveform) <= 3
    assert np.isfinite(waveform).all()


def patched(data: bytes, place: int, values: bytes) -> bytes:
    """The file with other bytes at a place."""
    return data[:place] + values + data[place + len(values) :]


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x80000000, 0xFFFFFFFF])
def test_a_wav_file_written_to_a_pipe(size: int) -> None:
    """Its header does not know the length of the samples: all that are there count."""
    assert len(decode_audio(patched(WAV, DATA, struct.pack("<I", size)), Settings())) == len(TONE)


def test_what_follows_the_samples_of_a_wav_file() -> None:
    """Tags after the samples are not sound."""
    assert len(decode_audio(WAV + b"LIST" + struct.pack("<I", 4) + b"INFO", Settings())) == len(TONE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"RIFF", "unknown format that begins with 52 49 46 46"),
        (b"no sound at all", "unknown format"),
        (b"\xff\xfb", "MPEG audio"),
        (b"\xff", "unknown format"),
        (encoded(TONE, kind="MP3"), "found MPEG audio \\(MP3 or AAC\\), wanted WAV, FLAC or Ogg"),
        (encoded(TONE, kind="AIFF"), "unknown format"),
        (encoded(TONE[:0]), "the WAV file has no samples"),
        (WAV[:20], "the WAV file is truncated: it has no samples"),
        (WAV[:-1], "the WAV file is truncated: its header says 32000 bytes of samples, found 31999"),
        (WAV[: len(WAV) // 2], "the WAV file is truncated"),
        (patched(WAV, DATA, struct.pack("<I", 64_000)), "its header says 64000 bytes of samples, found 32000"),
        (patched(WAV, 24, bytes(4)), "the WAV file"),
        (patched(WAV, 24, struct.pack("<I", 400_000)), "400000 samples per second, wanted 1000 to 384000"),
        (patched(WAV, 22, b"\xff\xff"), "the WAV file is damaged: Too many channels"),
        (encoded(TONE, codec="IMA_ADPCM"), "samples of the kind IMA_ADPCM, wanted one of ALAW, DOUBLE"),
        (encoded(np.float32([0, np.nan]), codec="FLOAT"), "samples that are not finite numbers"),
        (encoded(np.float32([0, np.inf]), codec="FLOAT"), "samples that are not finite numbers"),
        (FLAC[:10], "the FLAC file is damaged"),
        (FLAC[:-1], "the FLAC file is damaged"),
        (FLAC[: len(FLAC) // 2], "the FLAC file is damaged"),
        (patched(FLAC, len(FLAC) // 2, b"\x00\x01\x02"), "the FLAC file is damaged"),
        (patched(FLAC, 21, b"\xf0" + bytes(4)), "the FLAC file does not say how many samples it has"),
        (patched(FLAC, 21, b"\xff" * 5), "at most 30 are taken \\(parameter max_seconds\\)"),
        (OGG[:-1], "the Ogg file is truncated"),
        (OGG[:10], "the Ogg file is truncated: its page at byte 0"),
        (patched(OGG, len(OGG) // 2, b"\x00\x01\x02"), "the Ogg file is damaged: no page with its checksum"),
        (OGG + OGG, "the Ogg file has 2 streams, wanted one"),
        (OGG + b"x", "the Ogg file is truncated"),
        (
            encoded(np.zeros(16_000 * 31)),
            "the sound has 31.0 seconds; at most 30 are taken \\(parameter max_s",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)}",
)
def test_unfit_files_are_refused(data: bytes, message: str) -> None:
    """One error says what is wrong; half a sound is never returned."""
    with pytest.raises(ValueError, match=message):
        decode_audio(data, Settings())


def test_a_file_of_too_many_bytes() -> None:
    """It is refused before anything of it is read."""
    with pytest.raises(ValueError, match="the file has 32044 bytes; at most 1000 are taken \\(parameter max_bytes\\)"):
        decode_audio(WAV, Settings(max_bytes=1000))


def test_the_longest_sound_is_taken() -> None:
    """Exactly max_seconds, also where resampling rounds."""
    data = encoded(np.zeros(44_101), 44_101)
    assert len(decode_audio(data, Settings(max_seconds=1.0))) == 16_000


def test_endless_parts_are_refused() -> None:
    """Millions of empty chunks or pages are given up after 65,536."""
    with pytest.raises(ValueError, match="the WAV file has more than 65536 chunks before its samples"):
        decode_audio(WAV[:12] + (b"LIST" + bytes(4)) * 70_000 + WAV[12:], Settings())
    first = OGG.index(b"OggS", 4)
    with pytest.raises(ValueError, match="the Ogg file has more than 65536 pages"):
        decode_audio(OGG[:first] * 70_000, Settings())


@given(
    st.sampled_from([WAV, FLAC, OGG]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_damaged_files_give_a_sound_or_an_error(data: bytes, changes: list[tuple[int, int]]) -> None:
    """Whatever bytes change, the answer is finite samples or a ValueError."""
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    try:
        waveform = decode_audio(bytes(damaged), Settings())
    except ValueError:
        return
    assert np.isfinite(waveform).all()
    assert 1 <= len(waveform) <= 480_000


def test_normalized_as_transformers_does() -> None:
    """The waveform and its padding are those of Wav2Vec2's feature extractor."""
    transformers = pytest.importorskip("transformers")
    sounds = [TONE, TONE[:9_000] * np.float32(0.1) + np.float32(0.3)]
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True)
    expected = extractor(sounds, sampling_rate=16_000, padding=True, return_tensors="np")
    settings = Settings(normalize=True, attention_mask=True, buckets=())
    given = pad([decode_audio(encoded(sound, codec="FLOAT"), settings) for sound in sounds], settings)
    np.testing.assert_allclose(given["waveform"], expected["input_values"], atol=1e-5)
    assert given["attention_mask"].dtype == np.int64
    np.testing.assert_array_equal(given["attention_mask"], expected["attention_mask"])


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("factor", "rate"), [(3e30, 16_000), (3e30, 8_000), (3e38, 16_000)])
def test_large_samples(factor: float, rate: int, channels: int) -> None:
    """Float samples near the largest number are the same sound, and normalized the very same."""
    sound = np.repeat(tone(rate, rate)[:, None] * np.float32(1.9), channels, axis=1)
    small, large = (encoded(sound * np.float32(factor), rate, codec="FLOAT") for factor in (1, factor))
    expected = decode_audio(small, Settings())
    np.testing.assert_allclose(decode_audio(large, Settings()) / np.float32(factor), expected, atol=1e-5)
    expected = decode_audio(small, Settings(normalize=True))
    np.testing.assert_allclose(decode_audio(large, Settings(normalize=True)), expected, atol=1e-5)
    np.testing.assert_allclose(expected.std(dtype=np.float64), 1, rtol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_samples_that_resampling_makes_too_large(normalize: bool) -> None:
    """The resampler's sums of them are infinite: such a file is refused, and taken at its own rate."""
    data = encoded(np.repeat(np.float32([-3e38, 3e38]), 4000), 8_000, codec="FLOAT")
    waveform = decode_audio(data, Settings(rate=8_000, normalize=normalize))
    np.testing.assert_allclose(np.abs(waveform), 1 if normalize else 3e38, rtol=1e-6)
    with pytest.raises(ValueError, match="samples that are not finite numbers, or too large ones"):
        decode_audio(data, Settings(normalize=normalize))


def test_silence_can_be_normalized() -> None:
    """Its variance is 0: it stays silence."""
    assert not decode_audio(encoded(np.zeros(100)), Settings(normalize=True)).any()


@pytest.mark.parametrize(
    ("samples", "more", "length"),
    [
        (1, {}, 16_000),
        (16_000, {}, 16_000),
        (16_001, {}, 32_000),
        (300_000, {}, 480_000),
        (16_001, {"buckets": (30.0,)}, 480_000),
        (16_001, {"buckets": (5.0, 0.5), "max_seconds": 2.0}, 32_000),
        (16_001, {"buckets": ()}, 16_001),
        (16_001, {"buckets": (), "multiple": 160}, 16_160),
        (1, {"buckets": (0.01,), "multiple": 320}, 320),
        (1, {"length": 480_000}, 480_000),
        (300_000, {"length": 480_100, "multiple": 320}, 480_100),
    ],
)
def test_padding(samples: int, more: dict[str, object], length: int) -> None:
    """A request has the length of its longest sound, rounded up to a bucket and a multiple; zeros follow each sound."""
    waveforms = [np.ones(samples, dtype=np.float32), np.ones(1, dtype=np.float32)]
    given = pad(waveforms, Settings(**more))  # type: ignore[arg-type]
    assert set(given) == {"waveform", "samples"}
    assert given["waveform"].shape == (2, length)
    assert given["samples"].dtype == np.int32
    assert given["samples"].tolist() == [[samples], [1]]
    assert given["waveform"].sum(axis=1).tolist() == [samples, 1]


def test_an_empty_batch() -> None:
    """A request without items is answered without items."""
    assert pad([], Settings())["samples"].shape == (0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", 10),
        ("rate", 1_000_000),
        ("max_seconds", 0.0),
        ("max_seconds", float("nan")),
        ("max_seconds", float("inf")),
        ("max_seconds", 1e308),
        ("buckets", (1.0, 0.0)),
        ("length", 479_999),
        ("length", -1),
        ("buckets", (float("nan"),)),
        ("multiple", 0),
        ("max_bytes", 0),
    ],
)
def test_unfit_parameters_are_refused(name: str, value: object) -> None:
    """The message names the parameter."""
    make: Callable[..., Settings] = Settings
    with pytest.raises(ValueError, match=f"parameter {name}: found"):
        make(**{name: value})
