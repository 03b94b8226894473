"""Texts as steps get them: bytes that are to be UTF-8, and the places of tokens in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def decode_texts(items: Iterable[bytes], max_bytes: int = 1 << 31) -> list[str]:
    """The items as text.

    Raises:
        ValueError: an item is longer than `max_bytes`, or not UTF-8; says which and at which byte.
    """
    texts = []
    for index, data in enumerate(items):
        if len(data) > max_bytes:
            raise ValueError(
                f"item {index}: the text has {len(data)} bytes; at most {max_bytes} are taken (parameter max_bytes)"
            )
        try:
            texts.append(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"item {index}: not valid UTF-8 at byte {error.start} ({error.reason})") from None
    return texts


def read_texts(step: Any, request: Any, name: str, max_bytes: int = 1 << 31) -> list[str]:
    """The texts [batch, 1] of an input; raises ValueError that names input and item."""
    try:
        return decode_texts(step.read(request, name)[:, 0], max_bytes)
    except ValueError as error:
        raise ValueError(f"input '{name}', {error}") from error


def check_places(places: Mapping[str, np.ndarray], tokens: tuple[int, ...], texts: list[str], number: int) -> None:
    """Refuse places of tokens that are not those of `texts`.

    Args:
        places: offsets [batch, tokens, 2], sequence_ids and word_ids [batch, tokens].
        tokens: the shape [batch, tokens] of the network's outputs.
        texts: the text of each item.
        number: the text's number in `sequence_ids`.

    Raises:
        ValueError: shapes that differ, or characters outside of a text; names input and item.
    """
    for name, array in places.items():
        expected = (*tokens, 2) if name == "offsets" else tokens
        if array.shape != expected:
            raise ValueError(
                f"input '{name}': found shape {list(array.shape)}, wanted {list(expected)}, as the network's tokens"
            )
    if len(texts) != tokens[0]:
        raise ValueError(f"found {len(texts)} texts, wanted {tokens[0]}, as many as the network's items")
    for item, (text, offsets, ids) in enumerate(zip(texts, places["offsets"], places["sequence_ids"], strict=True)):
        own = offsets[ids == number]
        if own.size and (own.min() < 0 or own.max() > len(text) or (own[:, 0] > own[:, 1]).any()):
            raise ValueError(
                f"input 'offsets', item {item}: found characters {own.min()} to {own.max()}, wanted those of its text"
                f" of {len(text)} characters"
            )
