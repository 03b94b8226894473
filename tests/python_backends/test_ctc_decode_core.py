"""ctc_decode without Triton: greedy against transformers, the beam against all paths."""

import json
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby, product
from pathlib import Path

import numpy as np
import pytest
from ctc_decode_core import Settings, decode
from ctc_decode_vocabulary import Vocabulary, read_vocabulary
from hypothesis import given
from hypothesis import strategies as st

TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"EATLO'"]


def vocabulary_of(folder: Path, text: str, blank: str = "", delimiter: str = "|", skip: bool = True) -> Vocabulary:
    """The vocabulary that a file of this text is."""
    file = folder / "vocabulary"
    file.write_text(text, encoding="utf-8")
    return read_vocabulary(file, blank, delimiter, skip)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """The vocabulary of TOKENS, with all of them in the text."""
    text = json.dumps({token: number for number, token in enumerate(TOKENS)})
    return vocabulary_of(tmp_path_factory.mktemp("vocabulary"), text, skip=False)


def logits_of(path: list[int], classes: int = len(TOKENS)) -> np.ndarray:
    """Logits [1, frames, classes] whose best path this is."""
    noise = np.random.default_rng(len(path)).normal(0, 0.1, (1, len(path), classes))
    noise[0, np.arange(len(path)), path] += 5
    return noise.astype(np.float32)


def text_of(logits: np.ndarray, vocabulary: Vocabulary, **parameters: object) -> str:
    """The text of one item."""
    make: Callable[..., Settings] = Settings
    texts, scores = decode(logits, [logits.shape[1]], vocabulary, make(**parameters))
    assert texts.shape == scores.shape == (1, 1)
    assert scores.dtype == np.float32
    return str(texts[0, 0].decode())


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=40))
def test_greedy_as_transformers(vocabulary: Vocabulary, tokenizer: Callable[[list[int]], str], path: list[int]) -> None:
    """Any path gives what Wav2Vec2CTCTokenizer.decode gives, special tokens and spaces among it."""
    assert text_of(logits_of(path), vocabulary) == tokenizer(path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[int]], str]:
    """transformers' function from ids to text."""
    transformers = pytest.importorskip("transformers")
    file = tmp_path_factory.mktemp("tokenizer") / "vocab.json"
    file.write_text(json.dumps({token: number for number, token in enumerate(TOKENS)}))
    decode_ids: Callable[[list[int]], str] = transformers.Wav2Vec2CTCTokenizer(str(file)).decode
    return decode_ids


def test_a_doubled_letter_needs_a_blank(vocabulary: Vocabulary) -> None:
    """LL of neighbors is one L; a blank between them makes two."""
    spell = {token: number for number, token in enumerate(TOKENS)}
    path = [spell[token] for token in ["T", "T", "<pad>", "E", "L", "L", "<pad>", "L", "|", "|", "A"]]
    for beam in (1, 8):
        assert text_of(logits_of(path), vocabulary, beam=beam) == "TELL A"
        assert text_of(logits_of(path), vocabulary, beam=beam, lowercase=True) == "tell a"


def test_special_tokens_are_left_out(tmp_path: Path) -> None:
    """The default leaves them out; they still separate equal letters."""
    vocabulary = vocabulary_of(tmp_path, json.dumps({token: number for number, token in enumerate(TOKENS)}))
    assert text_of(logits_of([1, 6, 3, 6, 2]), vocabulary) == "AA"


def all_paths(likely: np.ndarray, blank: int) -> dict[tuple[int, ...], float]:
    """The probability of each text, over all paths."""
    chances: dict[tuple[int, ...], float] = defaultdict(float)
    for path in product(range(likely.shape[1]), repeat=len(likely)):
        ids = tuple(token for token, _ in groupby(path) if token != blank)
        chances[ids] += float(np.prod(likely[np.arange(len(likely)), list(path)]))
    return chances


@pytest.mark.parametrize("seed", range(20))
def test_the_beam_finds_the_most_likely_text(tmp_path: Path, seed: int) -> None:
    """With room for all prefixes the search is exact: the text and its probability, over all of its paths."""
    vocabulary = vocabulary_of(tmp_path, "<blk> 0\na 1\nb 2\n")
    logits = np.random.default_rng(seed).normal(0, 1.5, (1, 6, 3)).astype(np.float32)
    chances = all_paths(np.exp(logits[0]) / np.exp(logits[0]).sum(axis=1, keepdims=True), 0)
    best = max(chances, key=lambda ids: chances[ids])
    texts, scores = decode(logits, [6], vocabulary, Settings(beam=200))
    assert texts[0, 0].decode() == "".join("-ab"[token] for token in best)
    assert scores[0, 0] == pytest.approx(np.log(chances[best]), abs=1e-4)


