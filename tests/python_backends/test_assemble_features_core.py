"""assemble_features without Triton: against scikit-learn's transformers, and on odd records and files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assemble_features_core import Settings, assemble, assemble_columns, check_columns
from assemble_features_file import read_features

FEATURES = """
- name: age
  default: 40
  scale: {mean: 40, std: 8}
- {name: income, scale: {min: -100, max: 300}}
- {name: city, kind: one_hot, categories: [Oslo, Köln, 3, true], unknown: zeros, default: ""}
- {name: grade, kind: index, categories: [low, high], unknown: -1}
- {name: member, kind: bool, default: false}
"""
SIZE = 8
GOOD = {"age": 48, "income": 100.0, "city": "Köln", "grade": "high", "member": True}


def written(folder: Path, text: str = FEATURES, name: str = "features.yaml") -> Path:
    """A file of features."""
    (folder / name).write_text(text)
    return folder / name


def vector(folder: Path, record: Any, text: str = FEATURES, size: int = SIZE, **values: Any) -> list[float]:
    """The vector of one record."""
    data = record if isinstance(record, bytes) else json.dumps(record).encode()
    vectors = assemble([data], read_features(written(folder, text), size), Settings(size, **values))
    assert vectors.dtype == np.float32
    assert vectors.shape == (1, size)
    numbers: list[float] = vectors[0].tolist()
    return numbers


def test_columns_become_numbers_in_the_order_of_the_file(tmp_path: Path) -> None:
    """The order of a record's keys does not matter."""
    expected = [1, 0.5, 0, 1, 0, 0, 1, 1]
    assert vector(tmp_path, GOOD) == expected
    assert vector(tmp_path, dict(reversed(GOOD.items()))) == expected


def test_defaults_take_the_place_of_missing_values(tmp_path: Path) -> None:
    """Absent and null are one; a default is scaled, and may be an unknown category."""
    assert vector(tmp_path, {"income": 300, "grade": "low", "age": None}) == [0, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("city", "places"),
    [(3, [0, 0, 1, 0]), (3.0, [0, 0, 1, 0]), ("3", [0] * 4), (True, [0, 0, 0, 1]), (1, [0] * 4), ("köln", [0] * 4)],
)
def test_categories_are_of_one_type(tmp_path: Path, city: Any, places: list[float]) -> None:
    """A number is neither its text nor true."""
    assert vector(tmp_path, {**GOOD, "city": city})[2:6] == places


def test_an_unknown_category_may_have_a_number(tmp_path: Path) -> None:
    """It may be NaN, as gradient-boosted trees have it."""
    assert vector(tmp_path, {**GOOD, "grade": "other"})[6] == -1
    text = "[{name: grade, kind: index, categories: [low], unknown: .nan}]"
    assert math.isnan(vector(tmp_path, {"grade": "x"}, text, 1)[0])


def test_a_missing_category_is_not_an_unknown_one(tmp_path: Path) -> None:
    """A default of NaN, and NaN that is kept, are missing categories also where unknown ones are refused."""
    text = "[{name: grade, kind: index, categories: [low], default: .nan}]"
    assert math.isnan(vector(tmp_path, {"grade": None}, text, 1)[0])
    assert math.isnan(vector(tmp_path, {"grade": math.nan}, text, 1, nan="keep")[0])
    with pytest.raises(ValueError, match="unknown category"):
        vector(tmp_path, {"grade": "x"}, text, 1)


def test_doubles_stay_doubles(tmp_path: Path) -> None:
    """With `dtype: FP64`, numbers that float32 rounds or cannot hold are whole."""
    file = written(tmp_path, "[{name: a}, {name: b}]")
    made = assemble([b'{"a": 1700000001, "b": 1e300}'], read_features(file, 2), Settings(2, dtype="FP64"))
    assert made.dtype == np.float64
    assert made.tolist() == [[1700000001, 1e300]]
    with pytest.raises(ValueError, match="too large for FP32"):
        assemble([b'{"a": 1, "b": 1e300}'], read_features(file, 2), Settings(2))


def test_an_unknown_category_is_refused_by_default(tmp_path: Path) -> None:
    """The message has the first categories, and the value, cut where it is long."""
    text = "[{name: grade, kind: index, categories: [a, b, c, d, e, f, g]}]"
    with pytest.raises(
        ValueError, match=r'unknown category "x{39}\.\.\., wanted one of "a", "b", "c", "d", "e" and 2 more'
    ):
        vector(tmp_path, {"grade": "x" * 99}, text, 1)


