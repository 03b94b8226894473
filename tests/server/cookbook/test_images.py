"""Pages about pictures."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.repository.scaffold.checkpoints import TEXTS, tower_checkpoint
from tests.server.cookbook.conftest import Answer
from tests.server.kitchen import Kitchen, Page

ANSWERS = Path(__file__).with_name("torchvision_answers.py")


def picture(number: int) -> bytes:
    """A JPEG of colored noise, another for each number, of another size for each."""
    generator = np.random.default_rng(number)
    small = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((240 + 16 * number, 300), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


@pytest.fixture
def torchvision(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The torchvision of this PyTorch, for child processes alone."""
    folder = tmp_path_factory.mktemp("torchvision")
    major, minor = torch.__version__.split(".")[:2]
    assert major == "2"
    version = f"torchvision==0.{int(minor) + 15}.*"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), version], check=True
    )
    shutil.copy(ANSWERS, folder / "sitecustomize.py")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


def torchvision_says(weights: Path, answers: Path, pictures: list[Path]) -> None:
    """Write the weights, or the probabilities of the pictures' classes where the weights are there."""
    subprocess.run([sys.executable, ANSWERS, weights, answers, *pictures], check=True)


@pytest.mark.usefixtures("torchvision")
def test_an_image_classifier_of_torchvision(place: Kitchen, answers: Answer) -> None:
    """Scores are those of torchvision's own transforms and network, for 16 callers at the same time."""
    folder = place.folder
    files = [folder / f"{number:02}.jpg" for number in range(32)]
    for number, file in enumerate(files):
        file.write_bytes(picture(number))
    weights = folder / "resnet18.pth"
    torchvision_says(weights, folder / "reference", [])
    labels = [f"label {number}" for number in range(1000)]
    place.ahead = {
        "models/classifier/labels.txt": "\n".join(labels).encode(),
        "models/classifier/photo.jpg": files[0].read_bytes(),
    }
    place.cook(Page.read("image-classifier"))
    torchvision_says(weights, folder / "reference", files)
    reference = torch.load(folder / "reference", weights_only=True)
    items = [{"image": [file.read_bytes()]} for file in files]
    for scores, reply in zip(reference, answers(place, "classifier", items), strict=True):
        chosen = [labels.index(label.decode()) for label in reply["label"].ravel()]
        # Labels of nearly the same score may change places.
        np.testing.assert_allclose(reply["score"].ravel(), scores[chosen], rtol=2e-2)
        np.testing.assert_allclose(reply["score"].ravel(), scores.topk(3).values, rtol=2e-2)


LABELS = ("cat", "dog", "bird")
SIDE = 640


