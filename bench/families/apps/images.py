"""Models of pictures: Pillow, ONNX Runtime and numpy; an encoded picture in."""

import io
from pathlib import Path

import numpy as np
from PIL import Image
from texts import answered, opened, softmax

MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
CLIP_MEAN = np.float32([0.48145466, 0.4578275, 0.40821073])
CLIP_STD = np.float32([0.26862954, 0.26130258, 0.27577711])


class Picture:
    """A network of pictures."""

    def __init__(self, folder: str, network: str, threads: int) -> None:
        self.folder = folder
        self.session = opened(network, threads)
        [entry, *_] = self.session.get_inputs()
        self.name = entry.name
        self.side = entry.shape[-1]

    def run(self, pixels: np.ndarray) -> list[np.ndarray]:
        """The network's outputs for pixels [rows, columns, 3]."""
        return self.session.run(None, {self.name: np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]})


def opened_picture(body: bytes) -> Image.Image:
    """A picture in RGB."""
    return Image.open(io.BytesIO(body)).convert("RGB")


def middle(image: Image.Image, shorter: int, side: int, resample: Image.Resampling) -> np.ndarray:
    """The middle of a picture that is resized by its shorter side: float32 in 0..1."""
    scale = shorter / min(image.size)
    width, height = (shorter if size == min(image.size) else int(scale * size) for size in image.size)
    left, above = round((width - side) / 2), round((height - side) / 2)
    image = image.resize((width, height), resample).crop((left, above, left + side, above + side))
    return np.asarray(image, np.float32) / 255


class Classifier(Picture):
    """The three best labels."""

    def __init__(self, folder: str, network: str, threads: int) -> None:
        super().__init__(folder, network, threads)
        self.labels = Path(folder, "labels.txt").read_text().splitlines()

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        pixels = (middle(opened_picture(body), 256, 224, Image.Resampling.BILINEAR) - MEAN) / STD
        [logits] = self.run(pixels)
        scores = softmax(logits[0])
        best = np.argsort(-scores)[:3]
        return answered([self.labels[number] for number in best], scores[best])


class Flowers:
    """The three best labels of a network that takes channels last and gives probabilities."""

    def __init__(self, folder: str, network: str, threads: int) -> None:
        self.session = opened(network, threads)
        self.name = self.session.get_inputs()[0].name
        self.labels = Path(folder, "labels.txt").read_text().splitlines()

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        image = opened_picture(body).resize((224, 224), Image.Resampling.BILINEAR)
        [[scores]] = self.session.run(None, {self.name: np.asarray(image, np.float32)[None] / 127.5 - 1})
        best = np.argsort(-scores)[:3]
        return answered([self.labels[number] for number in best], scores[best])


class Detector(Classifier):
    """Labels and scores of boxes, without those that overlap a better one of their class."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        image = opened_picture(body)
        scale = min(640 / image.width, 640 / image.height)
        size = round(image.width * scale), round(image.height * scale)
        left, above = (round((640 - one) / 2 - 0.1) for one in size)
        canvas = np.full((640, 640, 3), 114, np.uint8)
        canvas[above : above + size[1], left : left + size[0]] = image.resize(size, Image.Resampling.BILINEAR)
        [[raw]] = self.run(canvas.astype(np.float32) / 255)
        scores, kinds = raw[4:].max(0), raw[4:].argmax(0)
        chosen = np.flatnonzero(scores > 0.25)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        centers, sides = raw[:2, chosen].T, raw[2:4, chosen].T
        low, high = centers - sides / 2, centers + sides / 2
        kept = suppressed(low, high, kinds[chosen])[:50]
        corners = (np.concatenate([low, high], 1)[kept] - [left, above, left, above]) / scale
        boxes = np.clip(corners, 0, [*image.size, *image.size])
        labels = [self.labels[kind] for kind in kinds[chosen[kept]]]
        # The boxes are part of an answer, as they are of the other server's.
        return answered(labels, scores[chosen[kept]], boxes=boxes.tolist())


def suppressed(low: np.ndarray, high: np.ndarray, kinds: np.ndarray) -> list[int]:
    """The boxes to keep, of corners [n, 2], best first."""
    areas, left, kept = np.prod(high - low, 1), np.arange(len(low)), []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        shared = np.prod(np.clip(np.minimum(high[best], high[left]) - np.maximum(low[best], low[left]), 0, None), 1)
        same = (shared > 0.45 * (areas[best] + areas[left] - shared)) & (kinds[left] == kinds[best])
        left = left[~same]
    return kept


class Segmenter(Picture):
    """The class of each pixel of the picture."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        image = opened_picture(body)
        pixels = np.asarray(image.resize((512, 512), Image.Resampling.BILINEAR), np.float32) / 255
        [[logits]] = self.run((pixels - MEAN) / STD)
        rows, columns = weights(logits.shape[1], image.height), weights(logits.shape[2], image.width)
        return (rows @ logits @ columns.T).argmax(0).astype(np.uint8).tobytes()


def weights(inputs: int, outputs: int) -> np.ndarray:
    """The matrix [outputs, inputs] of a linear interpolation along one axis."""
    places = np.clip((np.arange(outputs) + 0.5) * inputs / outputs - 0.5, 0, inputs - 1)
    low = places.astype(int)
    part = (places - low).astype(np.float32)
    matrix = np.zeros((outputs, inputs), np.float32)
    matrix[np.arange(outputs), low] = 1 - part
    matrix[np.arange(outputs), np.minimum(low + 1, inputs - 1)] += part
    return matrix


class Tower(Picture):
    """The vector of a picture, of length 1."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        shorter = 40 if self.side == 32 else self.side
        pixels = middle(opened_picture(body), shorter, self.side, Image.Resampling.BICUBIC)
        [vectors, *_] = self.run((pixels - CLIP_MEAN) / CLIP_STD)
        return (vectors[0] / np.linalg.norm(vectors[0])).astype(np.float32).tobytes()
