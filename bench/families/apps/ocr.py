"""Texts in pictures: RapidOCR as its documentation calls it; an encoded picture in."""

from rapidocr_onnxruntime import RapidOCR
from texts import answered


class Reader:
    """The package's engine, with its own networks."""

    def __init__(self, folder: str, network: str, threads: int) -> None:
        self.engine = RapidOCR(intra_op_num_threads=threads, inter_op_num_threads=1)

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        lines, _ = self.engine(body)
        quads = [quad for quad, _, _ in lines or ()]
        texts = [text.strip() for _, text, _ in lines or ()]
        return answered(texts, [float(score) for *_, score in lines or ()], quads=quads)
