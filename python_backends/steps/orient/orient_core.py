"""Turn lines of text that stand upside down, and fill them up to the width that their recognizer gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from decode_image_core import PixelSettings, pixels_of


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    height: int = 48
    max_width: int = 4096
    threshold: float = 0.9
    scores: bool = True
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"parameter threshold: found {self.threshold}, wanted 0 to 1")
        if self.max_width < 1:
            raise ValueError(f"parameter max_width: found {self.max_width}, wanted at least 1")
        self.pixels  # noqa: B018  raises ValueError

    @cached_property
    def pixels(self) -> PixelSettings:
        """The parameters that decode_image has too."""
        return PixelSettings(height=self.height, mean=self.mean, std=self.std)


def orient(lines: np.ndarray, widths: np.ndarray, scores: np.ndarray | None, settings: Settings) -> np.ndarray:
    """The pixels of each line as its recognizer takes them: float32 [batch, 3, height, width].

    Args:
        lines: uint8 [batch, height, width, 3].
        widths: int32 [batch, 2]: how many pixels of each are the text, and the width that the recognizer gets.
        scores: float32 [batch, 2]: whether a line is upright, and whether it stands upside down; None turns none.
        settings: the step's.

    Raises:
        ValueError: widths that are no line's, several widths in a request, or a score that is not finite.
    """
    check_widths(lines, widths, settings)
    if scores is not None and not np.isfinite(scores).all():
        raise ValueError(f"input 'scores', item {int(np.argmin(np.isfinite(scores).all(axis=1)))}: one is not finite")
    turned = np.zeros(len(lines), bool) if scores is None else scores[:, 1] > settings.threshold
    # What is filled up has the value 0 after scaling, which is gray to the network.
    pixels = np.zeros((len(lines), 3, settings.height, widths[0, 1] if len(lines) else 1), np.float32)
    for item, (line, (width, _)) in enumerate(zip(lines, widths, strict=True)):
        text = line[:, :width]
        pixels[item, :, :, :width] = pixels_of(text[::-1, ::-1] if turned[item] else text, settings.pixels)
    return pixels


def check_widths(lines: np.ndarray, widths: np.ndarray, settings: Settings) -> None:
    """Refuse widths that do not fit their lines, or are too large."""
    for item, (width, full) in enumerate(widths.tolist()):
        if not 1 <= width <= min(full, lines.shape[2]):
            raise ValueError(
                f"input 'widths', item {item}: found {width} of {full}, wanted 1 to the {lines.shape[2]} pixels of the"
                " line, and at most the second"
            )
        if full > settings.max_width:
            raise ValueError(
                f"input 'widths', item {item}: found {full}; at most {settings.max_width} are taken"
                " (parameter max_width)"
            )
        if full != widths[0, 1]:
            raise ValueError(
                f"input 'widths', item {item}: found {full}, and {widths[0, 1]} before; lines of several widths are no"
                " batch: send each in a request of its own"
            )