def test_the_beam_can_beat_the_best_path(tmp_path: Path) -> None:
    """Two frames in which blank is best, and the paths of "a" are more likely together."""
    vocabulary = vocabulary_of(tmp_path, "<blk>\na\n")
    logits = np.log(np.float32([[[0.6, 0.4], [0.6, 0.4]]]))
    assert text_of(logits, vocabulary) == ""
    assert text_of(logits, vocabulary, beam=4) == "a"
    _, scores = decode(logits, [2], vocabulary, Settings(beam=4))
    assert scores[0, 0] == pytest.approx(np.log(0.64), abs=1e-5)


def test_the_beam_keeps_the_prefixes_that_stay(tmp_path: Path) -> None:
    """Memory grows with frames times beam, not with all prefixes that a frame begins."""
    vocabulary = vocabulary_of(tmp_path, "<blk>\n" + "".join(f"t{number}\n" for number in range(299)))
    logits = np.random.default_rng(0).normal(0, 0.5, (1, 100, 300)).astype(np.float32)
    text_of(logits[:, :2], vocabulary, beam=50)
    tracemalloc.start()
    try:
        text_of(logits, vocabulary, beam=50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * 1024 * 1024


def test_too_many_frames_for_a_beam_are_refused(vocabulary: Vocabulary) -> None:
    """Only frames that count; without a beam there is no limit."""
    logits = np.repeat(logits_of([6, 0, 7]), 2, axis=0)
    with pytest.raises(ValueError, match=r"item 1: 3 frames with a beam of 4 may take 12 prefixes; at most 11 .*max_p"):
        decode(logits, [2, 3], vocabulary, Settings(beam=4, max_prefixes=11))
    for settings in (Settings(beam=4, max_prefixes=12), Settings(max_prefixes=1)):
        assert decode(logits, [2, 3], vocabulary, settings)[0][1, 0] == b"AT"


def test_the_score_of_the_best_path(tmp_path: Path) -> None:
    """The logarithm of the product of its probabilities; probabilities' own logarithms count as they are."""
    vocabulary = vocabulary_of(tmp_path, "<blk>\na\n")
    logits = np.log(np.float32([[[0.6, 0.4], [0.3, 0.7]]]))
    for shift in (0, 100):
        _, scores = decode(logits + np.float32(shift), [2], vocabulary, Settings())
        assert scores[0, 0] == pytest.approx(np.log(0.42), abs=1e-4)


def test_only_counted_frames_are_read(vocabulary: Vocabulary) -> None:
    """Padding has no say, whatever is in it; none and too many are possible."""
    rows = np.repeat(logits_of([6, 0, 7]), 4, axis=0)
    rows[0, 2] = np.nan
    texts, scores = decode(rows, [2, 3, 0, 9], vocabulary, Settings())
    assert [text.decode() for text in texts[:, 0]] == ["A", "AT", "", "AT"]
    assert scores[2, 0] == 0
    texts, _ = decode(rows, [2, 3, -1, 9], vocabulary, Settings(beam=3))
    assert [text.decode() for text in texts[:, 0]] == ["A", "AT", "", "AT"]


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 719, 720, 16_000, 123_457])
def test_frames_of_samples_as_transformers_counts(samples: int) -> None:
    """The lengths of Wav2Vec2's seven convolutions."""
    length = samples
    for kernel, stride in zip((10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2), strict=True):
        length = max(0, (length - kernel) // stride + 1)
    assert Settings().frames_of(samples) == length


def test_lines_with_numbers(tmp_path: Path) -> None:
    """The form of k2: the numbers count, and pieces of sentencepiece carry the space."""
    vocabulary = vocabulary_of(tmp_path, "▁the 2\n<blk> 0\n▁c 1\nat 3\n", delimiter="▁")
    assert (vocabulary.size, vocabulary.blank) == (4, 0)
    assert vocabulary.text([2, 1, 3]) == "the cat"


def test_lines_without_numbers(tmp_path: Path) -> None:
    """The line is the number; a line may be a space."""
    vocabulary = vocabulary_of(tmp_path, "a\n \nb\n_\n", blank="_", delimiter="")
    assert vocabulary.blank == 3
    assert vocabulary.text([0, 1, 2]) == "a b"


def test_a_tokenizer(tmp_path: Path) -> None:
    """A tokenizer.json decodes by its own rules."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    words = {"▁the": 0, "▁c": 1, "at": 2, "<unk>": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("<pad>", special=True), AddedToken("<s>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_vocabulary(tmp_path / "tokenizer.json", "", "|", True)
    assert (vocabulary.size, vocabulary.blank) == (6, 4)
    assert vocabulary.text([5, 0, 1, 2]) == "the cat"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "parameter blank: vocabulary has none of <pad>, \\[PAD\\], <blank>, <blk>, <eps>"),
        ("a\nb\n", "parameter blank"),
        ("a\n<pad>\na\n", "the token 'a' is there 2 times"),
        ("a 0\n<pad> 2\n", "the token '<pad>' has the number 2, wanted 1"),
        ('{"a": 0, "<pad>": 0}', "the token '<pad>' has the number 0, wanted 1"),
        ('{"a": "x"}', "the token 'a' has \"x\", wanted its number"),
        ('{"a": true}', "the token 'a' has true, wanted its number"),
        ('{"a": ', "not JSON"),
        ('{"a": ' + "[" * 200_000, "not JSON: maximum recursion depth"),
        ('{"model": {}}', "not a HuggingFace tokenizer.json"),
    ],
)
def test_unfit_vocabularies_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The message names the token."""
    with pytest.raises(ValueError, match=message):
        vocabulary_of(tmp_path, text)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    """The vocabulary is UTF-8."""
    (tmp_path / "vocabulary").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match="not UTF-8 at byte 2"):
        read_vocabulary(tmp_path / "vocabulary", "", "|", True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("beam", [1, 4])
def test_logits_without_a_maximum_are_refused(vocabulary: Vocabulary, value: float, beam: int) -> None:
    """The message names item and frame."""
    logits = np.repeat(logits_of([1, 2, 3]), 2, axis=0)
    logits[1, 2, 0] = value
    with pytest.raises(ValueError, match=f"item 1, frame 2: the largest logit is {value}"):
        decode(logits, [3, 3], vocabulary, Settings(beam=beam))


def test_classes_must_be_tokens(vocabulary: Vocabulary) -> None:
    """A network with another number of classes is refused."""
    with pytest.raises(ValueError, match="found 4 classes, wanted 11, one for each token"):
        decode(np.zeros((1, 2, 4), dtype=np.float32), [2], vocabulary, Settings())


@pytest.mark.parametrize(
    ("name", "value"), [("beam", 0), ("stride", 0), ("field", 0), ("max_prefixes", 0), ("length", "half")]
)
def test_unfit_parameters_are_refused(name: str, value: object) -> None:
    """The message names the parameter."""
    make: Callable[..., Settings] = Settings
    with pytest.raises(ValueError, match=f"parameter {name}: found"):
        make(**{name: value})


@pytest.mark.parametrize("beam", [1, 4])
def test_probabilities_give_what_their_logarithms_give(vocabulary: Vocabulary, beam: int) -> None:
    """A softmax at the end of a network changes neither text nor score, though zeros have no logarithm."""
    likely = np.float32([[[0.05, 0.0, 0.0, 0.0, 0.0, 0.5, 0.45, 0.0, 0.0, 0.0, 0.0], [0.9] + [0.01] * 10]])
    settings = Settings(beam=beam, probabilities=True)
    (text,), (score,) = (array[0] for array in decode(likely, [2], vocabulary, settings))
    with np.errstate(divide="ignore"):
        logarithms = np.maximum(np.log(likely), -80)
    (other,), (same,) = (array[0] for array in decode(logarithms, [2], vocabulary, Settings(beam=beam)))
    assert text == other == b"E"
    assert score == pytest.approx(same, abs=1e-5)
    if beam == 1:
        assert score == pytest.approx(np.log(0.5 * 0.9), abs=1e-5)


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan, np.inf])
def test_other_numbers_than_probabilities_are_refused(vocabulary: Vocabulary, value: float) -> None:
    """Logits are not read as probabilities."""
    likely = np.zeros((2, 3, len(TOKENS)), np.float32)
    likely[1, 2, 4] = value
    with pytest.raises(ValueError, match=r"item 1, frame 2: found .*, wanted a probability, 0 to 1"):
        decode(likely, [3, 3], vocabulary, Settings(probabilities=True))


