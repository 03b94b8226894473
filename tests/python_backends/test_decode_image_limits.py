"""decode_image takes bounded memory and time, whatever file it is given; measured in a process of its own."""

import io
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_image_batch import fitting
from decode_image_core import Settings, decode_image, decoded_bytes
from PIL import Image, PngImagePlugin

from tests.python_backends.adapters import Request, adapter, images

pytestmark = pytest.mark.slow

STEP = Path(__file__).parents[2] / "python_backends" / "steps" / "decode_image"
MIB = 1 << 20
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}

MEASURE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from decode_image_core import Settings, decode_image

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

data, small = sys.stdin.buffer.read(), Path(sys.argv[2]).read_bytes()
decode_image(small, Settings())
Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
before = memory("VmRSS")
try:
    outcome = str(decode_image(data, Settings()).shape)
except ValueError as error:
    outcome = f"ValueError: {error}"
print(memory("VmHWM") - before)
print(outcome)
"""


def peak_bytes(data: bytes, scratch: Path) -> tuple[int, str]:
    """Memory that decoding takes in addition to the file itself, and the outcome."""
    (scratch / "small.png").write_bytes(png(8, 8, 8, 6))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(STEP), str(scratch / "small.png")],
        input=data,
        capture_output=True,
        check=True,
    )
    peak, output = done.stdout.decode().split("\n", 1)
    return int(peak), output.strip()


def chunk(name: bytes, data: bytes) -> bytes:
    """One PNG chunk with length and checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, depth: int, color: int, more: bytes = b"") -> bytes:
    """A black PNG, of which a huge one is small; `more` are chunks in front of the pixels."""
    row = (width * CHANNELS[color] * depth + 7) // 8 + 1
    packed = zlib.compressobj(6)
    at_once = max(MIB // row, 1)
    parts = [packed.compress(bytes(row * min(at_once, height - start))) for start in range(0, height, at_once)]
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    content = b"".join([*parts, packed.flush()])
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + more + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def jpeg(size: tuple[int, int], mode: str = "RGB", **options: Any) -> bytes:
    """A black JPEG."""
    file = io.BytesIO()
    Image.new(mode, size).save(file, "JPEG", **options)
    return file.getvalue()


def webp(size: tuple[int, int], mode: str = "RGB", **options: Any) -> bytes:
    """A WebP of a slope, half clear where it has alpha."""
    file = io.BytesIO()
    image = Image.linear_gradient("L").resize(size).convert(mode)
    if mode == "RGBA":
        image.putalpha(128)
    image.save(file, "WEBP", method=0, **options)
    return file.getvalue()


def exif(orientation: int, rationals: int = 0) -> bytes:
    """An EXIF directory of an orientation and one tag of many values."""
    head = b"MM\x00*\x00\x00\x00\x08" + struct.pack(">H", 2)
    head += struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    head += struct.pack(">HHII", 0x9999, 5, rationals, 38) + bytes(4)
    return head + b"\x01\x02\x03\x04\x00\x00\x00\x01" * rationals


def text_bomb() -> bytes:
    """60 texts of 1 MiB, each stored by Python in 4 bytes per character for one rare character."""
    text = zlib.compress(("a" * (MIB - 8) + "\U0001f600").encode())
    return b"".join(chunk(b"iTXt", b"k%d\0\x01\0\0\0" % number + text) for number in range(60))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: png(8000, 8000, 8, 6), "8000 x 8000 x 4 bytes; at most 201326592"),
        (lambda: png(6000, 6000, 16, 2), "6000 x 6000 x 6 bytes"),
        (lambda: jpeg((6000, 6000), progressive=True), "6000 x 6000 x 6 bytes"),
        (lambda: png(1, 1_000_000, 8, 2), "to resize it takes 688000016 bytes"),
        (lambda: png(16_000_000, 1, 8, 0), "to resize it takes"),
    ],
    ids=["RGBA", "16 bit", "progressive", "thin", "wide"],
)
def test_what_would_take_too_much_is_refused_by_its_header(data: Any, message: str, tmp_path: Path) -> None:
    """Files of a few hundred KiB that took up to 1.25 GiB: refused, in next to no memory."""
    peak, output = peak_bytes(data(), tmp_path)
    assert message in output
    assert "(parameter max_decoded_bytes)" in output
    assert peak < 8 * MIB


