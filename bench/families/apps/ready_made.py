"""A TorchScript file, and a library that compares texts; JSON in."""

import json
import sys

from texts import answered


class Script:
    """A network of PyTorch on a row of numbers."""

    def __init__(self, folder: str, _network: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.network = torch.jit.load(f"{folder}/scores.pt").eval()

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        with self.torch.inference_mode():
            [row] = self.network(self.torch.tensor([json.loads(body)["x"]])).numpy()
        return answered([], row)


class Pairs:
    """Likeness of two names, by the version of the library that the served model has."""

    def __init__(self, folder: str, _network: str, _threads: int) -> None:
        sys.path.insert(0, f"{folder}/site-packages")
        from rapidfuzz import fuzz

        self.compare = fuzz.WRatio

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        return answered([], [self.compare(*json.loads(body)["pair"])])
