"""scikit-learn's digits: 1,797 real 8 x 8 images, of which a fixed fifth is held out."""

from functools import cache

import numpy as np

Array = np.ndarray


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
    train_x, test_x, train_y, test_y = train_test_split(
        pixels, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return train_x, train_y, test_x, test_y


def to_bytes(images: Array) -> Array:
    """scikit-learn's grey levels 0..16 as bytes 0..255."""
    return np.round(images * (255 / 16)).astype(np.uint8)


def held_out_batches() -> list[dict[str, Array]]:
    """The held-out fifth in batches of 64."""
    pixels = split()[2]
    return [{"pixels": pixels[start : start + 64]} for start in range(0, len(pixels), 64)]


def accuracy(outputs: list[dict[str, Array]], _reference: list[dict[str, Array]]) -> float:
    """Share of held-out images whose best class is their label."""
    labels = split()[3]
    best = np.concatenate([batch["logits"].argmax(axis=1) for batch in outputs])
    return float((best == labels).mean())


def held_out_images(count: int) -> list[tuple[bytes, str]]:
    """The first `count` held-out images as PNG files, each with its label."""
    import io

    from PIL import Image

    _, _, pixels, labels = split()
    found = []
    for image, label in zip(pixels[:count, 0], labels, strict=False):
        file = io.BytesIO()
        Image.fromarray(np.round(image * 255).astype(np.uint8)).save(file, "PNG")
        found.append((file.getvalue(), str(label)))
    return found
