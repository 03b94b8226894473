"""Two protobuf messages compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["first_difference", "is_map", "is_repeated"]

_ABSENT = "nothing"


def first_difference(text: Any, spec: Any) -> str | None:
    """The first field in which two messages of one type differ, or None.

    Says `dynamic_batching.max_queue_delay_microseconds: text says 500, the spec asks for 2000`.
    An empty message and none at all are different: `dynamic_batching { }` turns batching on.
    """
    # Almost every text is as it should be, and protobuf itself sees that much sooner than the walk.
    return None if text == spec else next(_differences(text, spec, ""), None)


def _differences(text: Any, spec: Any, path: str) -> Iterator[str]:
    for field in text.DESCRIPTOR.fields:
        here = f"{path}.{field.name}" if path else field.name
        one, other = getattr(text, field.name), getattr(spec, field.name)
        if is_map(field):
            yield from _map_differences(field, one, other, here)
        elif is_repeated(field):
            yield from _list_differences(field, one, other, here)
        elif field.has_presence and text.HasField(field.name) != spec.HasField(field.name):
            said = [_shown(m, field) if m.HasField(field.name) else _ABSENT for m in (text, spec)]
            yield _say(here, *said)
        elif field.message_type is not None:
            yield from _differences(one, other, here)
        elif one != other:
            yield _say(here, _shown(text, field), _shown(spec, field))


def is_map(field: Any) -> bool:
    """Whether a field of a descriptor is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    """Whether a field of a descriptor is a list or a map."""
    # protobuf 6 warns about `label`; before it there is nothing else.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _map_differences(field: Any, text: Any, spec: Any, path: str) -> Iterator[str]:
    holds_messages = field.message_type.fields_by_name["value"].message_type is not None
    for key in sorted({*text, *spec}):
        here = f"{path}[{key!r}]"
        if (key in text) != (key in spec):
            yield _say(here, *(_brief(m[key]) if key in m else _ABSENT for m in (text, spec)))
        elif holds_messages:
            yield from _differences(text[key], spec[key], here)
        elif text[key] != spec[key]:
            yield _say(here, repr(text[key]), repr(spec[key]))


def _list_differences(field: Any, text: Any, spec: Any, path: str) -> Iterator[str]:
    if field.message_type is None:
        if list(text) != list(spec):
            yield _say(path, str(list(text)), str(list(spec)))
        return
    for index, (one, other) in enumerate(zip(text, spec, strict=False)):
        yield from _differences(one, other, f"{path}[{index}]")
    if len(text) != len(spec):
        yield _say(path, f"{len(text)} of them", f"{len(spec)}")


def _shown(message: Any, field: Any) -> str:
    """A field's value: names for enums, one line for messages."""
    value = getattr(message, field.name)
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    return _brief(value) if field.message_type is not None else repr(value)


def _brief(value: Any) -> str:
    return f"{{ {' '.join(str(value).split())} }}" if hasattr(value, "DESCRIPTOR") else repr(value)


def _say(path: str, text: str, spec: str) -> str:
    return f"{path}: text says {text}, the spec asks for {spec}"
