"""The shipped steps in C++ against the same steps in Python, side by side in a real Triton."""

from __future__ import annotations

import io
import os
import signal
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tritonclient.grpc as grpc
from PIL import Image
from tritonclient.utils import InferenceServerException

from tests.server.onnx_models import POOL_IO, step, tensors
from tests.server.raw import Running, ask, ask_together, items
from tests.server.sharing import SharedBackends
from tests.waiting import eventually

DAMAGED = int(os.environ.get("TRITONKIT_FUZZ", "200"))
"""The number of damaged images; `TRITONKIT_FUZZ=10000` for the long run."""

DECODERS: dict[str, dict[str, str]] = {
    "gray_same": {"height": "8", "width": "8", "channels": "1"},
    "gray_small": {"height": "5", "width": "7", "channels": "1", "resample": "bicubic"},
    "color": {"height": "24", "width": "20", "background": "black"},
    "color_box": {"height": "9", "width": "40", "resample": "box", "scale": "1.0", "mean": "0.5"},
    "nearest": {"height": "9", "width": "11", "resample": "nearest"},
    "crop": {
        "height": "16",
        "width": "12",
        "resize": "crop",
        "resize_to": "18",
        "mean": "0.485,0.456,0.406",
        "std": "0.229,0.224,0.225",
    },
    "bytes": {"height": "13", "width": "31", "resample": "bicubic", "dtype": "UINT8"},
    "letterbox": {
        "height": "20",
        "width": "27",
        "resize": "letterbox",
        "layout": "NHWC",
        "color": "BGR",
        "mean": "0.4,0.5,0.6",
        "image_size": "true",
    },
    "letterbox_gray": {"height": "33", "width": "9", "channels": "1", "resize": "letterbox", "pad_value": "0"},
    "shortest": {
        "height": "30",
        "width": "40",
        "resize": "shortest",
        "resize_to": "24",
        "dtype": "UINT8",
        "color": "BGR",
        "image_size": "true",
    },
    "bounded": {"height": "8", "width": "8", "max_pixels": "300", "max_batch_decoded_bytes": "500"},
}
TOP_K_IO = tensors("input", logits="FP32 [-1]") + tensors("output", label="STRING [3]", score="FP32 [3]")
AT_ONCE = "dynamic_batching { }"
CLASSES = 12


def write_pairs(root: Path) -> None:
    """Each step twice: as it is published, and without the parameter that names it."""
    for name, parameters in DECODERS.items():
        shape = [parameters["height"], parameters["width"]]
        shape.insert(2 if parameters.get("layout") == "NHWC" else 0, parameters.get("channels", "3"))
        kind = f"{parameters.get('dtype', 'FP32')} [{','.join(shape)}]"
        more = {"image_size": "INT64 [2]"} if parameters.get("image_size") else {}
        fields = tensors("input", image="STRING [1]") + tensors("output", pixels=kind, **more)
        for model, other in ((name, {}), (f"{name}_python", {"tritonkit.step": ""})):
            step(root / model, "decode_image", fields, AT_ONCE, **parameters, **other)
    for softmax in ("true", "false"):
        for suffix, other in (("", {}), ("_python", {"tritonkit.step": ""})):
            more = {"softmax": softmax, "k": "3", "labels": "labels.txt", **other}
            folder = step(root / f"top_{softmax}{suffix}", "top_k", TOP_K_IO, AT_ONCE, **more).parent
            lines = [f" label {place} é" for place in range(CLASSES)]
            (folder / "labels.txt").write_text("\n".join(lines) + "\n")
    for normalize in ("true", "false"):
        for suffix, other in (("", {}), ("_python", {"tritonkit.step": ""})):
            more = {"dimension": "4", "normalize": normalize, **other}
            step(root / f"pool_{normalize}{suffix}", "mean_pool", POOL_IO, AT_ONCE, **more)


@pytest.fixture(scope="module")
def triton(native_server: SharedBackends) -> Iterator[Running]:
    """The native backends with both kinds of each step."""
    with native_server.serving(write_pairs) as running:
        yield running


@pytest.fixture(scope="module")
def client(triton: Running) -> Iterator[grpc.InferenceServerClient]:
    """A raw Triton client."""
    with grpc.InferenceServerClient(triton.address) as client:
        yield client


def outcome(client: grpc.InferenceServerClient, model: str, **arrays: np.ndarray) -> dict[str, np.ndarray] | str:
    """Outputs, or the error's text without the name of the model."""
    try:
        return ask(client, model, **arrays)
    except InferenceServerException as error:
        return str(error).replace(f"'{model}'", "")


