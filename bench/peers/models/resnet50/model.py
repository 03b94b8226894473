"""JPEGs in, the five best labels out, in batches: JSON {"label": [...], "score": [...]}."""

import io
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image


class Model:
    """Decoding, network and top 5."""

    def __init__(self, folder: str, threads: int) -> None:
        self.labels = Path(folder, "labels.txt").read_text().splitlines()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])

    def __call__(self, bodies: list[bytes]) -> list[bytes]:
        """One answer for each body."""
        pixels = np.stack([self.decoded(body) for body in bodies])
        [logits] = self.session.run(None, {"pixels": pixels})
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = powers / powers.sum(axis=1, keepdims=True)
        return [self.best(row) for row in scores]

    def decoded(self, body: bytes) -> np.ndarray:
        """The middle of the picture whose shorter side is 256: uint8 [3, 224, 224]."""
        image = Image.open(io.BytesIO(body)).convert("RGB")
        scaled = [int(256 * side / min(image.size)) for side in image.size]
        corner = [round((side - 224) / 2) for side in scaled]
        ratio = [side / new for side, new in zip(image.size, scaled, strict=True)]
        box = [(at + n) * r for n in (0, 224) for at, r in zip(corner, ratio, strict=True)]
        image = image.resize((224, 224), Image.Resampling.BILINEAR, box=tuple(box))
        return np.asarray(image).transpose(2, 0, 1)

    def best(self, scores: np.ndarray) -> bytes:
        """Five labels with their probabilities."""
        order = np.argsort(-scores)[:5]
        answer = {"label": [self.labels[i] for i in order], "score": scores[order].tolist()}
        return json.dumps(answer).encode()
