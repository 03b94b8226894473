"""scikit-learn's digits: 1,797 real 8 x 8 images, of which a fixed fifth is held out."""

from functools import cache

import numpy as np

Array = np.ndarray
Batch = dict[str, Array]

BATCH = 64
CALIBRATION = 256  # training images from which the ranges of INT8 are found


@cache
def split() -> tuple[Array, Array, Array, Array]:
    """Training pixels and labels, held-out pixels and labels.

    pixels: float32 [count, 1, 8, 8], 0..1, exactly what decoding the PNG of an image gives.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels = to_bytes(digits.images)[:, None].astype(np.float32) / 255
    labels = digits.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(pixels, labels, test_size=0.2, random_state=0, stratify=labels)
    return train_x, train_y, test_x, test_y


def to_bytes(images: Array) -> Array:
    """scikit-learn's gray levels 0..16 as bytes 0..255."""
    return np.round(images * (255 / 16)).astype(np.uint8)


def held_out_batches() -> list[Batch]:
    """The held-out fifth in batches of 64."""
    return [{"pixels": pixels} for pixels in _parts(split()[2])]


def calibration_batches() -> list[Batch]:
    """256 images of the training set in batches of 64."""
    return [{"pixels": pixels} for pixels in _parts(split()[0][:CALIBRATION])]


def training_batches() -> list[tuple[Batch, Array]]:
    """The training set in batches of 64, each with its labels, int64 [batch]."""
    pixels, labels = map(_parts, split()[:2])
    return [({"pixels": x}, y) for x, y in zip(pixels, labels, strict=True)]


def accuracy(outputs: list[Batch], _reference: list[Batch]) -> Array:
    """1.0 for each held-out image whose best class is its label, else 0.0: float64 [images]."""
    best = np.concatenate([batch["logits"].argmax(axis=1) for batch in outputs])
    return (best == split()[3][: len(best)]).astype(float)


def _parts(array: Array) -> list[Array]:
    return [array[start : start + BATCH] for start in range(0, len(array), BATCH)]


def held_out_images(count: int) -> list[tuple[bytes, str]]:
    """The first `count` held-out images as PNG files, each with its label."""
    import io

    from PIL import Image

    _, _, pixels, labels = split()
    images = []
    for image, label in zip(pixels[:count, 0], labels, strict=False):
        file = io.BytesIO()
        Image.fromarray(np.round(image * 255).astype(np.uint8)).save(file, "PNG")
        images.append((file.getvalue(), str(label)))
    return images
