"""tokenize without Triton, with a small tokenizer made here."""

from pathlib import Path

import numpy as np
import pytest
import tokenize_core
from step_texts import decode_texts
from tokenize_core import Settings, TextTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "one", "two", "three"]
UNK, CLS, SEP, PAD, ONE, TWO, THREE = range(7)


def bert_like() -> Tokenizer:
    """Whole words between [CLS] and [SEP]; [PAD] is 3, so that a padding of 0 would show."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token=WORDS[UNK]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return tokenizer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The small tokenizer as a file."""
    file = tmp_path / "tokenizer.json"
    bert_like().save(str(file))
    return file


def rows_of(tokenizer: TextTokenizer, texts: list[str]) -> list[list[int]]:
    """The ids of each text."""
    return [row.ids for row in tokenizer.encode(texts)]


def ids_and_mask(tokenizer: TextTokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The two outputs that the step always has, and no others."""
    outputs = tokenizer.pad(tokenizer.encode(texts))
    assert list(outputs) == ["input_ids", "attention_mask"]
    return outputs["input_ids"], outputs["attention_mask"]


def test_ids_mask_and_padding(path: Path) -> None:
    """Ids carry the special tokens, then the padding token, which the mask leaves out."""
    tokenizer = TextTokenizer(path, Settings(max_length=8, buckets=(4, 6)))
    ids, mask = ids_and_mask(tokenizer, ["one two", "three"])
    assert ids.tolist() == [[CLS, ONE, TWO, SEP], [CLS, THREE, SEP, PAD]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert ids.dtype == mask.dtype == np.int64


@pytest.mark.parametrize(("words", "length"), [(0, 4), (2, 4), (3, 6), (4, 6), (5, 8), (99, 8)])
def test_smallest_bucket_that_holds_the_longest(words: int, length: int, path: Path) -> None:
    """A batch is padded to its bucket; past the last one to max_length."""
    tokenizer = TextTokenizer(path, Settings(max_length=8, buckets=(6, 4)))
    ids, _ = ids_and_mask(tokenizer, ["one", " ".join(["two"] * words)])
    assert ids.shape == (2, length)


def test_long_text_is_cut_before_the_last_special_token(path: Path) -> None:
    """Truncation counts [CLS] and [SEP] and keeps both, as the reference does."""
    tokenizer = TextTokenizer(path, Settings(max_length=4, buckets=()))
    assert rows_of(tokenizer, ["one two three one two"]) == [[CLS, ONE, TWO, SEP]]


def test_empty_text_is_its_special_tokens(path: Path) -> None:
    """The empty text is a text."""
    tokenizer = TextTokenizer(path, Settings(max_length=4, buckets=(2,)))
    ids, mask = ids_and_mask(tokenizer, [""])
    assert ids.tolist() == [[CLS, SEP]]
    assert mask.tolist() == [[1, 1]]


def test_settings_in_the_file_are_overridden(tmp_path: Path) -> None:
    """Padding to 128 and truncation to 3 in the file do not apply; its padding id does."""
    own = bert_like()
    own.enable_padding(length=128, pad_id=UNK, pad_token=WORDS[UNK])
    own.enable_truncation(3)
    own.save(str(tmp_path / "own.json"))
    tokenizer = TextTokenizer(tmp_path / "own.json", Settings(max_length=6, buckets=(5,)))
    ids, mask = ids_and_mask(tokenizer, ["one two"])
    assert ids.tolist() == [[CLS, ONE, TWO, SEP, UNK]]
    assert mask.tolist() == [[1, 1, 1, 1, 0]]


def test_invalid_utf8_names_item_and_byte() -> None:
    """The message says which text and where in it."""
    with pytest.raises(ValueError, match=r"item 1: not valid UTF-8 at byte 3"):
        decode_texts([b"fine", b"abc\xff"], 100)
    assert decode_texts(["שלום 🙂".encode(), b""], 100) == ["שלום 🙂", ""]


@pytest.mark.parametrize(
    ("values", "message"), [({"max_length": 0}, "max_length: found 0"), ({"buckets": (0, 4)}, "buckets")]
)
def test_unfit_parameters_are_refused(values: dict[str, object], message: str) -> None:
    """Lengths are positive."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)


def test_max_length_must_leave_room_for_text(path: Path) -> None:
    """A window that the special tokens fill is refused, not served empty."""
    with pytest.raises(ValueError, match="wanted more than the 2 special tokens"):
        TextTokenizer(path, Settings(max_length=2))


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    """The message names the file."""
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match=r"x\.json: not a HuggingFace tokenizer\.json"):
        TextTokenizer(tmp_path / "x.json", Settings())


def test_a_long_text_is_refused_before_it_is_tokenized() -> None:
    """The library takes up to 450 bytes per character: 48 MB of text took 7 GiB and a minute."""
    with pytest.raises(ValueError, match=r"item 1: the text has 11 bytes; at most 10 are taken"):
        decode_texts([b"a" * 10, b"a" * 11], 10)
    assert Settings().max_bytes == 262_144
    with pytest.raises(ValueError, match="parameter max_bytes: found 0"):
        Settings(max_bytes=0)


def test_many_long_texts_are_tokenized_a_few_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a group is bounded, and the rows equal those of all texts together."""
    tokenizer = TextTokenizer(path, Settings(max_length=8))
    texts = ["one " * 2, "two " * 9, "", "three", "one two", "three " * 4]
    expected = rows_of(tokenizer, texts)
    monkeypatch.setattr("tokenize_core.MOST_CHARACTERS", 20)
    assert list(map(len, tokenize_core._groups(texts))) == [1, 1, 3, 1]
    assert rows_of(tokenizer, texts) == expected
    assert tokenizer.encode([]) == []
