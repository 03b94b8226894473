"""Recipes of the pages about pictures."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from bench.families import vision
from bench.families.checkpoints import tower_checkpoint
from bench.families.recipes import Answer, Item, Recipe, from_floats, from_json, items_of

if TYPE_CHECKING:
    from torch import nn

    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["RECIPES", "detected", "picture", "segmented"]

PICTURES = 32
MOST = 50
"""Boxes of a picture: `k` of the page about YOLO."""
KERAS = Path(__file__).with_name("keras_answers.py")
TEXT_TOWER = {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048}
IMAGE_TOWER = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "image_size": 224,
    "patch_size": 32,
}


def picture(number: int) -> bytes:
    """A JPEG of colored noise, another for each number, of another size for each."""
    generator = np.random.default_rng(number)
    small = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((240 + 16 * number, 300), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


def pictures() -> list[Item]:
    """Requests with a picture each."""
    return items_of("image", [picture(number) for number in range(PICTURES)])


def classifier(place: Kitchen, small: bool) -> list[Item]:
    """ResNet-18, whose size is that of the page."""
    place.environment = {**place.environment, **vision.environment()}
    vision.torchvision_says(place.folder / "resnet18.pth", place.folder / "reference", [])
    return labeled(place, "classifier", 1000)


def labeled(place: Kitchen, model: str, count: int) -> list[Item]:
    """Pictures, with the files of a classifier that its page puts into the model's folder."""
    items = pictures()
    place.ahead = {
        f"models/{model}/labels.txt": "\n".join(f"label {number}" for number in range(count)).encode(),
        f"models/{model}/photo.jpg": items[0]["image"],
    }
    return items


def written(folder: Path, items: Sequence[Item]) -> list[Path]:
    """The pictures as files."""
    files = [folder / f"{number:02}.jpg" for number in range(len(items))]
    for file, item in zip(files, items, strict=True):
        file.write_bytes(item["image"])
    return files


