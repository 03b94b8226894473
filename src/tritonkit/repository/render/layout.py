"""The layout of `config.pbtxt`: a message in protobuf's text format, with its fields in reading order.

Protobuf prints the values. Its own layout puts `backend` last, omits `max_batch_size: 0` and takes eight lines for one
tensor, so this module puts the lines together.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

__all__ = ["is_map", "is_repeated", "write"]

_WIDTH = 100
_FIRST = ("name", "backend", "platform", "max_batch_size", "input", "output", "batch_input", "batch_output")
_LAST = ("parameters",)
_SHOWN = ("max_batch_size", "max_queue_delay_microseconds", "graphs", "batch_size")
"""Fields that are written even at 0 or false, because that is a decision."""


def write(message: Any) -> str:
    """The text of a message. A part that fits takes one line; other parts take a line for each of their fields."""
    return "".join(f"{line}\n" for line in _lines(message))


def is_map(field: Any) -> bool:
    """Whether a field of a descriptor is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    """Whether a field of a descriptor is a list or a map."""
    # protobuf 6 warns about `label`; earlier releases have nothing else.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _lines(message: Any) -> list[str]:
    return [line for field in sorted(_written(message), key=_place) for line in _field(message, field)]


def _written(message: Any) -> Iterator[Any]:
    present = {field.name for field, _ in message.ListFields()}
    return (field for field in message.DESCRIPTOR.fields if field.name in present or field.name in _SHOWN)


def _place(field: Any) -> tuple[int, int]:
    """The position of a field: `_FIRST`, the schema's order, `_LAST`; these names stand only in `ModelConfig`."""
    if field.containing_type.name != "ModelConfig":
        return (0, field.number)
    if field.name in _FIRST:
        return (0, _FIRST.index(field.name))
    return (2 if field.name in _LAST else 1, field.number)


def _field(message: Any, field: Any) -> Iterator[str]:
    value = getattr(message, field.name)
    if is_map(field):
        entries = field.message_type.fields_by_name
        for key in sorted(value):
            inner = [_scalar(entries["key"], key), *_element(entries["value"], value[key])]
            yield from _block(field.name, inner)
    elif field.message_type is not None:
        for one in value if is_repeated(field) else [value]:
            yield from _element(field, one)
    elif is_repeated(field) and field.cpp_type != field.CPPTYPE_STRING:
        numbers = [_scalar(field, one).partition(": ")[2] for one in value]
        yield f"{field.name}: [{', '.join(numbers)}]"
    else:
        yield from (_scalar(field, one) for one in (value if is_repeated(field) else [value]))


def _element(field: Any, value: Any) -> list[str]:
    return [_scalar(field, value)] if field.message_type is None else _block(field.name, _lines(value))


def _block(name: str, inner: list[str]) -> list[str]:
    line = f"{name} {{ {' '.join([*inner, ''])}}}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{name} {{", *(f"  {part}" for part in inner), "}"]


def _scalar(field: Any, value: Any) -> str:
    from google.protobuf import text_format

    printed = StringIO()
    text_format.PrintFieldValue(field, value, printed, as_utf8=True)
    return f"{field.name}: {printed.getvalue()}"