def test_numbers_of_scikit_learn(tmp_path: Path) -> None:
    """StandardScaler, MinMaxScaler, OneHotEncoder and OrdinalEncoder, after SimpleImputer, give the same vectors."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

    random = np.random.default_rng(0)
    colors = np.array(["red", "green", "blue"], object)
    table = np.empty((50, 4), object)
    table[:, 0] = random.normal(1e4, 30, 50)
    table[:, 1] = random.uniform(-1, 1, 50)
    table[:, 2:] = random.choice(colors, (50, 2))
    table[::7, 0] = np.nan
    fill = SimpleImputer(strategy="constant", fill_value=9_990.0)
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    index = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    reference = make_column_transformer(
        (make_pipeline(fill, StandardScaler()), [0]), (MinMaxScaler(), [1]), (one_hot, [2]), (index, [3])
    ).fit(table)
    standard, scaler = reference.transformers_[0][1].steps[1][1], reference.transformers_[1][1]
    text = json.dumps(
        [
            {"name": "a", "default": 9_990.0, "scale": {"mean": standard.mean_[0], "std": standard.scale_[0]}},
            {"name": "b", "scale": {"min": scaler.data_min_[0], "max": scaler.data_max_[0]}},
            {"name": "c", "kind": "one_hot", "categories": sorted(colors), "unknown": "zeros"},
            {"name": "d", "kind": "index", "categories": sorted(colors), "unknown": -1},
        ]
    )
    table[3, 2:] = "violet"
    features = read_features(written(tmp_path, text, "features.json"), 6)
    records = [json.dumps(dict(zip("abcd", row, strict=True))).encode() for row in table.tolist()]
    vectors = assemble(records, features, Settings(6, nan="missing"))
    np.testing.assert_allclose(vectors, reference.transform(table).astype(np.float32), rtol=1e-6, atol=1e-6)


def test_the_policy_of_nan(tmp_path: Path) -> None:
    """NaN is refused, or is a missing value, or reaches the network."""
    record = {**GOOD, "age": math.nan}
    with pytest.raises(ValueError, match=r'item 0, column "age": found NaN, wanted a value; the parameter `nan`'):
        vector(tmp_path, record)
    assert vector(tmp_path, record, nan="missing")[0] == 0
    assert math.isnan(vector(tmp_path, record, nan="keep")[0])
    with pytest.raises(ValueError, match='column "income": it is missing or null, and the feature has no default'):
        vector(tmp_path, {**GOOD, "income": math.nan}, nan="missing")
    assert vector(tmp_path, {**GOOD, "city": math.nan}, nan="keep")[2:6] == [0, 0, 0, 0]


def test_keys_that_are_not_features(tmp_path: Path) -> None:
    """They are refused, or left out."""
    with pytest.raises(ValueError, match='item 0, column "Age": it is not a feature; `unknown_keys: ignore` leaves it'):
        vector(tmp_path, {**GOOD, "Age": 1})
    assert vector(tmp_path, {**GOOD, "Age": [1]}, unknown_keys="ignore") == vector(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("age", "48", 'found "48", wanted a number'),
        ("age", True, "found true, wanted a number"),
        ("age", [48], "found a list, wanted a number"),
        ("age", math.inf, "found an infinite or too large number"),
        ("age", 10**400, "found an infinite or too large number"),
        ("age", 1e300, "the scaled value 1.25e+299 is too large for FP32"),
        ("income", None, "it is missing or null, and the feature has no default"),
        ("city", {"name": "Oslo"}, "found an object, wanted a category"),
        ("member", "yes", 'found "yes", wanted true or false'),
        ("member", 2, "found 2, wanted true or false"),
        ("member", 10**400, "wanted true or false"),
    ],
)
def test_unfit_values_are_refused(tmp_path: Path, column: str, value: Any, message: str) -> None:
    """The message names the column."""
    with pytest.raises(ValueError, match="item 0, column") as caught:
        vector(tmp_path, {**GOOD, column: value})
    assert f'column "{column}": ' in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "item 0: not JSON at character 0"),
        (b"\xff{}", "item 0: not valid UTF-8 at byte 0"),
        (b"[1, 2]", "item 0: found a list, wanted a JSON object"),
        (b"null", "item 0: found null, wanted a JSON object"),
        (b'{"age": 1, "age": 2}', 'item 0, column "age": it is there twice'),
        (b'{"age": ' + b"9" * 5000 + b"}", "item 0: not JSON that can be read: an integer has too many digits"),
        (b"[" * 200_000, "item 0: lists or objects lie in each other too deep"),
        (b'{"\\ud800": 1}', 'item 0, column "\\ud800": it is not a feature'),
    ],
)
def test_unfit_records_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    """Nothing else than one object of JSON is taken, and each message can be sent as UTF-8."""
    with pytest.raises(ValueError, match="item 0") as caught:
        vector(tmp_path, data)
    assert message in str(caught.value)
    assert str(caught.value).encode()


def test_a_mapping_may_be_merged(tmp_path: Path) -> None:
    """YAML's << gives keys that the mapping itself may have, too."""
    text = "- &first {name: a, default: 3}\n- {<<: *first, name: b}"
    assert vector(tmp_path, {"a": 1}, text, 2) == [1, 3]
    chain = "- &a {name: a, default: 3}\n- &b {<<: *a, name: b}\n- {<<: *b, name: c, default: 4}"
    assert vector(tmp_path, {}, chain, 3) == [3, 3, 4]


