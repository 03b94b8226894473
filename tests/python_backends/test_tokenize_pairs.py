"""Pairs, prefixes, truncation and places of tokens, against transformers' own tokenizers of the same files."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenize_core import Settings, TextTokenizer
from tokenizers import Encoding, Tokenizer, models, processors

from tests.python_backends.text_tokenizers import KINDS, ODD_TEXTS

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = "[UNK]"
SIDES = ("right", "left")


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of each kind as a file."""
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    KINDS[request.param]().save(str(file))
    return file


def reference(path: Path, side: str = "right") -> Any:
    """transformers' tokenizer of the same file."""
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), truncation_side=side)


def check(expected: Any, encoding: Encoding, outputs: dict[str, np.ndarray], row: int) -> None:
    """Every output of a row equals transformers', up to its length, and is padding after it."""
    n = len(expected["input_ids"])
    assert outputs["input_ids"][row, :n].tolist() == expected["input_ids"]
    assert outputs["attention_mask"][row].tolist() == [1] * n + [0] * (outputs["input_ids"].shape[1] - n)
    assert outputs["token_type_ids"][row, :n].tolist() == expected["token_type_ids"]
    assert outputs["offsets"][row, :n].tolist() == [list(pair) for pair in expected["offset_mapping"]]
    for name, values in (("sequence_ids", encoding.sequence_ids), ("word_ids", encoding.word_ids)):
        assert outputs[name][row, :n].tolist() == [-1 if value is None else value for value in values]
        assert (outputs[name][row, n:] == -1).all()
    assert not outputs["token_type_ids"][row, n:].any()
    assert not outputs["offsets"][row, n:].any()


@pytest.mark.parametrize(("max_length", "side"), list(product((7, 64), SIDES)))
def test_single_texts_equal_transformers(path: Path, max_length: int, side: str) -> None:
    """Ids, mask, types and places of odd texts, cut on either side."""
    own = reference(path, side)
    settings = Settings(max_length, (), truncation_side=side, token_type_ids=True, offsets=True)
    tokenizer = TextTokenizer(path, settings)
    texts = list(ODD_TEXTS.values())
    outputs = tokenizer.pad(tokenizer.encode(texts))
    for row, text in enumerate(texts):
        options = {"return_offsets_mapping": True, "return_token_type_ids": True}
        expected = own(text, truncation=True, max_length=max_length, **options)
        check(expected, expected.encodings[0], outputs, row)


@pytest.mark.parametrize(("truncation", "side"), list(product(("longest_first", "only_first", "only_second"), SIDES)))
def test_pairs_equal_transformers(path: Path, truncation: str, side: str) -> None:
    """Pairs in the tokenizer's own template, with the text cut that `truncation` names."""
    own = reference(path, side)
    settings = Settings(24, (), 1 << 20, True, "", truncation, side, True, True)
    tokenizer = TextTokenizer(path, settings)
    short = [ODD_TEXTS[name] for name in ("empty", "spaces", "one")]
    pairs = list(
        product(ODD_TEXTS.values(), short) if truncation == "only_first" else product(short, ODD_TEXTS.values())
    )
    outputs = tokenizer.pad(tokenizer.encode(pairs))
    for row, (text, other) in enumerate(pairs):
        options = {"return_offsets_mapping": True, "return_token_type_ids": True}
        # In lists, because it takes an empty second text outside of one for none.
        expected = own([text], [other], truncation=truncation, max_length=24, **options)
        check({name: values[0] for name, values in expected.items()}, expected.encodings[0], outputs, row)


def test_offsets_are_characters_of_the_text(path: Path) -> None:
    """A character of four bytes counts as one, and combining marks count for themselves."""
    tokenizer = TextTokenizer(path, Settings(128, (), offsets=True))
    text = "👩‍👩‍👧 met 𝔄ngela e\u0301lodie Berlin"
    outputs = tokenizer.pad(tokenizer.encode([text]))
    of_text = outputs["sequence_ids"][0] == 0
    start, stop = outputs["offsets"][0][of_text].T
    assert (start <= stop).all()
    assert stop.max() == len(text)
    last = outputs["word_ids"][0][of_text].max()
    word = outputs["offsets"][0][outputs["word_ids"][0] == last]
    assert text[word[:, 0].min() : word[:, 1].max()].strip(" ") == "Berlin"


