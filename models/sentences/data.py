"""Fifty sentences of many kinds, and the tokens on which the network is checked."""

import numpy as np
from network import package_folder

Array = np.ndarray

WINDOW = 256  # tokens, as sentence_bert_config.json says

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


def tokenizer():
    """The model's own tokenizer, cutting at the window as the reference does."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(package_folder() / "tokenizer.json"))
    found.enable_truncation(WINDOW)
    found.enable_padding()
    return found


def token_batches() -> list[dict[str, Array]]:
    """The fifty sentences in batches of ten, each padded to its longest."""
    encode = tokenizer().encode_batch
    batches = []
    for start in range(0, len(SENTENCES), 10):
        encoded = encode(SENTENCES[start : start + 10])
        batches.append(
            {
                "input_ids": np.array([e.ids for e in encoded], dtype=np.int64),
                "attention_mask": np.array([e.attention_mask for e in encoded], dtype=np.int64),
            }
        )
    return batches


def pool(hidden: Array, mask: Array) -> Array:
    """Mean over the real tokens, made one long: [batch, length, 384], [batch, length] -> [batch, 384]."""
    weights = mask[..., None].astype(np.float32)
    mean = (hidden * weights).sum(axis=1) / np.clip(weights.sum(axis=1), 1e-9, None)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def cosine(outputs: list[dict[str, Array]], reference: list[dict[str, Array]]) -> float:
    """Mean cosine between the embeddings of a variant and the reference's."""
    cosines = []
    for got, expected, batch in zip(outputs, reference, token_batches(), strict=True):
        a, b = (pool(x["last_hidden_state"], batch["attention_mask"]) for x in (got, expected))
        cosines.append((a * b).sum(axis=1))
    return float(np.concatenate(cosines).mean())
