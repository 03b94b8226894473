"""Lengths of prompts and answers in tokens: distributions as options write them, drawn by a seed, and recorded
traces."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tritonkit.errors import UsageError
from tritonkit.text import is_number

__all__ = ["SHAREGPT", "Counts", "Lengths", "Trace", "parse_lengths", "read_token_trace"]

Counts: TypeAlias = NDArray[np.int64]
"""Tokens of each request, 1 or more."""

SHAREGPT = {"prompt": (161.31, 1.0), "output": (337.99, 1.0)}
"""Mean and sigma of `sharegpt`. The means are those that the vLLM paper gives for ShareGPT (Kwon et al. 2023, figure
11). It gives no deviation: sigma 1 is our own choice, so that the median is 0.61 of the mean and one request in a
hundred has 6.2 times the mean, a long tail as its figure shows."""
_WANTED = "N, A-B, lognormal:MEAN,SIGMA or sharegpt, in tokens"
_MOST = 1 << 20
_COLUMNS = ("prompt_tokens", "output_tokens")
_SECONDS = "seconds"


@dataclass(frozen=True)
class Lengths:
    """A distribution of numbers of tokens.

    Args:
        text: the distribution as it was written.
        low, high: bounds of a uniform distribution, both included; equal for a fixed number.
        mean, sigma: a lognormal distribution's mean in tokens, and the standard deviation of the logarithm.
    """

    text: str
    low: int = 0
    high: int = 0
    mean: float = 0.0
    sigma: float = 0.0

    def __str__(self) -> str:
        return self.text

    def draw(self, count: int, seed: int) -> Counts:
        """Draw numbers, all at least 1; the same seed gives the same ones."""
        rng = np.random.default_rng(seed)
        if not self.mean:
            return rng.integers(self.low, self.high + 1, count)
        middle = math.log(self.mean) - self.sigma**2 / 2
        drawn = np.rint(rng.lognormal(middle, self.sigma, count))
        return np.clip(drawn, 1, _MOST).astype(np.int64)


def parse_lengths(option: str, text: str) -> Lengths:
    """Read a distribution as it is written after an option, `--prompt-tokens` or `--output-tokens`.

    Raises:
        UsageError: it is not a distribution, or has impossible numbers.
    """
    spec = text.strip()
    if spec == "sharegpt":
        mean, sigma = SHAREGPT["prompt" if "prompt" in option else "output"]
        return Lengths(spec, mean=mean, sigma=sigma)
    kind, colon, rest = spec.partition(":")
    if colon and kind == "lognormal":
        values = [float(part) if is_number(part) else math.nan for part in rest.split(",")]
        if len(values) == 2 and 1 <= values[0] <= _MOST and 0 < values[1] <= 4:
            return Lengths(spec, mean=values[0], sigma=values[1])
        raise UsageError(option, found=repr(text), wanted=f"lognormal:MEAN,SIGMA, 1 to {_MOST} tokens, above 0 to 4")
    ends = [part.strip() for part in spec.split("-")]
    if len(ends) <= 2 and all(part.isascii() and part.isdecimal() for part in ends):
        low, high = int(ends[0]), int(ends[-1])
        if 1 <= low <= high <= _MOST:
            return Lengths(spec, low, high)
        raise UsageError(option, found=repr(text), wanted=f"1 to {_MOST} tokens, the lower first")
    raise UsageError(option, found=repr(text), wanted=_WANTED)


@dataclass(frozen=True)
class Trace:
    """Recorded requests.

    Args:
        file: the path of the file.
        prompt, output: int64 [n], tokens of prompts and answers.
        seconds: float64 [n], moments of requests since the start of the run, ascending; None if the file has none.
    """

    file: Path
    prompt: Counts
    output: Counts
    seconds: NDArray[np.float64] | None = None


def read_token_trace(file: Path) -> Trace:
    """Read a CSV file whose first line names its columns: `prompt_tokens`, `output_tokens` and, if the times of
    requests are known, `seconds`; others are ignored.

    Raises:
        UsageError: it cannot be read, lacks a column, or a line has no such number.
    """
    where = f"--trace {file}"
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines, skipinitialspace=True)
            names = reader.fieldnames or []
            if missing := [name for name in _COLUMNS if name not in names]:
                raise UsageError(
                    f"{file}:1",
                    found=f"no column {missing[0]!r}",
                    wanted="a first line with prompt_tokens,output_tokens and, if known, seconds",
                )
            rows = list(_rows(file, reader, _SECONDS in names))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(where, found=f"it cannot be read: {reason}") from None
    if not rows:
        raise UsageError(where, found="no line after the first", wanted="one a request")
    prompt, output, seconds = (np.array(column) for column in zip(*rows, strict=True))
    return Trace(file, prompt, output, seconds if _SECONDS in names else None)


def _rows(file: Path, reader: csv.DictReader[str], has_seconds: bool) -> Iterator[tuple[int, int, float]]:
    last = 0.0
    for row in reader:
        where = f"{file}:{reader.line_num}"
        counts = [(row[name] or "").strip() for name in _COLUMNS]
        for text in counts:
            if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST):
                raise UsageError(where, found=repr(text), wanted=f"1 to {_MOST} tokens")
        if has_seconds:
            text = (row[_SECONDS] or "").strip()
            at = float(text) if is_number(text) else math.nan
            if not last <= at < math.inf:
                raise UsageError(
                    where, found=repr(text), wanted="seconds since the start, 0 or more, none before the line above"
                )
            last = at
        yield int(counts[0]), int(counts[1]), last