def test_a_record_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    """It is not read, whatever it is; the default is a MiB."""
    with pytest.raises(ValueError, match="item 0: the record has 9 bytes; at most 8 are taken"):
        vector(tmp_path, b"\xff" * 9, max_bytes=8)
    record = {**GOOD, "more": "x" * (1 << 20)}
    with pytest.raises(ValueError, match="at most 1048576 are taken"):
        vector(tmp_path, record, unknown_keys="ignore")
    assert vector(tmp_path, record, unknown_keys="ignore", max_bytes=1 << 21) == vector(tmp_path, GOOD)


def test_the_item_that_is_unfit_is_named(tmp_path: Path) -> None:
    """Counting begins with 0."""
    good, bad = json.dumps(GOOD).encode(), json.dumps({**GOOD, "age": "old"}).encode()
    with pytest.raises(ValueError, match='item 2, column "age": found "old"'):
        assemble([good, good, bad], read_features(written(tmp_path), SIZE), Settings(SIZE))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wanted a list of features"),
        ("features: {}", "wanted a list of features"),
        ("- age", "feature 1: wanted an object with a name"),
        ("- {name: [", "cannot be read: while parsing"),
        ("- {name: a, kind: bool, kind: number}", 'the key "kind" is there twice in one object'),
        ("- {name: a, scale: {min: 0, max: 1, min: 0}}", 'the key "min" is there twice in one object'),
        ("features: [{name: a}]\nfeatures: [{name: b}]", 'the key "features" is there twice in one object'),
        ("- {name: a}\n- {name: a}", 'feature 2 ("a"): the name is there twice'),
        ("- {name: a, kind: text}", 'kind: found "text", wanted one of number, bool, one_hot, index'),
        ("- {name: a, defualt: 1}", "defualt: kind number has no such field, only default, scale"),
        ("- {name: a, default: x}", 'default: found "x", wanted a number'),
        ("- {name: a, scale: {mean: 1}}", "scale: wanted {mean, std} or {min, max}"),
        ("- {name: a, scale: {mean: 1, std: 0}}", "scale, std: found 0, wanted more than 0"),
        ("- {name: a, scale: {min: 1, max: 1}}", "scale, max: found 1, wanted more than min"),
        ("- {name: a, scale: {min: -1.0e+308, max: 1.0e+308}}", "scale, max: found 1e+308"),
        ("- {name: a, scale: {mean: .nan, std: 1}}", "scale, std: found 1, wanted more than 0, and no NaN"),
        ("- {name: a, scale: {mean: x, std: 1}}", 'scale, mean: found "x", wanted a number'),
        ("- {name: a, kind: index}", "categories: wanted a list of at least one"),
        ("- {name: a, kind: index, categories: [b, b]}", 'categories: "b" is there twice'),
        ("- {name: a, kind: index, categories: [2020-01-01]}", "categories: found a date, wanted text, numbers"),
        (
            "- {name: a, kind: index, categories: [b], unknown: zeros}",
            'unknown: found "zeros", wanted a number, or error',
        ),
        ("- {name: a, kind: one_hot, categories: [b], unknown: -1}", "unknown: found -1, wanted error or zeros"),
        ("- {name: a, kind: one_hot, categories: [b], default: c}", 'default: found the unknown category "c"'),
        ("- {name: a}", "parameter size: found 8, wanted 1, the numbers that the features of"),
    ],
)
def test_unfit_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The message names the file and the feature."""
    with pytest.raises(ValueError, match=r"features.yaml") as caught:
        read_features(written(tmp_path, text), SIZE)
    assert message in str(caught.value)


def test_files_that_are_not_text(tmp_path: Path) -> None:
    """A file is YAML or JSON by its name."""
    with pytest.raises(ValueError, match=r"found features.csv, wanted a file .yaml, .yml or .json"):
        read_features(written(tmp_path, name="features.csv"), SIZE)
    with pytest.raises(ValueError, match=r"features.json: cannot be read: Expecting value: line 1"):
        read_features(written(tmp_path, "a", "features.json"), SIZE)
    with pytest.raises(ValueError, match=r'features.json: the key "kind" is there twice in one object'):
        read_features(written(tmp_path, '[{"name": "a", "kind": "bool", "kind": "number"}]', "features.json"), 1)
    (tmp_path / "features.yml").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"features.yml: not UTF-8 at byte 0"):
        read_features(tmp_path / "features.yml", SIZE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 0}, "size: found 0, wanted at least 1"),
        ({"size": 1, "max_bytes": 0}, "max_bytes: found 0, wanted at least 1"),
        ({"size": 1, "unknown_keys": "drop"}, "unknown_keys: found 'drop', wanted one of error, ignore"),
        ({"size": 1, "nan": "zero"}, "nan: found 'zero', wanted one of error, missing, keep"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """The message has the parameter, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)


