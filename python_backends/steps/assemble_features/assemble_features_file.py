"""The file that lists a table's features, in YAML or JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assemble_features_core import KINDS, Feature, Twice, category_key, columns_of, shown

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {
    "number": ("default", "scale"),
    "bool": ("default",),
    "one_hot": ("default", "categories", "unknown"),
    "index": ("default", "categories", "unknown"),
}
SCALES = ({"mean", "std"}, {"min", "max"})


def read_features(path: Path, size: int) -> list[Feature]:
    """The features of a file, in its order.

    Raises:
        ValueError: the file is not a list of features, or these make another number of numbers than `size`.
    """
    entries = _parsed(path)
    if isinstance(entries, dict) and list(entries) == ["features"]:
        entries = entries["features"]
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: wanted a list of features, each with a name")
    features: list[Feature] = []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name") if isinstance(entry, dict) else None
        where = f"{path}: feature {number}" + (f" ({shown(name)})" if isinstance(name, str) else "")
        try:
            features.append(_feature(entry))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if name in [feature.name for feature in features[:-1]]:
            raise ValueError(f"{where}: the name is there twice")
    length = sum(feature.width for feature in features)
    if length != size:
        raise ValueError(f"parameter size: found {size}, wanted {length}, the numbers that the features of {path} make")
    return features


def _parsed(path: Path) -> Any:
    try:
        text = path.read_bytes().decode()
        if path.suffix == ".json":
            return json.loads(text, object_pairs_hook=columns_of)
        if path.suffix in (".yaml", ".yml"):
            return _yaml(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    except Twice as error:
        raise ValueError(f"{path}: the key {shown(error.args[0])} is there twice in one object") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    raise ValueError(f"parameter features: found {path.name}, wanted a file .yaml, .yml or .json")


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ValueError("this server's Python has no PyYAML; write the file as JSON") from None

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
            """Check the keys that are written, before those of merged mappings (<<) join them."""
            node = super().compose_mapping_node(anchor)
            columns_of([(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
            return node

    try:
        return yaml.load(text, Loader)  # noqa: S506 # nosec B506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _feature(entry: Any) -> Feature:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError("wanted an object with a name, which is text")
    kind = entry.get("kind", "number")
    if kind not in KINDS:
        raise ValueError(f"kind: found {shown(kind)}, wanted one of {', '.join(KINDS)}")
    for field in entry:
        if field not in ("name", "kind", *FIELDS[kind]):
            raise ValueError(f"{field}: kind {kind} has no such field, only {', '.join(FIELDS[kind])}")
    offset, divisor = _scale(entry.get("scale"))
    feature = Feature(entry["name"], kind, entry.get("default"), offset=offset, divisor=divisor)
    if "categories" in FIELDS[kind]:
        categories, unknown = _categories(entry.get("categories")), _unknown(entry.get("unknown", "error"), kind)
        feature = replace(feature, categories=categories, strict=unknown is None, unknown=unknown or 0.0)
    if feature.default is not None:
        try:
            feature.numbers(feature.default)
        except ValueError as error:
            raise ValueError(f"default: {error}") from None
    return feature


def _scale(scale: Any) -> tuple[float, float]:
    """The offset to subtract, and then the divisor."""
    if scale is None:
        return 0.0, 1.0
    if not isinstance(scale, dict) or set(scale) not in SCALES:
        raise ValueError("scale: wanted {mean, std} or {min, max}")
    numbers = {}
    for name, value in scale.items():
        try:
            numbers[name] = Feature(name).numbers(value)[0]
        except ValueError as error:
            raise ValueError(f"scale, {name}: {error}") from None
    if "std" in numbers:
        offset, divisor, last, expected = numbers["mean"], numbers["std"], "std", "more than 0"
    else:
        offset, divisor, last, expected = numbers["min"], numbers["max"] - numbers["min"], "max", "more than min"
    if math.isnan(offset) or not 0 < divisor < math.inf:
        raise ValueError(f"scale, {last}: found {shown(scale[last])}, wanted {expected}, and no NaN")
    return offset, divisor


def _categories(categories: Any) -> dict[tuple[bool, Any], int]:
    if not isinstance(categories, list) or not categories:
        raise ValueError("categories: wanted a list of at least one")
    places: dict[tuple[bool, Any], int] = {}
    for place, category in enumerate(categories):
        if not isinstance(category, str | int | float) or category != category:
            raise ValueError(f"categories: found {shown(category)}, wanted text, numbers, true or false; quote text")
        if places.setdefault(category_key(category), place) != place:
            raise ValueError(f"categories: {shown(category)} is there twice")
    return places


def _unknown(unknown: Any, kind: str) -> float | None:
    """The number of an unknown category; None refuses it."""
    if unknown == "error":
        return None
    if kind == "one_hot":
        if unknown == "zeros":
            return 0.0
        raise ValueError(f"unknown: found {shown(unknown)}, wanted error or zeros")
    try:
        return Feature("unknown").numbers(unknown)[0]
    except ValueError as error:
        raise ValueError(f"unknown: {error}, or error") from None