class Detector(torch.nn.Module):
    """A network with the output of YOLO v8: centers, sizes and class scores of boxes on a grid of 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Conv2d(3, 4 + len(LABELS), 32, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images float32 [batch, 3, 640, 640] in 0..1 to boxes float32 [batch, 7, 400]."""
        found = self.features(images).flatten(2)
        cells = torch.arange(SIDE // 32) * 32 + 16.0
        centers = torch.stack([cells.repeat(SIDE // 32), cells.repeat_interleave(SIDE // 32)])
        centers = centers.expand(images.shape[0], -1, -1) + 8 * found[:, :2].tanh()
        return torch.cat([centers, 64 + 32 * found[:, 2:4].tanh(), (3 * found[:, 4:]).sigmoid()], 1)


def letterboxed(data: bytes) -> tuple[np.ndarray, float, tuple[int, int]]:
    """Pixels [3, 640, 640] in 0..1, the scale, and the padding left and above, as ultralytics' LetterBox has them."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = min(SIDE / image.width, SIDE / image.height)
    size = round(image.width * scale), round(image.height * scale)
    left, above = (round((SIDE - one) / 2 - 0.1) for one in size)
    canvas = Image.new("RGB", (SIDE, SIDE), (114, 114, 114))
    canvas.paste(image.resize(size, Image.Resampling.BILINEAR), (left, above))
    return np.asarray(canvas, np.float32).transpose(2, 0, 1) / 255, scale, (left, above)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union of two boxes with two corners each."""
    width, height = np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None)
    areas = [np.prod(box[2:] - box[:2]) for box in (one, other)]
    return float(width * height / (sum(areas) - width * height))


def detected(network: Detector, data: bytes) -> list[tuple[str, float, np.ndarray]]:
    """Labels, scores and boxes of a picture, best first, by a plain loop."""
    pixels, scale, padding = letterboxed(data)
    with torch.inference_mode():
        (raw,) = network(torch.from_numpy(pixels)[None]).numpy()
    corners = np.concatenate([raw[:2] - raw[2:4] / 2, raw[:2] + raw[2:4] / 2]).T
    rows = [(float(raw[4:, n].max()), int(raw[4:, n].argmax()), corners[n]) for n in range(raw.shape[1])]
    kept: list[tuple[float, int, np.ndarray]] = []
    for score, kind, box in sorted(rows, key=lambda row: -row[0]):
        if score > 0.25 and all(kind != other or overlap(box, there) <= 0.45 for _, other, there in kept):
            kept.append((score, kind, box))
    size = Image.open(io.BytesIO(data)).size
    upper = np.array([*size, *size], np.float32)
    return [(LABELS[kind], score, np.clip((box - [*padding] * 2) / scale, 0, upper)) for score, kind, box in kept[:50]]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_detection_with_yolo(place: Kitchen, answers: Answer) -> None:
    """Boxes are those of a plain loop over the same network's output, for 16 callers at the same time."""
    torch.manual_seed(5)
    network = Detector().eval()
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["output0"]}
    batches = ({0: torch.export.Dim("batch")},)
    example = (torch.zeros(2, 3, SIDE, SIDE),)
    torch.onnx.export(network, example, place.folder / "yolo11n.onnx", **names, dynamic_shapes=batches, dynamo=True)
    pictures = [picture(number) for number in range(32)]
    place.ahead = {
        "models/detector/labels.txt": "\n".join(LABELS).encode(),
        "models/detector/photo.jpg": pictures[0],
    }
    place.cook(Page.read("yolo"))
    replies = answers(place, "detector", [{"image": [data]} for data in pictures])
    for data, reply in zip(pictures, replies, strict=True):
        expected = detected(network, data)
        count = reply["count"].item()
        assert count == len(expected) > 0
        scores = np.array([score for _, score, _ in expected])
        np.testing.assert_allclose(reply["score"].ravel()[:count], scores, atol=2e-3)
        for label, score, box in expected:
            # Boxes of nearly the same score may change places.
            near = [
                np.abs(reply["box"].reshape(-1, 4)[n] - box).max()
                for n in range(count)
                if reply["label"].ravel()[n].decode() == label and abs(reply["score"].ravel()[n] - score) < 4e-3
            ]
            assert min(near) < 0.5
    assert not reply["score"].ravel()[count:].any()


class Segmenter(torch.nn.Module):
    """A network with the output of SegFormer: scores of each class at a fourth of the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Conv2d(3, 5, 4, 4)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Images float32 [batch, 3, height, width] to logits float32 [batch, 5, height / 4, width / 4]."""
        return self.features(pixel_values)


def segmented(network: Segmenter, data: bytes) -> np.ndarray:
    """Scores float32 [classes, height, width] of a picture's pixels, as transformers resizes them."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    pixels = np.asarray(image.resize((512, 512), Image.Resampling.BILINEAR), np.float32) / 255
    pixels = (pixels - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    with torch.inference_mode():
        logits = network(torch.from_numpy(pixels.transpose(2, 0, 1))[None])
        size = (image.height, image.width)
        return torch.nn.functional.interpolate(logits, size, mode="bilinear", align_corners=False)[0].numpy()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_segmentation(place: Kitchen, answers: Answer) -> None:
    """Classes of pixels are those of PyTorch's network and interpolation, for 16 callers at the same time."""
    torch.manual_seed(7)
    network = Segmenter().eval()
    file = place.folder / "segformer" / "onnx" / "model.onnx"
    file.parent.mkdir(parents=True)
    names: dict[str, Any] = {"input_names": ["pixel_values"], "output_names": ["logits"]}
    sides = {axis: 4 * torch.export.Dim(name) for axis, name in ((2, "rows"), (3, "columns"))}
    axes = ({0: torch.export.Dim("batch"), **sides},)
    torch.onnx.export(network, (torch.zeros(2, 3, 64, 96),), file, **names, dynamic_shapes=axes, dynamo=True)
    pictures = [picture(number) for number in range(32)]
    place.ahead = {"models/segments/photo.jpg": pictures[0]}
    place.cook(Page.read("segmentation"))
    replies = answers(place, "segments", [{"image": [data]} for data in pictures])
    for data, reply in zip(pictures, replies, strict=True):
        scores = segmented(network, data)
        mask = reply["mask"][0]
        assert mask.shape == scores.shape[1:] == tuple(reply["mask_size"][0])
        assert len(np.unique(mask)) > 1
        # Where two classes have nearly the same score, either may win.
        chosen = np.take_along_axis(scores, mask[None].astype(np.int64), 0)[0]
        np.testing.assert_allclose(chosen, scores.max(0), atol=0.05)
        assert (mask == scores.argmax(0)).mean() > 0.98


def test_images_and_texts_in_one_space(place: Kitchen, answers: Answer) -> None:
    """Vectors of both towers, and the program's order, are those of transformers, for 16 callers at the same time."""
    from tokenizers import Tokenizer
    from transformers import AutoImageProcessor, CLIPModel

    folder = tower_checkpoint(place.folder / "clip")
    pictures = [picture(number) for number in range(32)]
    (place.folder / "photo.jpg").write_bytes(pictures[0])
    place.cook(Page.read("image-and-text"))
    texts = ["a photo of a cat", "a photo of a dog", *TEXTS]
    network, processor = CLIPModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(32)
    pixels = processor([Image.open(io.BytesIO(data)) for data in pictures], return_tensors="pt")["pixel_values"]
    vectors = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.inference_mode():
            output = network(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels)
        vectors.append(output.text_embeds[0].numpy())
    images = np.concatenate([reply["embedding"] for reply in answers(place, "clip_image", _items("image", pictures))])
    # A resized pixel may be one step of 255 away, because decode_image cuts before it resizes.
    np.testing.assert_allclose(images, output.image_embeds, rtol=0.02, atol=0.02)
    distances = np.abs(images[:, None] - output.image_embeds.numpy()).max(-1)
    assert distances.argmin(1).tolist() == list(range(len(pictures))), "an image has another's vector"
    replies = answers(place, "clip_text", _items("text", texts * 4))
    np.testing.assert_allclose(
        np.concatenate([reply["embedding"] for reply in replies]), vectors * 4, rtol=1e-3, atol=1e-4
    )
    printed = [line.split(" ", 1) for line in place.output.splitlines()]
    similarities = {
        text: float(vector @ output.image_embeds[0].numpy()) for text, vector in zip(texts, vectors, strict=True)
    }
    assert {text for _, text in printed} == set(texts[:2])
    assert float(printed[0][0]) >= float(printed[1][0])
    for similarity, text in printed:
        assert abs(float(similarity) - similarities[text]) < 0.02


def _items(name: str, values: list[Any]) -> list[dict[str, Any]]:
    return [{name: [value]} for value in values]