@pytest.mark.parametrize(
    ("data", "decoded"),
    [
        (lambda: png(3000, 3000, 8, 2), 3),
        (lambda: png(3000, 3000, 8, 2, chunk(b"eXIf", exif(6))), 3),
        (lambda: png(3000, 3000, 8, 6), 4),
        (lambda: png(3000, 3000, 8, 4), 2),
        (lambda: png(3000, 3000, 16, 0), 2),
        (lambda: png(3000, 3000, 16, 0, chunk(b"tRNS", b"\0\0")), 2),
        (lambda: png(3000, 3000, 1, 3, chunk(b"PLTE", bytes(6)) + chunk(b"tRNS", b"\0")), 3),
        (lambda: jpeg((3000, 3000), "CMYK"), 4),
        (lambda: jpeg((3000, 3000), progressive=True, subsampling=0), 6),
        (lambda: webp((3000, 3000)), 8),
        (lambda: webp((3000, 3000), "RGBA"), 8),
        (lambda: webp((3000, 3000), "RGBA", lossless=True), 8),
        (lambda: webp((3000, 3000), lossless=True, exif=exif(6)), 8),
    ],
    ids=[
        "RGB",
        "RGB turned",
        "RGBA",
        "gray with alpha",
        "16 bit",
        "16 bit, one clear",
        "palette with alpha",
        "CMYK",
        "progressive",
        "WebP",
        "WebP with alpha",
        "lossless WebP with alpha",
        "lossless WebP turned",
    ],
)
def test_peak_memory_is_three_times_the_decoded_bytes(data: Any, decoded: int, tmp_path: Path) -> None:
    """The copies between the steps stay within the limit's promise in every mode."""
    file = data()
    assert decoded_bytes(file, Settings()) == 3000 * 3000 * decoded
    peak, shape = peak_bytes(file, tmp_path)
    assert shape == "(3, 224, 224)"
    assert peak < 3 * 3000 * 3000 * decoded + 16 * MIB


def test_metadata_costs_nothing(tmp_path: Path) -> None:
    """60 texts that unpack to 240 MiB in a file of 64 KiB, and an EXIF tag of 100,000 values."""
    for more in (text_bomb(), chunk(b"eXIf", exif(6, 100_000))):
        peak, shape = peak_bytes(png(8, 8, 8, 2, more), tmp_path)
        assert shape == "(3, 224, 224)"
        assert peak < 8 * MIB


