"""Fifty sentences of many kinds and 200 of Python's own documentation, on which the network is checked."""

from functools import cache
from itertools import groupby, islice

import numpy as np
from package import package_folder
from texts import choose

Array = np.ndarray
Batch = dict[str, Array]

WINDOW = 256  # tokens, as sentence_bert_config.json says
BUCKETS = (16, 32, 64, 128, WINDOW)  # tokens, as model.yaml pads them
BATCH = 32
PROSE = 200  # sentences of documentation that are held out
CALIBRATION = 200  # other sentences, from which the ranges of INT8 are found
FILLED = {16: 16, 32: 16, 64: 8, 128: 4, WINDOW: 2}  # bucket -> number of texts of that many tokens

SENTENCES = [
    "",
    "Yes",
    "?",
    "The cat sat on the mat.",
    "A cat was sitting on a mat.",
    "Interest rates were raised by a quarter of a percentage point.",
    "The central bank made borrowing more expensive.",
    "He scored twice in the second half.",
    "The recipe needs two eggs, a cup of flour and a pinch of salt.",
    "Preheat the oven to 180 °C and bake for 40 minutes.",
    "How do I reset my password?",
    "I forgot my login details.",
    "My parcel has not arrived yet.",
    "Where is my order #12345?",
    "Photosynthesis turns light into chemical energy.",
    "Plants make sugar from sunlight.",
    "def add(a, b): return a + b",
    "SELECT name FROM users WHERE id = 7;",
    "https://example.com/path?query=value&other=1",
    "name@example.com wrote at 10:42",
    "E = mc²",
    "3.14159265358979",
    "100 km/h ≈ 62 mph",
    "😀😃😄 great news 🎉",
    "👩‍👩‍👧‍👦 family trip 🇫🇷",
    "I ❤️ this so much!!!",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "שלום עולם, מה שלומך היום?",
    "این یک جمله فارسی است.",
    "The word שלום means peace and السلام does too.",
    "今天天气很好，我们去公园散步吧。",
    "東京は日本の首都です。",
    "서울은 대한민국의 수도입니다.",
    "Привет, как дела?",
    "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.",
    "Où est la bibliothèque ?",
    "El niño comió una manzana.",
    "Straße, Übermut und Ärger",
    "naïve café façade résumé",
    "नमस्ते दुनिया",
    "UPPER CASE SHOUTING SENTENCE",
    "mixed    white\tspace\n\nand line breaks",
    "a" * 120,
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "repeat " * 30,
    "one two three four five six seven eight nine ten " * 6,
    "Sentence number one. Sentence number two. Sentence number three. " * 12,
    "The quick brown fox jumps over the lazy dog. " * 20,
    "word " * 600,
    "An inference server joins requests that arrive together into one batch, because a matrix "
    "product over many rows costs little more than one over a single row. " * 20,
]


def sentences() -> list[str]:
    """The fifty sentences."""
    return list(SENTENCES)


def token_batches() -> list[Batch]:
    """The 250 held-out texts as tokens: see `_batches`."""
    return _batches(SENTENCES + choose(0, PROSE))


def calibration_batches() -> list[Batch]:
    """Other documentation, cut to fill each bucket, and four sentences with padding.

    The hidden states of padding say nothing about a form of the network, and would hide those of real tokens. But
    ranges must be found with some of the mask's large numbers too.
    """
    texts = choose(PROSE, PROSE + CALIBRATION)
    tokens = iter([token for ids in _encode(texts) for token in ids[1:-1]])
    [[start, end]] = _encode([""])
    filled = [
        _padded([[start, *islice(tokens, size - 2), end] for _ in range(count)], size) for size, count in FILLED.items()
    ]
    return [*filled, *_batches(texts[:4])]


def cosine(outputs: list[Batch], reference: list[Batch]) -> Array:
    """Cosine of each text's embedding to the reference's: float32 [texts].

    It compares the embeddings that the pipeline gives: hidden states of padding are never served, and two forms of one
    network need not agree on them.
    """
    return (_embeddings(outputs) * _embeddings(reference)).sum(axis=1)


def spearman(outputs: list[Batch], reference: list[Batch]) -> float:
    """Rank correlation of the similarities of all pairs of texts: whether a search gives the same results."""
    ranks, reference_ranks = (_pair_ranks(_embeddings(batches)) for batches in (outputs, reference))
    return float(np.corrcoef(ranks, reference_ranks)[0, 1])


def _batches(texts: list[str]) -> list[Batch]:
    """Texts of one bucket together, shortest first: int64 [batch up to 32, bucket] each."""
    batches = []
    for bucket, group in groupby(sorted(_encode(texts), key=len), key=_bucket):
        group_texts = list(group)
        batches += [_padded(group_texts[i : i + BATCH], bucket) for i in range(0, len(group_texts), BATCH)]
    return batches


def _encode(texts: list[str]) -> list[list[int]]:
    """Tokens from [CLS] to [SEP], at most 256 of them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(package_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(WINDOW)
    tokenizer.no_padding()
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def _bucket(row: list[int]) -> int:
    return next(size for size in BUCKETS if size >= len(row))


def _padded(rows: list[list[int]], length: int) -> Batch:
    """BERT's padding is token 0."""
    ids = np.array([row + [0] * (length - len(row)) for row in rows], dtype=np.int64)
    mask = np.array([[i < len(row) for i in range(length)] for row in rows], dtype=np.int64)
    return {"input_ids": ids, "attention_mask": mask}


def _embeddings(outputs: list[Batch]) -> Array:
    """Hidden states of the first batches of `token_batches` -> [texts, 384], of length 1."""
    hidden = [batch["last_hidden_state"] for batch in outputs]
    # There are fewer batches, and fewer items in the last, if quality.max_samples cuts them.
    return np.concatenate([_pool(h, m[: len(h)]) for h, m in zip(hidden, _masks(), strict=False)])


@cache
def _masks() -> list[Array]:
    return [batch["attention_mask"] for batch in token_batches()]


def _pool(hidden: Array, mask: Array) -> Array:
    """Mean over the real tokens, of length 1: [batch, length, 384], [batch, length] -> [batch, 384]."""
    weights = mask[..., None].astype(np.float32)
    mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def _pair_ranks(embeddings: Array) -> Array:
    """Rank of each pair's cosine among all pairs, equal ones sharing their mean: [pairs]."""
    cosines = (embeddings @ embeddings.T)[np.triu_indices(len(embeddings), k=1)]
    _, place, counts = np.unique(cosines, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
