"""Turn records, JSON objects of named columns or a tensor for each column, into one vector each."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNKNOWN_KEYS = ("error", "ignore")
NAN = ("error", "missing", "keep")
DTYPES = {"FP32": np.float32, "FP64": np.float64}
KINDS = ("number", "bool", "one_hot", "index")
LONGEST = 40
"""Characters of a value that an error shows."""
MOST = 5
"""Categories that an error lists."""


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    size: int
    columns: tuple[str, ...] = ()
    unknown_keys: str = "error"
    nan: str = "error"
    dtype: str = "FP32"
    max_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        for name in ("size", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"parameter {name}: found {getattr(self, name)}, wanted at least 1")
        for name, choices in (("unknown_keys", UNKNOWN_KEYS), ("nan", NAN), ("dtype", tuple(DTYPES))):
            if getattr(self, name) not in choices:
                raise ValueError(f"parameter {name}: found '{getattr(self, name)}', wanted one of {', '.join(choices)}")


@dataclass(frozen=True)
class Feature:
    """A column of the records and the numbers that it becomes."""

    name: str
    kind: str = "number"
    default: Any = None
    """The value where a record has none; without one the record is refused."""
    categories: Mapping[tuple[bool, Any], int] = field(default_factory=dict)
    """The places of the categories, by their `category_key`."""
    strict: bool = True
    """Refuse an unknown category."""
    unknown: float = 0.0
    """The number of an unknown category that is not refused, with the kind index; one_hot has 0 in each place."""
    offset: float = 0.0
    divisor: float = 1.0

    @property
    def width(self) -> int:
        """The number of values that it becomes."""
        return len(self.categories) if self.kind == "one_hot" else 1

    def numbers(self, value: Any) -> list[float]:
        """The numbers of one value, before scaling; NaN stays NaN.

        Raises:
            ValueError: the value is of another kind, is infinite, or is an unknown category.
        """
        if self.kind == "number":
            return [_number(value)]
        if self.kind == "bool":
            return [_truth(value)]
        if self.kind == "index" and self.strict and isinstance(value, float) and math.isnan(value):
            return [math.nan]  # a missing category, not an unknown one
        place = self._place(value)
        if self.kind == "index":
            return [self.unknown if place is None else float(place)]
        numbers = [0.0] * self.width
        if place is not None:
            numbers[place] = 1.0
        return numbers

    def _place(self, category: Any) -> int | None:
        if not isinstance(category, str | int | float):
            raise ValueError(f"found {shown(category)}, wanted a category: text, a number, true or false")
        place = self.categories.get(category_key(category))
        if place is None and self.strict:
            raise ValueError(f"found the unknown category {shown(category)}, wanted one of {self._listed()}")
        return place

    def _listed(self) -> str:
        first = ", ".join(shown(category) for _, category in list(self.categories)[:MOST])
        return first if len(self.categories) <= MOST else f"{first} and {len(self.categories) - MOST} more"


def category_key(category: Any) -> tuple[bool, Any]:
    """A key that equal categories share: 1 and 1.0 do, 1 and true do not."""
    return isinstance(category, bool), category


def shown(value: Any) -> str:
    """A value as JSON has it, cut where it is long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # a date of YAML; an integer of too many digits
        text = f"a {type(value).__name__}"
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return text.encode(errors="backslashreplace").decode()  # half a surrogate pair, which JSON can escape


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"found {shown(value)}, wanted a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise ValueError("found an infinite or too large number, wanted a finite one")
    return number


def _truth(value: Any) -> float:
    if isinstance(value, int | float) and (value in (0, 1) or value != value):  # NaN
        return float(value)
    raise ValueError(f"found {shown(value)}, wanted true or false")


def check_columns(columns: Sequence[str], features: Sequence[Feature]) -> list[str]:
    """The names of the inputs that a step with columns has: one for each feature.

    Raises:
        ValueError: the columns are not the features, or one that may be left out has no default.
    """
    names, optional = [], set()
    for column in columns:
        name, _, more = column.rpartition(" ")
        if more == "optional":
            name = name.rpartition(" ")[0]
            optional.add(name)
        names.append(name)
    features_of_file = {feature.name for feature in features}
    for name in names:
        if name not in features_of_file:
            raise ValueError(f"parameter columns: {shown(name)} is not a feature of the file")
    for feature in features:
        if feature.name not in names and feature.default is None:
            raise ValueError(
                f"parameter columns: {shown(feature.name)} is not among them, and the feature has no default"
            )
        if feature.name in optional and feature.default is None:
            raise ValueError(f"parameter columns: {shown(feature.name)} is optional, and the feature has no default")
    return names