def test_a_jpeg_of_many_scans_is_refused() -> None:
    """A scan of a few bytes costs a pass over the whole image: 2,000 of them would take minutes."""
    file = jpeg((64, 64), "L", progressive=True)
    last = file.rindex(b"\xff\xda")
    scan, end = file[last:-2], file[-2:]
    with pytest.raises(ValueError, match=r"it has 2\d\d\d scans; at most 100 are taken"):
        decode_image(file[:last] + scan * 2000 + end, Settings())
    # The mark of the end hidden in a comment does not hide the scans that follow it.
    comment = b"\xff\xfe\x00\x06\xff\xd9\xff\xd9"
    hidden = file[:last] + comment + scan * 2000 + end
    started = time.process_time()
    with pytest.raises(ValueError, match="damaged"):
        decode_image(hidden, Settings())
    assert time.process_time() - started < 20


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_endless_parts_are_refused(kind: str) -> None:
    """Millions of empty chunks or segments are given up after 65,536."""
    if kind == "PNG":
        file = png(8, 8, 8, 2, chunk(b"teXt", b"") * 70_000)
    else:
        file = jpeg((8, 8))
        file = file[:2] + b"\xff\xfe\x00\x02" * 70_000 + file[2:]
    with pytest.raises(ValueError, match="it has more than 65536"):
        decode_image(file, Settings())


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_short_chunk_of_flags_is_refused(size: int) -> None:
    """A WebP whose second VP8X chunk has no flags, or no sizes."""
    file = webp((8, 8), "RGBA")
    more = b"VP8X" + struct.pack("<I", size) + bytes(size + size % 2)
    body = file[8:30] + more + file[30:]
    with pytest.raises(ValueError, match="the WebP image is refused: its VP8X chunk is too short"):
        decode_image(b"RIFF" + struct.pack("<I", len(body)) + body, Settings())


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "TIFF"])
def test_several_frames_are_refused(kind: str) -> None:
    """An animated PNG or WebP is refused as such; other formats of several frames are neither of the three."""
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue", "green")]
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    message = {"PNG": "several frames", "WEBP": "an animation"}.get(kind, "not a PNG, JPEG or WebP")
    with pytest.raises(ValueError, match=message):
        decode_image(file.getvalue(), Settings())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_read_wherever_it_is_written(orientation: int) -> None:
    """EXIF chunk, XMP (packed or not) and ImageMagick's profile turn a picture in the same way."""
    values = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    tag = Image.Exif()
    tag[274] = orientation
    xmp = f'<x tiff:Orientation="{orientation}"/>'
    profile = f"\nexif\n{len(tag.tobytes()):8}\n{tag.tobytes().hex()}\n"
    settings = Settings(height=4, width=4, channels=1, resample="nearest", scale=1.0)

    def decoded(**options: Any) -> Any:
        file = io.BytesIO()
        Image.fromarray(values).save(file, "PNG", **options)
        return decode_image(file.getvalue(), settings)

    def with_text(add: str, *text: Any, **options: Any) -> Any:
        info = PngImagePlugin.PngInfo()
        getattr(info, add)(*text, **options)
        return decoded(pnginfo=info)

    expected = decoded(exif=tag)
    for packed in (False, True):
        by_xmp = with_text("add_itxt", "XML:com.adobe.xmp", xmp, zip=packed)
        np.testing.assert_array_equal(by_xmp, expected)
        by_profile = with_text("add_text", "Raw profile type exif", profile, zip=packed)
        np.testing.assert_array_equal(by_profile, expected)


def test_the_small_are_taken_before_the_large() -> None:
    """If not all images fit together, a large one waits, and small ones are not turned away for it."""
    assert fitting([50, 5, 40, 5], 100) == [True] * 4
    assert fitting([60, 5, 40, 5], 100) == [False, True, True, True]
    assert fitting([90, 90], 100) == [True, False]
    assert fitting([], 100) == []


# The adapter ------------------------------------------------------------------------------------


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The step's model.py with room for 1,000 decoded bytes at a time."""
    texts = {"height": "2", "width": "2", "max_decoded_bytes": "800", "max_batch_decoded_bytes": "1000"}
    return adapter("decode_image", monkeypatch, **texts)


def request(*files: bytes) -> Request:
    """A request for some images."""
    return Request(image=images(*files))


def test_the_whole_batch_counts(model: Any) -> None:
    """A request's images count together; merged requests do too, the smaller ones first."""
    small, large = png(5, 5, 8, 2), png(16, 16, 8, 2)  # 75 and 768 bytes decoded
    [answer] = model.execute([request(large, large)])
    assert answer.kind == "invalid"
    assert "2 images of 1536 bytes decoded; at most 1000 are taken together" in answer.text
    answers = model.execute([request(large), request(small, small), request(large)])
    assert [getattr(answer, "kind", "") for answer in answers] == ["", "", "unavailable"]
    assert answers[1].shape == (2, 3, 2, 2)


def test_one_bad_image_fails_its_own_request(model: Any) -> None:
    """An image that is too large, truncated or not an image: the neighbors are answered, each decoded once."""
    good = png(5, 5, 8, 2)
    bad = [png(40, 40, 8, 2), good[:-30], b"text"]
    answers = model.execute([request(good), *map(request, bad), request(good, good)])
    assert [getattr(answer, "kind", "") for answer in answers] == ["", *["invalid"] * 3, ""]
    assert "at most 800 bytes are taken" in answers[1].text
    assert "damaged" in answers[2].text