def test_fast_rows_equal_those_with_offsets(path: Path) -> None:
    """Offsets change neither ids, mask nor types."""
    pairs = [(text, "the dog") for text in ODD_TEXTS.values()]
    outputs = []
    for offsets in (False, True):
        tokenizer = TextTokenizer(path, Settings(24, (), pair=True, token_type_ids=True, offsets=offsets))
        outputs.append(tokenizer.pad(tokenizer.encode(pairs)))
    assert set(outputs[0]) == {"input_ids", "attention_mask", "token_type_ids"}
    for name, array in outputs[0].items():
        np.testing.assert_array_equal(outputs[1][name], array)


@pytest.mark.parametrize("pair", [False, True])
def test_a_prefix_is_put_before_the_first_text(path: Path, pair: bool) -> None:
    """Ids are those of the joined text; places count in the caller's text, and the prefix belongs to none."""
    prefix = "query: fox "
    tokenizer = TextTokenizer(path, Settings(64, (), pair=pair, prefix=prefix, offsets=True))
    plain = TextTokenizer(path, Settings(64, (), pair=pair, offsets=True))
    text = "Angela met 🦊 Macron"
    texts = [(text, "in Paris") if pair else text]
    joined = [(prefix + text, "in Paris") if pair else prefix + text]
    outputs, whole = tokenizer.pad(tokenizer.encode(texts)), plain.pad(plain.encode(joined))
    np.testing.assert_array_equal(outputs["input_ids"], whole["input_ids"])
    of_prefix = (whole["sequence_ids"] == 0) & (whole["offsets"][:, :, 1] <= len(prefix))
    assert of_prefix.any()
    assert (outputs["sequence_ids"][of_prefix] == -1).all()
    assert (outputs["word_ids"][of_prefix] == -1).all()
    assert not outputs["offsets"][of_prefix].any()
    first = outputs["sequence_ids"] == 0
    np.testing.assert_array_equal(
        outputs["offsets"][first], np.maximum(whole["offsets"][(whole["sequence_ids"] == 0) & ~of_prefix] - 11, 0)
    )
    second = outputs["sequence_ids"] == 1
    np.testing.assert_array_equal(outputs["offsets"][second], whole["offsets"][second])
    assert second.any() == pair


@pytest.mark.parametrize(
    ("truncation", "pair"), [("only_first", ("fox", "the dog " * 9)), ("only_second", ("the dog " * 9, "fox"))]
)
def test_a_pair_that_does_not_fit_is_named(path: Path, truncation: str, pair: tuple[str, str]) -> None:
    """The text that may not be cut takes all tokens: the item, the library's words and the parameters are reported."""
    tokenizer = TextTokenizer(path, Settings(8, (), pair=True, truncation=truncation))
    message = rf"item 1: the tokenizer refuses it: \w+.*at most 8 tokens, parameter max_length; .* is {truncation}\)"
    with pytest.raises(ValueError, match=message):
        tokenizer.encode([("fox", "fox"), pair, ("", "")])


def test_a_text_that_the_library_refuses_is_named(tmp_path: Path) -> None:
    """A word of an unknown token without a token for it: an error of that item, in the library's words."""
    file = tmp_path / "tokenizer.json"
    Tokenizer(models.WordLevel({"one": 0}, unk_token=UNKNOWN)).save(str(file))
    tokenizer = TextTokenizer(file, Settings())
    assert [row.ids for row in tokenizer.encode(["one", "one"])] == [[0], [0]]
    with pytest.raises(ValueError, match=r"item 2: the tokenizer refuses it: .*"):
        tokenizer.encode(["one", "one", "two"])


def test_a_tokenizer_without_a_template_for_pairs_is_refused(tmp_path: Path) -> None:
    """It would join two texts without anything between them."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1}, unk_token=UNKNOWN))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    tokenizer.save(str(tmp_path / "t.json"))
    TextTokenizer(tmp_path / "t.json", Settings())
    with pytest.raises(ValueError, match=r"parameter pair: t\.json says nothing of pairs"):
        TextTokenizer(tmp_path / "t.json", Settings(pair=True))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"truncation": "both"}, "truncation: found 'both', wanted one of longest_first, only_first, only_second"),
        ({"truncation": "only_second"}, "truncation: found 'only_second' without a second text, wanted pair: true"),
        ({"truncation_side": "top"}, "truncation_side: found 'top', wanted right or left"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)