def assemble_columns(columns: Mapping[str, np.ndarray], features: Sequence[Feature], settings: Settings) -> np.ndarray:
    """The vectors of a request's columns, each [batch]: [batch, size], as those of equal records are.

    Raises:
        ValueError: there is no column, or a value is not of its feature's kind; says which.
    """
    if not columns:
        raise ValueError("the request has no columns, wanted at least one")
    values = {name: column.tolist() for name, column in columns.items()}
    count = len(next(iter(values.values())))
    rows = np.empty((count, settings.size), dtype=np.float64)
    for item in range(count):
        try:
            rows[item] = _row({name: _text(name, column[item]) for name, column in values.items()}, features, settings)
        except ValueError as error:
            raise ValueError(f"item {item}{error}") from None
    return _scaled(rows, features, DTYPES[settings.dtype])


def _text(name: str, value: Any) -> Any:
    """A value of a column; bytes are text."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f", column {shown(name)}: not valid UTF-8 at byte {error.start}") from None


def assemble(records: Sequence[bytes], features: Sequence[Feature], settings: Settings) -> np.ndarray:
    """The vectors of records, [batch, size].

    Raises:
        ValueError: a record that is not a JSON object of these features; says which, and the column.
    """
    rows = np.empty((len(records), settings.size), dtype=np.float64)
    names = {feature.name for feature in features} if settings.unknown_keys == "error" else None
    for item, data in enumerate(records):
        try:
            if len(data) > settings.max_bytes:
                raise ValueError(
                    f": the record has {len(data)} bytes; at most {settings.max_bytes} are taken (parameter max_bytes)"
                )
            rows[item] = _row(_read(data, names), features, settings)
        except ValueError as error:
            raise ValueError(f"item {item}{error}") from None
    return _scaled(rows, features, DTYPES[settings.dtype])


def _scaled(rows: np.ndarray, features: Sequence[Feature], dtype: type) -> np.ndarray:
    """Rows [batch, size] after scaling, in place, as this type."""
    widths = [feature.width for feature in features]
    with np.errstate(over="ignore"):
        rows -= np.repeat([feature.offset for feature in features], widths)
        rows /= np.repeat([feature.divisor for feature in features], widths)
        vectors: np.ndarray = rows.astype(dtype)
    if np.isinf(vectors).any():
        item, place = np.argwhere(np.isinf(vectors))[0].tolist()
        name = np.repeat([shown(feature.name) for feature in features], widths)[place]
        kind = f"FP{8 * vectors.itemsize}"
        raise ValueError(f"item {item}, column {name}: the scaled value {rows[item, place]:g} is too large for {kind}")
    return vectors


def _read(data: bytes, names: set[str] | None) -> dict[str, Any]:
    """A record's columns, `names` alone where they are given; a ValueError's message goes after the item's number."""
    try:
        record = json.loads(data.decode(), object_pairs_hook=columns_of)
    except UnicodeDecodeError as error:
        raise ValueError(f": not valid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f": not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise ValueError(": lists or objects lie in each other too deep, wanted an object of plain values") from None
    except Twice as error:
        raise ValueError(f", column {shown(error.args[0])}: it is there twice, wanted one value") from None
    except ValueError:
        raise ValueError(": not JSON that can be read: an integer has too many digits") from None
    if not isinstance(record, dict):
        raise ValueError(f": found {shown(record)}, wanted a JSON object")
    for key in record:
        if names is not None and key not in names:
            raise ValueError(f", column {shown(key)}: it is not a feature; `unknown_keys: ignore` leaves it out")
    return record


class Twice(Exception):
    """An object has a key twice; the first argument is the key."""


def columns_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; raises Twice if a key repeats."""
    columns = dict(pairs)
    if len(columns) < len(pairs):
        raise Twice(next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1))
    return columns


def _row(record: Mapping[str, Any], features: Sequence[Feature], settings: Settings) -> list[float]:
    row: list[float] = []
    for feature in features:
        try:
            row += feature.numbers(_value(record.get(feature.name), feature, settings.nan))
        except ValueError as error:
            raise ValueError(f", column {shown(feature.name)}: {error}") from None
    return row


def _value(value: Any, feature: Feature, nan: str) -> Any:
    """The record's value, or the default where it has none."""
    if isinstance(value, float) and math.isnan(value) and nan != "keep":
        if nan == "error":
            raise ValueError("found NaN, wanted a value; the parameter `nan` may let it pass")
        value = None
    if value is None:
        if feature.default is None:
            raise ValueError("it is missing or null, and the feature has no default")
        return feature.default
    return value
