"""The text of a page from its lines: empty and unsure ones are left out, the others are joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SEPARATORS = {"newline": b"\n", "space": b" "}


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    min_score: float = 0.5
    separator: str = "newline"

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if not 0 <= self.min_score <= 1:
            raise ValueError(f"parameter min_score: found {self.min_score}, wanted 0 to 1")
        if self.separator not in SEPARATORS:
            raise ValueError(f"parameter separator: found '{self.separator}', wanted one of {', '.join(SEPARATORS)}")


def text_lines(
    quads: np.ndarray, texts: np.ndarray, scores: np.ndarray, counts: np.ndarray, settings: Settings
) -> dict[str, np.ndarray]:
    """The lines of each page that stay, in their order, and all of them as one text.

    Args:
        quads: float32 [batch, n, 4, 2].
        texts: object [batch, n] of bytes.
        scores: float32 [batch, n].
        counts: int32 [batch, 1], how many lines count.

    Returns:
        page: object [batch, 1]; text: object [batch, m]; score: float32 [batch, m]; quad: float32 [batch, m, 4, 2];
        count: int32 [batch, 1]. m is the largest count, and at least 1; empty texts and zeros follow the last line.

    Raises:
        ValueError: inputs with different numbers of lines, or a score that is not a number.
    """
    numbers = {"quad": quads.shape[1], "text": texts.shape[1], "score": scores.shape[1]}
    if len(set(numbers.values())) > 1:
        found = ", ".join(f"{number} of {name}" for name, number in numbers.items())
        raise ValueError(f"found {found}, wanted as many of each")
    counted = np.arange(texts.shape[1]) < counts
    if np.isnan(scores[counted]).any():
        raise ValueError("input 'score': a score is not a number")
    filled = np.array([bool(text.strip()) for text in texts.ravel()], dtype=bool).reshape(texts.shape)
    stay = [np.flatnonzero(row) for row in counted & filled & (scores >= np.float32(settings.min_score))]
    batch, most = len(texts), max([1, *map(len, stay)])
    outputs = {
        "page": np.full((batch, 1), b"", dtype=object),
        "text": np.full((batch, most), b"", dtype=object),
        "score": np.zeros((batch, most), np.float32),
        "quad": np.zeros((batch, most, 4, 2), np.float32),
        "count": np.array([[len(rows)] for rows in stay], dtype=np.int32).reshape(-1, 1),
    }
    for item, rows in enumerate(stay):
        outputs["page"][item, 0] = SEPARATORS[settings.separator].join(texts[item, rows])
        for name, array in (("text", texts), ("score", scores), ("quad", quads)):
            outputs[name][item, : len(rows)] = array[item, rows]
    return outputs
