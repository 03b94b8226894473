"""Texts in, embeddings out, in batches: UTF-8 to float32 [384] as bytes."""

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Model:
    """Tokenizer, network and the mean over the tokens, of length 1."""

    def __init__(self, folder: str, threads: int) -> None:
        self.tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])

    def __call__(self, bodies: list[bytes]) -> list[bytes]:
        """One answer for each body."""
        encoded = self.tokenizer.encode_batch([body.decode() for body in bodies])
        ids = np.array([encoding.ids for encoding in encoded], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encoded], np.int64)
        [hidden] = self.session.run(None, {"input_ids": ids, "attention_mask": mask})
        weights = mask[..., None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        return [row.tobytes() for row in mean]
