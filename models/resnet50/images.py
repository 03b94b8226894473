"""Pictures made by rule: ten textures in five pairs of colors, each picture different.

They replace photographs where only speed is measured, and the agreement of two forms of one network: smooth parts,
edges, fine texture and noise all occur.
"""

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Random = np.random.Generator

SIDE = 224  # pixels
COLORS = (  # two RGB colors each, 0..1
    ((0.85, 0.20, 0.15), (0.98, 0.90, 0.60)),
    ((0.10, 0.25, 0.70), (0.75, 0.90, 0.98)),
    ((0.05, 0.45, 0.15), (0.90, 0.85, 0.30)),
    ((0.08, 0.08, 0.10), (0.93, 0.93, 0.90)),
    ((0.45, 0.10, 0.50), (0.20, 0.80, 0.75)),
)


def picture(kind: int, random: Random, side: int = SIDE) -> Array:
    """A picture of one of the `KINDS`: uint8 [3, side, side], red first.

    kind: texture + 10 x pair of colors, 0..49. Position, size, angle, shades, light and noise are
    drawn from `random`.
    """
    texture, colors = TEXTURES[kind % len(TEXTURES)], COLORS[kind // len(TEXTURES)]
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32) / side  # [side, side] each, 0..1
    mix = np.clip(texture(rows, columns, random), 0, 1)  # 0: first color, 1: second
    first, second = (np.array(c) + random.normal(0, 0.04, 3) for c in colors)
    values = first[:, None, None] * (1 - mix) + second[:, None, None] * mix
    light = 1 + random.uniform(-0.3, 0.3) * (rows - 0.5) + random.uniform(-0.3, 0.3) * (columns - 0.5)
    noise = random.normal(0, random.uniform(0, 0.05), values.shape)
    return np.clip(255 * (values * light + noise), 0, 255).astype(np.uint8)


def pictures(count: int, seed: int) -> Array:
    """`count` pictures whose kinds take turns: uint8 [count, 3, 224, 224]."""
    random = np.random.default_rng(seed)
    return np.stack([picture(index % KINDS, random) for index in range(count)])


def group(kind: int) -> int:
    """The one of the `GROUPS` that a kind is in, by its colors and the fineness of its texture."""
    return kind // len(TEXTURES) * 3 + FINENESS[kind % len(TEXTURES)]


def stripes(rows: Array, columns: Array, random: Random) -> Array:
    """Parallel soft stripes, upright except for a few degrees."""
    return _wave(_along(rows, columns, random.uniform(-0.3, 0.3)), random.uniform(13, 18), random)


def checks(rows: Array, columns: Array, random: Random) -> Array:
    """A chessboard."""
    size = random.uniform(3, 5)
    shift = random.uniform(0, 1, 2)
    return (np.floor(rows * size + shift[0]) + np.floor(columns * size + shift[1])) % 2


def rings(rows: Array, columns: Array, random: Random) -> Array:
    """Rings around a point near the middle."""
    row, column = random.uniform(0.3, 0.7, 2)
    return _wave(np.hypot(rows - row, columns - column), random.uniform(13, 18), random)


def discs(rows: Array, columns: Array, random: Random) -> Array:
    """Discs that overlap, each of one shade."""
    mix = np.zeros_like(rows)
    for row, column in random.uniform(0, 1, (14, 2)):
        inside = np.hypot(rows - row, columns - column) < random.uniform(0.05, 0.16)
        mix[inside] = random.uniform(0.4, 1)
    return mix


def boxes(rows: Array, columns: Array, random: Random) -> Array:
    """Upright boxes that overlap, each of one shade."""
    mix = np.zeros_like(rows)
    for row, column in random.uniform(0, 1, (12, 2)):
        high, wide = random.uniform(0.05, 0.2, 2)
        mix[(abs(rows - row) < high) & (abs(columns - column) < wide)] = random.uniform(0.3, 1)
    return mix


def clouds(rows: Array, columns: Array, random: Random) -> Array:
    """Smooth noise of several sizes."""
    return 0.5 + sum(
        0.35 / octave * _smooth(random.normal(size=(4 * octave, 4 * octave)), rows, columns) for octave in (1, 2, 4)
    )


def grain(rows: Array, columns: Array, random: Random) -> Array:
    """Small squares of random shade."""
    size = int(random.integers(64, 75))
    shades = random.uniform(0, 1, (size + 1, size + 1))
    return shades[(rows * size).astype(int), (columns * size).astype(int)]


def ramp(rows: Array, columns: Array, random: Random) -> Array:
    """One gradient across the picture."""
    along = _along(rows, columns, random.uniform(0, 2 * np.pi))
    return (along - along.min()) / np.ptp(along)


def cells(rows: Array, columns: Array, random: Random) -> Array:
    """Cells around random points, darker towards their edges."""
    points = random.uniform(0, 1, (40, 2))
    distance = np.min([np.hypot(rows - r, columns - c) for r, c in points], axis=0)
    return distance / distance.max()


def ripples(rows: Array, columns: Array, random: Random) -> Array:
    """Stripes that bend, crossed by others."""
    bend = random.uniform(0.05, 0.12) * np.sin(2 * np.pi * random.uniform(2, 4) * rows)
    first = _wave(columns + bend, random.uniform(13, 18), random)
    return first * (0.6 + 0.4 * _wave(rows, random.uniform(3, 6), random))


TEXTURES: tuple[Callable[[Array, Array, Random], Array], ...] = (
    stripes,
    checks,
    rings,
    discs,
    boxes,
    clouds,
    grain,
    ramp,
    cells,
    ripples,
)
FINENESS = (1, 0, 1, 0, 0, 0, 2, 0, 0, 1)  # 0 large parts, 1 waves, 2 grain
KINDS = len(TEXTURES) * len(COLORS)
GROUPS = 3 * len(COLORS)


def _along(rows: Array, columns: Array, angle: float) -> Array:
    """Distance along a direction, in radians from the columns' own."""
    return rows * np.sin(angle) + columns * np.cos(angle)


def _wave(distance: Array, periods: float, random: Random) -> Array:
    """0..1, `periods` times per unit of distance."""
    return 0.5 + 0.5 * np.sin(2 * np.pi * (distance * periods + random.uniform()))


def _smooth(grid: Array, rows: Array, columns: Array) -> Array:
    """A coarse [n, n] grid, bilinearly between its points."""
    places = rows[:, 0] * (len(grid) - 1)
    low = places.astype(int)
    part = places - low
    weights = np.zeros((len(places), len(grid)))  # [side, n], two entries per row
    weights[np.arange(len(places)), low] = 1 - part
    weights[np.arange(len(places)), low + 1] += part
    return weights @ grid @ weights.T