def test_zeros_are_no_probabilities_and_harmless(vocabulary: Vocabulary) -> None:
    """A warm-up consists of them."""
    texts, scores = decode(np.zeros((1, 3, len(TOKENS)), np.float32), [3], vocabulary, Settings(probabilities=True))
    assert texts[0, 0] == b""
    assert np.isfinite(scores).all()


def test_the_mean_score_is_that_of_the_tokens(tmp_path: Path) -> None:
    """The first frame of each token counts, blanks and repeats do not; logits give what their probabilities give."""
    vocabulary = vocabulary_of(tmp_path, "<blk>\na\nb\n")
    likely = np.float32([[[0.1, 0.8, 0.1], [0.2, 0.7, 0.1], [0.9, 0.05, 0.05], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]])
    for values, settings in (
        (likely, Settings(scores="mean", probabilities=True)),
        (np.log(likely) + 7, Settings(scores="mean")),
    ):
        texts, scores = decode(values, [5], vocabulary, settings)
        assert texts[0, 0] == b"aab"
        assert scores[0, 0] == pytest.approx((0.8 + 0.6 + 0.6) / 3, abs=1e-5)
        assert decode(values, [0], vocabulary, settings)[1][0, 0] == 0
    with pytest.raises(ValueError, match="parameter scores: found 'mean' with a beam of 2"):
        Settings(scores="mean", beam=2)
    with pytest.raises(ValueError, match="parameter scores: found 'best'"):
        Settings(scores="best")
