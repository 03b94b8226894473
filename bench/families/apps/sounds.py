"""Models of sound: soundfile, ONNX Runtime and numpy; a file in."""

import io
import json
from pathlib import Path

import numpy as np
import soundfile
from texts import answered, opened


class Recognizer:
    """The text that is spoken: the best token of each frame."""

    def __init__(self, folder: str, network: str, threads: int) -> None:
        self.session = opened(network, threads)
        vocabulary = json.loads(Path(folder, "vocab.json").read_text())
        self.tokens = {number: token for token, number in vocabulary.items()}

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        samples, rate = soundfile.read(io.BytesIO(body), dtype="float32")
        assert rate == 16000  # noqa: S101
        samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        [entry, *more] = self.session.get_inputs()
        inputs = {entry.name: samples[None]} | {one.name: np.ones((1, len(samples)), np.int64) for one in more}
        [logits, *_] = self.session.run(None, inputs)
        best = logits[0].argmax(-1)
        kept = best[np.diff(best, prepend=-1) != 0]
        text = "".join(self.tokens[number] for number in kept.tolist() if number != 0)
        return answered([text.replace("|", " ").strip()], [])
