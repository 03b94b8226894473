"""Commands made from settings: a function takes settings, and each of their fields is an option of its command.

A parameter that is annotated with a dataclass stands for the fields of it that have an `Option`. The function gets an
instance, or for `partial[Settings]` a constructor that still needs the fields without one.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from functools import partial, wraps
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from tritonkit.cli.completion import complete_address, complete_model, complete_variants
from tritonkit.cli.options import rate_per_s, seconds
from tritonkit.option import Option

__all__ = ["as_text", "command_line", "expanded"]


class _Running(NamedTuple):
    """The running command: its words, its parameters, and the value of each."""

    words: str
    parameters: Mapping[str, inspect.Parameter]
    values: Mapping[str, Any]


_COMPLETED: dict[str | None, Callable[[str], list[str]]] = {
    "model": complete_model,
    "variants": complete_variants,
    "address": complete_address,
}
_running: ContextVar[_Running] = ContextVar("_running")


def expanded(words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function's command an option for each field of the settings that it takes.

    Args:
        words: the command after `tritonkit`, such as `keys add`.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters: dict[str, inspect.Parameter] = {}
        makers: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            is_partial = get_origin(parameter.annotation) is partial
            settings = get_args(parameter.annotation)[0] if is_partial else parameter.annotation
            if dataclasses.is_dataclass(settings):
                options = _fields(settings)
                parameters |= {option.name: option.parameter() for option in options}
                makers[name] = partial(_made, settings, options, is_partial)
            else:
                parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                makers[name] = partial(_value, name)

        @wraps(function)
        def command(**arguments: Any) -> None:
            values = {name: parameter.default for name, parameter in parameters.items()} | arguments
            token = _running.set(_Running(words, parameters, values))
            try:
                function(**{name: make(values) for name, make in makers.items()})
            finally:
                _running.reset(token)

        command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        del command.__wrapped__  # its signature is not that of the command
        return command

    return decorate


def command_line(**changes: Any) -> list[str]:
    """The words after `tritonkit` that start the running command again with the same values.

    Args:
        changes: other values of its parameters.
    """
    running = _running.get()
    arguments: list[str] = []
    options: list[str] = []
    for name, parameter in running.parameters.items():
        value = {**running.values, **changes}[name]
        if value is not None and value != parameter.default:
            info = get_args(parameter.annotation)[1]
            words = _texts(value) if isinstance(info, ArgumentInfo) else _option_words(name, info, value)
            (arguments if isinstance(info, ArgumentInfo) else options).extend(words)
    return [*running.words.split(), *arguments, *options]


def _option_words(name: str, info: Any, value: Any) -> Iterator[str]:
    """An option with its value, or once with each of its values."""
    names = (info.default, *(info.param_decls or ()))  # Typer takes the first of them for a default
    declared = next((word for word in names if str(word).startswith("--")), f"--{name.replace('_', '-')}")
    positive, _, negative = declared.partition("/")
    if isinstance(value, bool):
        yield positive if value else negative or f"--no-{positive[2:]}"
        return
    if isinstance(value, float) and info.metavar == "TIME":
        value = as_text(value)
    for text in _texts(value):
        yield from (f"{positive}={text}",) if text.startswith("-") else (positive, text)


def _texts(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list | tuple) else (value,):
        yield str(item.value if isinstance(item, Enum) else item)


class _Field(NamedTuple):
    """A field of settings that has an option."""

    name: str
    kind: Any
    default: Any
    option: Option

    @property
    def is_many(self) -> bool:
        """Whether the option may be repeated."""
        return any(get_origin(kind) in (tuple, Sequence) for kind in (self.kind, *get_args(self.kind)))

    def parameter(self) -> inspect.Parameter:
        """The parameter of a command that Typer reads."""
        option, default = self.option, self.default
        kind: Any = self.kind
        if self.is_many:
            is_required = default is inspect.Parameter.empty
            kind, default = (list[str], default) if is_required else (list[str] | None, None)
        elif option.unit is not None:
            kind = str | None if default is None else str
            default = default if default in (None, inspect.Parameter.empty) else as_text(default)
        name = f"--{self.name.replace('_', '-')}"
        declared = option.name or (f"{name}/--no-{name[2:]}" if default is True else name)
        bounds: dict[str, Any] = {} if option.unit else {"min": option.min, "max": option.max}
        info = typer.Option(
            declared,
            help=option.help,
            metavar=option.metavar,
            envvar=option.environment,
            autocompletion=_COMPLETED.get(option.completes),
            **bounds,
        )
        annotated: Any = Annotated
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotated[kind, info]
        )

    def read(self, value: Any) -> Any:
        """The value for the settings, converted from the one that the command was given."""
        if self.is_many:
            return tuple(value) if value else self.default
        if not isinstance(value, str) or self.option.unit is None:
            return value
        if self.option.unit == "rate":
            return rate_per_s(value)
        return seconds(self.option.name or f"--{self.name.replace('_', '-')}", value, self.option.min or 0.0)


class _Names(ChainMap[str, Any]):
    """The names of a module; those that it imports for type checkers alone stand for a class, as they are not used."""

    def __missing__(self, name: str) -> Any:
        return _Unknown


class _Unknown:
    def __class_getitem__(cls, item: object) -> type[_Unknown]:
        return cls


def _fields(settings: Any) -> list[_Field]:
    names = _Names(*(vars(sys.modules[base.__module__]) for base in settings.__mro__))  # builtins are object's
    hints = get_type_hints(settings, localns=names, include_extras=True)
    fields = []
    for field in dataclasses.fields(settings):
        kind, *extras = get_args(hints[field.name]) if get_origin(hints[field.name]) is Annotated else (None,)
        for option in extras:
            if isinstance(option, Option):
                default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
                fields.append(_Field(field.name, kind, default, option))
    return fields


def _made(settings: Any, options: Sequence[_Field], is_partial: bool, values: Mapping[str, Any]) -> Any:
    made = {option.name: option.read(values[option.name]) for option in options}
    return partial(settings, **made) if is_partial else settings(**made)


def _value(name: str, values: Mapping[str, Any]) -> Any:
    return values[name]


def as_text(time_s: float) -> str:
    """Seconds as people write a time: 600 as 10min, 0.05 as 50ms."""
    for unit, size in (("min", 60), ("s", 1), ("ms", 1e-3)):
        if time_s >= size and (time_s / size).is_integer():
            return f"{time_s / size:g}{unit}"
    return f"{time_s * 1e6:g}us"