def same(client: grpc.InferenceServerClient, model: str, **arrays: np.ndarray) -> bool:
    """Check that both kinds answer the same, to the bit; whether it was an answer rather than an error."""
    native, python = (outcome(client, name, **arrays) for name in (model, f"{model}_python"))
    if isinstance(native, str) or isinstance(python, str):
        assert native == python
        return False
    assert {name: (array.dtype, array.shape, array.tolist()) for name, array in native.items()} == {
        name: (array.dtype, array.shape, array.tolist()) for name, array in python.items()
    }
    return True


def picture(mode: str, width: int, height: int, seed: int) -> Image.Image:
    """Noise over a slope, so that every filter of a PNG is used."""
    noise = np.random.default_rng(seed)
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "P": 1, "1": 1, "I;16": 1}[mode]
    slope = np.linspace(0, 200, width * height * channels).reshape(height, width, channels)
    values = (slope + noise.integers(0, 56, slope.shape)).astype(np.uint8)
    if mode == "I;16":
        return Image.fromarray(values[:, :, 0].astype(np.uint16) * 257)
    if mode in ("P", "1"):
        return Image.fromarray(values[:, :, 0]).convert("RGB" if mode == "P" else "L").convert(mode)
    return Image.fromarray(values[:, :, 0] if channels == 1 else values)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def spliced(file: bytes, *chunks: bytes) -> bytes:
    """The PNG with chunks behind its header."""
    return file[:33] + b"".join(chunks) + file[33:]


def every_filter(width: int, height: int) -> bytes:
    """An RGB PNG whose lines use the five filters in turn, its data in three chunks."""
    lines = np.random.default_rng(5).integers(0, 256, (height, width * 3), np.uint8)
    data = zlib.compress(b"".join(bytes([row % 5]) + lines[row].tobytes() for row in range(height)))
    parts = [data[:20], data[20:50], data[50:]]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + b"".join(chunk(b"IDAT", part) for part in parts)
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("model", DECODERS)
def test_images_are_decoded_to_the_same_bits(client: grpc.InferenceServerClient, model: str) -> None:
    """Every mode that a PNG has, sizes to either side of the network's, JPEG and WebP."""
    seed = 0
    files = [every_filter(31, 40)]
    for mode in ("L", "LA", "RGB", "RGBA", "P", "1", "I;16"):
        for size in ((8, 8), (20, 24), (31, 13), (1, 9), (97, 61)):
            seed += 1
            files.append(encoded(picture(mode, *size, seed), optimize=bool(seed % 2)))
    files.append(encoded(picture("RGB", 60, 40, 1), "JPEG"))
    files.append(encoded(picture("RGB", 60, 40, 1), "WEBP"))
    answered = [same(client, model, image=items(file)) for file in files]
    assert sum(answered) >= 10
    assert all(answered) or model == "bounded"


@pytest.mark.parametrize("model", ["color", "crop", "letterbox", "bounded"])
def test_what_a_file_says_beside_its_pixels_is_heard(client: grpc.InferenceServerClient, model: str) -> None:
    """Orientation, transparency, animation, texts, interlaced lines, bytes behind the end, wrong checksums."""
    plain = encoded(picture("RGB", 15, 12, 3))
    turned, exif = picture("RGB", 15, 12, 3), Image.Exif()
    exif[274] = 6
    clear = {"transparency": (0, 0, 0)}
    paletted = picture("P", 15, 12, 3)
    two = [picture("RGB", 15, 12, 4)]
    for file in (
        encoded(turned, exif=exif),
        encoded(picture("RGB", 15, 12, 3), **clear),
        encoded(picture("L", 15, 12, 3), transparency=7),
        encoded(paletted, transparency=3),
        encoded(paletted, bits=4),
        encoded(turned, save_all=True, append_images=two),
        spliced(plain, chunk(b"tEXt", b"Software\0a camera"), chunk(b"gAMA", b"\0\0\xb1\x8f")),
        spliced(plain, chunk(b"tEXt", b"Raw profile type exif\0\n\n\nnothing")),
        spliced(plain, chunk(b"abcd", b"x" * 5000)),
        spliced(plain, b"\0\0\0\0abcd\0\0\0\0"),
        plain + b"behind",
        plain[:-12],
        plain[:28] + b"\1" + plain[29:],
        plain[:8] + plain[33:],
    ):
        same(client, model, image=items(file))


def test_requests_of_several_images_and_bad_ones(client: grpc.InferenceServerClient) -> None:
    """A batch is answered as a whole; one bad image of it is named."""
    good = [encoded(picture("RGB", 9 + place, 8, place)) for place in range(4)]
    assert same(client, "color", image=items(*good))
    assert not same(client, "color", image=items(*good[:3], b"no image"))
    assert not same(client, "bounded", image=items(*good))
    assert not same(client, "color", image=items(b""))


