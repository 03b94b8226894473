"""Small tokenizers of the three usual kinds, trained here on a few sentences, and odd texts for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN = "[UNK]"

CORPUS = [
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "Angela Merkel met Emmanuel Macron in Paris on Tuesday, and flew back to Berlin.",
    "Microsoft and Apple opened new offices in New York City.",
    "Élodie naïvely ordered crème brûlée in a café in Zürich.",
]

ODD_TEXTS = {
    "empty": "",
    "spaces": "   \t \n ",
    "one": "fox",
    "accents": "Élodie ordered crème brûlée, café",
    "combining": "E\u0301lodie na\u0308vely o\u0308\u0323rdered",
    "emoji": "The 🦊 jumps 👩‍👩‍👧‍👦 over 🏳️‍🌈!",
    "four_bytes": "𝔄ngela 𠜎 met 𐍈 Macron",
    "joined": "\ufb01ne \u2168 \u00bd Ⅷ",
    "control": "a\u0000b\u200bc\u00adfox\ufeff dog",
    "right_to_left": "שלום Angela مرحبا Berlin",
    "special": "the [SEP] and <s> of [CLS] the [PAD] dog",
    "punctuation": "Berlin,Paris;New-York... (City)!!!",
    "long_word": "jump" * 60,
    "long": "The quick brown fox met Angela Merkel in Paris. " * 40,
}


def wordpiece() -> Tokenizer:
    """BERT's kind: lower case without accents, words split at punctuation, `##` before the rest of a word."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def byte_level() -> Tokenizer:
    """RoBERTa's kind: every byte is a token, a space belongs to the word after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    return tokenizer


def sentencepiece() -> Tokenizer:
    """XLM-R's kind: a unigram model over text in which `▁` stands for spaces."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token=special[3], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "wordpiece": wordpiece,
    "byte_level": byte_level,
    "sentencepiece": sentencepiece,
}
