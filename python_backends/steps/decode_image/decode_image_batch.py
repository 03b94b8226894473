"""A request's images as the adapters of decode_image and crop take them: within a limit, one after the other."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from decode_image_core import decoded_bytes
from step_support import Arrays, Busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from decode_image_core import PixelSettings


class Batch(NamedTuple):
    """A request's encoded images [batch] and other inputs, and the bytes of the images decoded."""

    images: np.ndarray
    others: tuple[np.ndarray, ...]
    decoded: int


@contextmanager
def naming(item: int) -> Iterator[None]:
    """Put the number of the image before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"input 'image', item {item}: {error}") from error


def batch_of(
    images: np.ndarray, settings: PixelSettings, items: Iterable[int] | None = None, *others: np.ndarray
) -> Batch:
    """The batch of a request.

    Args:
        images: object [batch] of bytes.
        settings: the step's.
        items: the images that will be decoded; None for all.
        others: the step's other inputs.

    Raises:
        ValueError: an image that decode_image refuses by its header, or too many decoded bytes together.
    """
    decoded = 0
    for item in range(len(images)) if items is None else items:
        with naming(item):
            decoded += decoded_bytes(images[item], settings)
    limit = settings.max_batch_decoded_bytes
    if decoded > limit:
        raise ValueError(
            f"input 'image': {len(images)} images of {decoded} bytes decoded; at most {limit}"
            " are taken together (parameter max_batch_decoded_bytes)"
        )
    return Batch(images, others, decoded)


def answers(batches: list[Batch], limit: int, answer: Callable[..., Arrays]) -> list[Arrays | Exception]:
    """The outputs of `answer(images, *others)` for each batch that fits next to the others, or its exception.

    An exception is not raised, because the step would then decode the other batches a second time.
    """
    results: list[Arrays | Exception] = []
    for batch, fits in zip(batches, fitting([batch.decoded for batch in batches], limit), strict=True):
        if not fits:
            results.append(Busy(f"no room for {batch.decoded} bytes of images next to the others"))
            continue
        try:
            results.append(answer(batch.images, *batch.others))
        except Exception as error:
            results.append(error)
    return results


def fitting(counts: Sequence[int], limit: int) -> list[bool]:
    """The requests of these `decoded_bytes` that are decoded together. Smaller ones come first, so that none is refused
    because of another request's data."""
    order = sorted(range(len(counts)), key=counts.__getitem__)
    totals = accumulate(counts[index] for index in order)
    fits = {index: total <= limit for index, total in zip(order, totals, strict=True)}
    return [fits[index] for index in range(len(counts))]