def of_columns(folder: Path, columns: dict[str, np.ndarray], **values: Any) -> np.ndarray:
    """The vectors of columns."""
    return assemble_columns(columns, read_features(written(folder), SIZE), Settings(SIZE, **values))


def test_columns_give_the_vectors_of_records(tmp_path: Path) -> None:
    """To the last bit, for numbers of 64 bits, text and truth."""
    rows = [
        {"age": 0.1 * place, "income": place, "city": city, "grade": grade, "member": place > 1}
        for place, (city, grade) in enumerate((("Oslo", "low"), ("Köln", "high"), ("Paris", "none")))
    ]
    types = {"age": np.float64, "income": np.int16, "city": object, "grade": object, "member": np.bool_}
    columns = {
        name: np.array([row[name].encode() if kind is object else row[name] for row in rows], dtype=kind)
        for name, kind in types.items()
    }
    expected = [vector(tmp_path, row) for row in rows]
    assert of_columns(tmp_path, columns).tolist() == expected
    assert of_columns(tmp_path, {name: column[:0] for name, column in columns.items()}).shape == (0, SIZE)


def test_a_column_that_is_left_out_has_its_default(tmp_path: Path) -> None:
    """NaN takes it too, where the parameter says that it is a missing value."""
    columns = {"income": np.float32([300]), "grade": np.array([b"low"], dtype=object)}
    expected = [[0, 1, 0, 0, 0, 0, 0, 0]]
    assert of_columns(tmp_path, columns).tolist() == expected
    assert of_columns(tmp_path, {**columns, "age": np.float16(["nan"])}, nan="missing").tolist() == expected
    with pytest.raises(ValueError, match='item 0, column "age": found NaN'):
        of_columns(tmp_path, {**columns, "age": np.float64(["nan"])})
    with pytest.raises(ValueError, match="no columns"):
        of_columns(tmp_path, {})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("age FP32", "income FP32", "grade BYTES", "size FP32"), '"size" is not a feature'),
        (("age FP32", "grade BYTES"), '"income" is not among them'),
        (("age FP32", "income FP32 optional", "grade BYTES"), '"income" is optional, and the feature has no default'),
    ],
)
def test_columns_that_do_not_fit_the_file_are_refused(tmp_path: Path, columns: tuple[str, ...], message: str) -> None:
    """When the step loads."""
    features = read_features(written(tmp_path), SIZE)
    assert check_columns(("age FP32 optional", "income FP64", "grade BYTES"), features) == ["age", "income", "grade"]
    with pytest.raises(ValueError, match=message):
        check_columns(columns, features)