def classes(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The three best classes of torchvision's own transforms and network."""
    import torch

    files = written(folder, items)
    vision.torchvision_says(folder / "resnet18.pth", folder / "reference", files)
    best = torch.load(folder / "reference", weights_only=True).topk(3)
    rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [Answer(scores, [f"label {number}" for number in numbers]) for scores, numbers in rows]


def labels(reply: Reply) -> Answer:
    """Labels and their scores, best first."""
    return Answer(reply["score"].ravel(), [label.decode() for label in reply["label"].ravel()])


def detector(place: Kitchen, small: bool) -> list[Item]:
    """A detector of three classes."""
    import torch

    from bench.families import networks

    network = networks.detector(small)
    torch.save(network.state_dict(), place.folder / "network.pt")
    example = torch.zeros(2, 3, networks.SIDE, networks.SIDE)
    networks.to_onnx(network, place.folder / "yolo11n.onnx", "images", "output0", example, {})
    items = pictures()
    place.ahead = {
        "models/detector/labels.txt": "\n".join(networks.LABELS).encode(),
        "models/detector/photo.jpg": items[0]["image"],
    }
    return items


def letterboxed(data: bytes) -> tuple[np.ndarray, float, tuple[int, int]]:
    """Pixels [3, 640, 640] in 0..1, the scale, and the padding left and above, as ultralytics' LetterBox has them."""
    from bench.families.networks import SIDE

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


def detected(network: nn.Module, data: bytes) -> list[tuple[str, float, np.ndarray]]:
    """Labels, scores and boxes of a picture, best first, by a plain loop."""
    import torch

    from bench.families.networks import LABELS

    pixels, scale, padding = letterboxed(data)
    with torch.inference_mode():
        (raw,) = network(torch.from_numpy(pixels)[None]).numpy()
    corners = np.concatenate([raw[:2] - raw[2:4] / 2, raw[:2] + raw[2:4] / 2]).T
    rows = [(float(raw[4:, n].max()), int(raw[4:, n].argmax()), corners[n]) for n in range(raw.shape[1])]
    kept: list[tuple[float, int, np.ndarray]] = []
    for score, kind, box in sorted(rows, key=lambda row: -row[0]):
        if score > 0.25 and all(kind != other or overlap(box, there) <= 0.45 for _, other, there in kept):
            kept.append((score, kind, box))
        if len(kept) == MOST:
            break
    size = Image.open(io.BytesIO(data)).size
    upper = np.array([*size, *size], np.float32)
    return [(LABELS[kind], score, np.clip((box - [*padding] * 2) / scale, 0, upper)) for score, kind, box in kept]


def boxes(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """Labels and scores of a plain loop over the same network."""
    from bench.families.networks import loaded

    network = loaded(folder / "network.pt")
    found = [detected(network, item["image"]) for item in items]
    return [Answer([score for _, score, _ in rows], [label for label, _, _ in rows]) for rows in found]


def boxed(reply: Reply) -> Answer:
    """Labels and scores of the boxes, best first."""
    count = reply["count"].item()
    return Answer(reply["score"].ravel()[:count], [label.decode() for label in reply["label"].ravel()[:count]])


def segmenter(place: Kitchen, small: bool) -> list[Item]:
    """A network that tells classes of pixels."""
    import torch

    from bench.families import networks

    network = networks.segmenter(small)
    torch.save(network.state_dict(), place.folder / "network.pt")
    sides = {axis: 4 * torch.export.Dim(name) for axis, name in ((2, "rows"), (3, "columns"))} if small else {}
    example = torch.zeros(2, 3, 64, 96) if small else torch.zeros(2, 3, 512, 512)
    networks.to_onnx(network, place.folder / "segformer/onnx/model.onnx", "pixel_values", "logits", example, sides)
    items = pictures()
    place.ahead = {"models/segments/photo.jpg": items[0]["image"]}
    return items


def segmented(network: nn.Module, data: bytes) -> np.ndarray:
    """Scores float32 [classes, height, width] of a picture's pixels, as transformers resizes them."""
    import torch

    image = Image.open(io.BytesIO(data)).convert("RGB")
    pixels = np.asarray(image.resize((512, 512), Image.Resampling.BILINEAR), np.float32) / 255
    pixels = (pixels - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    with torch.inference_mode():
        logits = network(torch.from_numpy(pixels.transpose(2, 0, 1))[None])
        size = (image.height, image.width)
        return torch.nn.functional.interpolate(logits, size, mode="bilinear", align_corners=False)[0].numpy()


def masks(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The class of each pixel by PyTorch's network and interpolation."""
    from bench.families.networks import loaded

    network = loaded(folder / "network.pt")
    return [Answer((), segmented(network, item["image"]).argmax(0).ravel()) for item in items]


def towers(place: Kitchen, small: bool) -> list[Item]:
    """CLIP with both towers; requests are of the one for images."""
    sizes = {} if small else {"text": TEXT_TOWER, "vision": IMAGE_TOWER, "width": 512, "crop": 224, "resize": 224}
    tower_checkpoint(place.folder / "clip", **sizes)
    items = pictures()
    (place.folder / "photo.jpg").write_bytes(items[0]["image"])
    return items


def vectors(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """transformers' vectors of images."""
    import torch
    from transformers import AutoImageProcessor, CLIPModel

    network = CLIPModel.from_pretrained(folder / "clip").eval()
    processor = AutoImageProcessor.from_pretrained(folder / "clip")
    images = [Image.open(io.BytesIO(item["image"])) for item in items]
    ids = torch.zeros(1, 1, dtype=torch.long)
    with torch.inference_mode():
        output = network(input_ids=ids, pixel_values=processor(images, return_tensors="pt")["pixel_values"])
    return [Answer(vector) for vector in output.image_embeds.numpy()]


def keras_classifier(place: Kitchen, small: bool) -> list[Item]:
    """A classifier of Keras, of the size of MobileNet V2."""
    run = [sys.executable, KERAS, place.folder / "flowers.keras", "small" if small else "whole"]
    subprocess.run(run, check=True)
    return labeled(place, "flowers", 5)


def keras_classes(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The three best classes of Keras's own network."""
    files = written(folder, items)
    answers = folder / "answers.npy"
    subprocess.run([sys.executable, KERAS, folder / "flowers.keras", answers, *files], check=True)
    rows = np.load(answers)
    best = np.argsort(-rows, axis=1)[:, :3]
    return [Answer(row[one], [f"label {number}" for number in one]) for row, one in zip(rows, best, strict=True)]


def masked(reply: Reply) -> Answer:
    """The class of each pixel."""
    return Answer((), reply["mask"][0].ravel())


def masked_pixels(body: bytes) -> Answer:
    """The same in the body of the app's answer."""
    return Answer((), np.frombuffer(body, np.uint8))


def embedded(reply: Reply) -> Answer:
    """The vector of a picture."""
    return Answer(reply["embedding"].ravel())


RECIPES = {
    "image-classifier": Recipe(
        "classifier", "models/classifier", "images:Classifier", classifier, classes, labels, from_json, at_most=0.01
    ),
    "keras": Recipe(
        "flowers", "models/flowers", "images:Flowers", keras_classifier, keras_classes, labels, from_json, at_most=0.01
    ),
    "yolo": Recipe("detector", "models/detector", "images:Detector", detector, boxes, boxed, from_json, at_most=4e-3),
    "segmentation": Recipe("segments", "models/segments", "images:Segmenter", segmenter, masks, masked, masked_pixels),
    "image-and-text": Recipe(
        "clip_image", "clip", "images:Tower", towers, vectors, embedded, from_floats, at_most=0.02
    ),
}
