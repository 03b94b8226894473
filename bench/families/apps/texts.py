"""Models of texts: tokenizers, ONNX Runtime and numpy; JSON in."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Encoding, Tokenizer


def opened(network: str, threads: int) -> onnxruntime.InferenceSession:
    """The network, with this number of threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def answered(names: list, numbers: np.ndarray, **more: list) -> bytes:
    """Names and numbers as JSON, and further members."""
    return json.dumps({"names": names, "numbers": np.asarray(numbers, float).tolist(), **more}).encode()


class Text:
    """A tokenizer and a network."""

    longest = 64

    def __init__(self, folder: str, network: str, threads: int) -> None:
        self.tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.longest)
        self.session = opened(network, threads)
        self.names = {entry.name for entry in self.session.get_inputs()}
        self.config = json.loads(Path(folder, "config.json").read_text())

    def run(self, body: bytes) -> tuple[dict[str, str], Encoding, list[np.ndarray]]:
        """The request, its tokens, and the network's outputs."""
        item = json.loads(body)
        encoded = self.tokenizer.encode(item["text"], item.get("text_pair"))
        values = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        inputs = {name: np.array([value], np.int64) for name, value in values.items() if name in self.names}
        return item, encoded, self.session.run(None, inputs)


class Classifier(Text):
    """Labels with their probabilities, best first."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        _, _, [logits] = self.run(body)
        scores = softmax(logits[0])
        order = np.argsort(-scores)
        return answered([self.config["id2label"][str(number)] for number in order], scores[order])


class Reranker(Text):
    """The score of a pair."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        _, _, [scores] = self.run(body)  # the sigmoid is in the network
        return answered([], scores[0])


class Embedder(Text):
    """The first token's vector, of length 1."""

    longest = 48

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        _, _, [hidden, *_] = self.run(body)
        vector = hidden[0] if hidden.ndim == 2 else hidden[0, 0]
        return (vector / np.linalg.norm(vector)).astype(np.float32).tobytes()


class Matcher(Embedder):
    """The product of a query's and a candidate's vectors."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        item = json.loads(body)
        texts = [json.dumps({"text": item[name]}).encode() for name in ("query", "candidate")]
        query, candidate = (np.frombuffer(super(Matcher, self).__call__(text), np.float32) for text in texts)
        return answered([], np.array([query @ candidate]))


class Tagger(Text):
    """Entities: tokens of the same label, joined."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        _, encoded, [logits] = self.run(body)
        scores = softmax(logits[0])
        best, groups = scores.argmax(-1), []
        for place, number in enumerate(best.tolist()):
            if encoded.special_tokens_mask[place]:
                continue
            begin, _, kind = self.config["id2label"][str(number)].rpartition("-")
            start, end = encoded.offsets[place]
            score = scores[place, number]
            if groups and groups[-1][0] == kind and begin != "B":
                groups[-1][2] = end
                groups[-1][3].append(score)
            else:
                groups.append([kind, start, end, [score]])
        kept = [group for group in groups if group[0] != "O"]
        return answered([group[:3] for group in kept], [np.mean(group[3]) for group in kept])


class Reader(Text):
    """The likeliest span of whole words."""

    def __call__(self, body: bytes) -> bytes:
        """The answer."""
        item, encoded, [starts, ends] = self.run(body)
        words = encoded.word_ids
        inside = np.array([number == 1 for number in encoded.sequence_ids])
        readable = inside.copy()
        readable[0] = True
        starts, ends = (softmax(np.where(readable, logits[0], -np.inf)) for logits in (starts, ends))
        scores = np.triu(np.outer(starts * inside, ends * inside)) - np.triu(np.outer(starts, ends), 15)
        best = np.argsort(-scores, axis=None)[:12]
        answers: dict[str, float] = {}
        for first, last in zip(*np.unravel_index(best, scores.shape), strict=True):
            if scores[first, last] <= 0:
                continue
            start = min(encoded.offsets[n][0] for n in np.flatnonzero(inside) if words[n] == words[first])
            end = max(encoded.offsets[n][1] for n in np.flatnonzero(inside) if words[n] == words[last])
            text = item["text_pair"][start:end]
            answers[text] = answers.get(text, 0.0) + float(scores[first, last])
        text = max(answers, key=answers.__getitem__)
        return answered([text], [answers[text]])