def test_damaged_images_are_answered_as_python_does(client: grpc.InferenceServerClient) -> None:
    """Bits turned over, parts cut, repeated and overwritten."""
    chance = Random(12)
    files = [encoded(picture(mode, 14, 11, seed)) for seed, mode in enumerate(("L", "LA", "RGB", "RGBA", "P"))]
    for _ in range(DAMAGED):
        data = bytearray(chance.choice(files))
        for _ in range(chance.randint(1, 3)):
            at, size = chance.randrange(8, len(data)), chance.randint(1, 20)
            damage = chance.choice(("flip", "cut", "repeat", "write"))
            if damage == "flip":
                data[at] ^= 1 << chance.randrange(8)
            elif damage == "cut":
                del data[at : at + size]
            elif damage == "repeat":
                data[at:at] = data[at : at + size]
            else:
                data[at : at + size] = chance.randbytes(size)
        if chance.random() < 0.5:
            data = mended(data)
        same(client, "color", image=items(bytes(data)))


def mended(data: bytearray) -> bytearray:
    """The file with right checksums, so that damage gets past them."""
    at, out = 8, bytearray(data[:8])
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if at + 12 + length > len(data):
            break
        out += chunk(bytes(data[at + 4 : at + 8]), bytes(data[at + 8 : at + 8 + length]))
        at += 12 + length
    return out + data[at:]


@pytest.mark.parametrize("softmax", ["true", "false"])
def test_labels_are_ranked_alike(client: grpc.InferenceServerClient, softmax: str) -> None:
    """Ties, infinities and what is refused; scores to the last bits of a float."""
    chance = np.random.default_rng(1)
    rows = chance.normal(0, 5, (5, CLASSES)).astype(np.float32)
    rows[1, 3:7], rows[2, 2], rows[3] = rows[1].max(), -np.inf, 0
    wrong = [np.full((1, CLASSES), np.nan, np.float32), np.full((1, 3), 1, np.float32)]
    for logits in (rows, rows[:1], rows * 40, np.full((1, CLASSES), np.inf, np.float32), *wrong):
        native, python = (outcome(client, f"top_{softmax}{suffix}", logits=logits) for suffix in ("", "_python"))
        if isinstance(native, str) or isinstance(python, str):
            assert native == python
            continue
        assert native["label"].tolist() == python["label"].tolist()
        np.testing.assert_allclose(native["score"], python["score"], rtol=2e-6)


@pytest.mark.parametrize("normalize", ["true", "false"])
def test_vectors_are_pooled_alike(client: grpc.InferenceServerClient, normalize: str) -> None:
    """Several lengths, large numbers, a text without tokens, what is not finite, shapes that do not fit."""
    chance = np.random.default_rng(2)
    for tokens in (1, 7, 64):
        hidden = chance.normal(size=(3, tokens, 4)).astype(np.float32)
        mask = chance.integers(0, 2, (3, tokens)).astype(np.int64)
        mask[0] = 0
        shifted = hidden.copy()
        shifted[1] = np.inf
        large = hidden * np.float32(1e20)
        for vectors, weights in ((hidden, mask), (large, mask), (shifted, mask + 1), (hidden, mask[:, 1:])):
            arrays = {"last_hidden_state": vectors, "attention_mask": weights}
            native, python = (outcome(client, f"pool_{normalize}{suffix}", **arrays) for suffix in ("", "_python"))
            if isinstance(native, str) or isinstance(python, str):
                assert native == python
                continue
            np.testing.assert_allclose(native["embedding"], python["embedding"], rtol=1e-5, atol=1e-6)
            if normalize == "true":
                lengths = np.linalg.norm(native["embedding"], axis=1)
                np.testing.assert_allclose(lengths, weights.any(axis=1), atol=1e-6)


def test_plain_images_need_no_stub(triton: Running, client: grpc.InferenceServerClient) -> None:
    """While the step's process stands still a plain PNG is answered; it is counted as every request."""
    before = client.get_inference_statistics("gray_same").model_stats[0]
    (stub,) = stubs_of(triton, "gray_same")
    file = items(encoded(picture("L", 8, 8, 1)))
    os.kill(stub, signal.SIGSTOP)
    try:
        answers = ask_together(client, "gray_same", [{"image": file}] * 6)
    finally:
        os.kill(stub, signal.SIGCONT)
    assert all(isinstance(answer, dict) for answer in answers)

    def counts() -> tuple[int, int, int]:
        after = client.get_inference_statistics("gray_same").model_stats[0]
        return (
            after.inference_stats.success.count - before.inference_stats.success.count,
            after.inference_count - before.inference_count,
            after.execution_count - before.execution_count,
        )

    # A request is counted after its answer has left.
    eventually(lambda: counts()[:2] == (6, 6), "all of them counted")
    assert 1 <= counts()[2] <= 6


def stubs_of(triton: Running, model: str) -> list[int]:
    """The processes that run a model's Python."""
    pids = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(f"/{model}/1/model.py".encode() in word for word in words) and any(
            triton.regions.encode() in word for word in words
        ):
            pids.append(int(place.parent.name))
    return pids
