"""Cost of each filter, test, method and operator of a chat template, paid before it runs.

Operations that have no price here cannot be used, so that none is free by oversight.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.tests import TESTS
from jinja2.utils import _PassArg
from llm_budget import DEEPEST, Budget, current

if TYPE_CHECKING:
    from jinja2.runtime import Context

Price = Callable[[Budget, Any, Sequence[Any], Mapping[str, Any]], Any]
"""Pays for a value and its arguments, and returns the value on which the operation then works."""

MOST_BITS = 4096
_MOST_PRECISION = 100
_WIDTH_DIGITS = 4
_PIECE_BYTES = 64
"""Bytes of a short text in a list."""
_COMPARED_PER_BYTE = 16
"""Number of characters that are compared in the time that copying one takes, roughly."""
_WIDTH = re.compile(r"%[-#0 +]*(\*|\d*)(?:\.(\*|\d*))?")
NUMBER = re.compile(r"\d+")
_WORD, _LINE = re.compile(r"\S+"), re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def free(_budget: Budget, value: Any, _args: Sequence[Any], _named: Mapping[str, Any]) -> Any:
    """No cost beyond the step itself."""
    return value


def text(budget: Budget, value: Any, _args: Sequence[Any], _named: Mapping[str, Any]) -> Any:
    """Cost of reading a value once with all its contents."""
    budget.read(value)
    return value


def items(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of looking at each item, with the arguments."""
    value = budget.items(value)
    count = len(value) if hasattr(type(value), "__len__") else 0
    for argument in (*args, *named.values()):
        budget.read(argument, times=max(count, 1))
    return value


def ordered(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of comparing items with each other; a sort compares each item about twenty times."""
    value = items(budget, value, args, named)
    budget.read(value, times=20)
    return value


def _numbers(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of a sum, which copies lists again for each item."""
    value = items(budget, value, args, named)
    if "attribute" in named or args or named.get("start", 0) != 0:
        raise SecurityError("sum: it adds up plain numbers here")
    if any(not isinstance(argument, int | float) for argument in value):
        raise SecurityError("sum: it adds up plain numbers here")
    return value


def _wide(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of an operation whose first argument is a width."""
    width = args[0] if args else named.get("width", 80)
    budget.read(value)
    budget.take(4 * width if isinstance(width, int) and width > 0 else 0)
    return value


def _indented(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    width = args[0] if args else named.get("width", 4)
    budget.read(value)
    lines = 1 + _count(_LINE, value)
    budget.take(lines * (_PIECE_BYTES + 4 * (len(width) if isinstance(width, str) else _whole(width))))
    return value


def _replaced(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of replacing text, as a filter or a method: the text to find, and the text in its place."""
    old, new = [*args, *(named[key] for key in ("old", "new") if key in named), "", ""][:2]
    for text in (value, old, new):
        budget.read(text)
    written = str(value)
    budget.take(4 * len(str(new)) * (written.count(str(old)) if str(old) else len(written) + 1))
    return value


def _joined(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of the filter `join`: the values, and the text between them."""
    value = items(budget, value, args, named)
    budget.read(value)
    return value


def written(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of JSON: each value with the text between values, and its indentation if there is any."""
    before = budget.steps
    budget.read(value)
    values = before - budget.steps
    indent = args[1] if len(args) > 1 else named.get("indent")
    width = len(indent) if isinstance(indent, str) else _whole(indent)
    budget.take(4 * width * values * min(values, DEEPEST))
    for argument in (*args, *named.values()):
        budget.read(argument, times=values + 1)
    return value


def _rounded(_budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    precision = args[0] if args else named.get("precision", 0)
    if not isinstance(precision, int) or abs(precision) > _MOST_PRECISION:
        raise SecurityError("round: that precision is not offered here")
    return value


def _parsed(budget: Budget, value: Any, _args: Sequence[Any], _named: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and len(value) > MOST_BITS // 4:
        raise SecurityError("int: a number of that many digits is not offered here")
    budget.read(value)
    return value


def checked_width(width: str) -> int:
    """A width or a precision of a format, as a number."""
    if width == "*" or len(width) > _WIDTH_DIGITS:
        raise SecurityError("format: that width is not offered here")
    return int(width or 0)


def _printed(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of `"%5s" % x`, also as a filter: each place may take all arguments, and widths are paid."""
    budget.read(value)
    form = str(value)
    # A name may hold parentheses, so only Python knows where a width begins after one.
    widths = NUMBER.findall(form) if "%(" in form else chain(*_WIDTH.findall(form))
    places = form.count("%")
    budget.take(places * 4 * max(map(checked_width, widths), default=0))
    for argument in (*args, *named.values()):
        budget.read(argument, times=max(places, 1))
    return value


def _stripped(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of comparing each character with each of the argument."""
    characters = [*args, named.get("chars")][0]
    budget.read(value)
    if isinstance(value, str) and isinstance(characters, str):
        budget.take(len(value) * len(characters) // _COMPARED_PER_BYTE)
    return value


_FILTERS: dict[str, Price] = {
    **dict.fromkeys(("abs", "attr", "count", "d", "default", "first", "last", "length", "random"), free),
    **dict.fromkeys(
        ("capitalize", "float", "items", "lower", "string", "title", "truncate", "upper", "urlencode"), text
    ),
    **dict.fromkeys(("list", "map", "reject", "rejectattr", "reverse", "select", "selectattr"), items),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort", "unique"), ordered),
    "center": _wide,
    "format": _printed,
    "indent": _indented,
    "int": _parsed,
    "join": _joined,
    "replace": _replaced,
    "round": _rounded,
    "sum": _numbers,
    "trim": _stripped,
}
_COMPARING = (
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "eq",
    "equalto",
    "ge",
    "greaterthan",
    "gt",
    "le",
    "lessthan",
    "lt",
    "ne",
)
_LINEAR = (
    "capitalize",
    "casefold",
    "count",
    "find",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "lower",
    "partition",
    "swapcase",
    "title",
    "upper",
)
_AT_ENDS = ("endswith", "removeprefix", "removesuffix", "startswith")


def _cut(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Cost of splitting into pieces, each a text."""
    at = [*args, named.get("sep")][0]
    pieces = value.count(at) if isinstance(at, str) and at else _count(_WORD, value)
    budget.take(_PIECE_BYTES * (pieces + 1))
    budget.read(value)
    return _stripped(budget, value, args, named)


def _lines(budget: Budget, value: Any, _args: Sequence[Any], _named: Mapping[str, Any]) -> Any:
    budget.read(value)
    budget.take(_PIECE_BYTES * (1 + _count(_LINE, value)))
    return value


def _expanded(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    size = _whole([*args, named.get("tabsize", 8)][0])
    budget.take(4 * (len(value) + value.count("\t") * size))
    return value


def _looked_up(budget: Budget, value: Any, args: Sequence[Any], _named: Mapping[str, Any]) -> Any:
    if args:
        budget.read(args[0])
    return value


METHODS: dict[tuple[type, str], Price] = {
    **{(str, name): text for name in _LINEAR},
    **{(str, name): free for name in _AT_ENDS},
    **{(str, name): _stripped for name in ("lstrip", "rfind", "rindex", "rpartition", "rstrip", "strip")},
    **{(str, name): _cut for name in ("rsplit", "split")},
    (str, "join"): free,
    **{(str, name): _wide for name in ("center", "ljust", "rjust", "zfill")},
    (str, "expandtabs"): _expanded,
    (str, "replace"): _replaced,
    (str, "splitlines"): _lines,
    **{(dict, name): free for name in ("items", "keys", "values")},
    (dict, "get"): _looked_up,
    **{(kind, name): text for kind in (list, tuple) for name in ("count", "index")},
    **{(kind, "copy"): text for kind in (list, dict)},
    (int, "bit_length"): free,
    (float, "is_integer"): free,
}
"""Methods by type and name. The values that `str.join` takes are paid where it is called; `str.format` pays by
itself."""


def offered_filters(more: Mapping[str, tuple[Price, Callable[..., Any]]]) -> dict[str, Any]:
    """Jinja's filters that have a price, and others."""
    own = {name: (price, FILTERS[name]) for name, price in _FILTERS.items()}
    return {name: paid(*entry) for name, entry in {**own, **more}.items()}


def offered_tests() -> dict[str, Any]:
    """Jinja's tests: those that compare pay for both sides, all others for the value."""
    prices = {**dict.fromkeys(_COMPARING, _both), **dict.fromkeys(("lower", "upper"), text)}
    tests = {name: paid(prices.get(name, free), test) for name, test in TESTS.items()}
    return {**tests, "in": pass_context(_is_in)}


def _is_in(_context: Context, value: Any, values: Any) -> bool:
    """Jinja's test `in`."""
    return bool(compared(current(), value, "in", values))


def _both(budget: Budget, value: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The cost of a test that compares a value with its argument."""
    for side in (value, *args, *named.values()):
        budget.read(side)
    return value


def paid(price: Price, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that pays first. It takes the context, so Jinja never runs it during compilation."""
    first = {
        _PassArg.context: lambda context: context,
        _PassArg.eval_context: lambda context: context.eval_ctx,
        _PassArg.environment: lambda context: context.environment,
    }.get(_PassArg.from_obj(function))  # type: ignore[arg-type]  # the same for a function without any

    @pass_context
    def paying(context: Context, value: Any, *args: Any, **named: Any) -> Any:
        budget = current()
        budget.step(2 + len(args) + len(named))
        value = price(budget, value, args, named)
        result = function(*([first(context)] if first else []), value, *args, **named)
        if isinstance(result, GeneratorType):
            # One that reads from another would make Python's stack as deep as a template likes.
            result = iter(budget.items(result))
        if result is not value:
            budget.hold(result)
        return result

    return paying


def compared(budget: Budget, left: Any, name: str, right: Any) -> Any:
    """One comparison, by Jinja's name for it."""
    budget.step()
    inside = name in ("in", "notin")
    right = budget.listed(right) if inside else right
    if not (inside and isinstance(right, dict)):
        budget.read(right)
    if not isinstance(left, str) or inside:
        budget.read(left)
    return _COMPARISONS[name](left, right)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


def pay_operator(budget: Budget, sign: str, left: Any, right: Any) -> None:
    """Pay for `left sign right`, whose result is no larger than what is paid here, or than both."""
    budget.step()
    if sign == "%" and isinstance(left, str):
        _printed(budget, left, (right,), {})
    elif sign == "*" and not (_is_number(left) and _is_number(right)):
        value, times = (left, right) if hasattr(type(left), "__len__") else (right, left)
        budget.take(8 * len(value) * _whole(times) if hasattr(type(value), "__len__") else 0)
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length()
        if sign == "**":
            bits = max(left.bit_length(), 1) * abs(right)
        if bits > MOST_BITS:
            raise SecurityError(f"numbers of more than {MOST_BITS} bits are not offered here")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _whole(value: Any) -> int:
    """A count or width; 0 for a value that is not a number, which Python then refuses."""
    return value if isinstance(value, int) and value > 0 else 0


def _count(pattern: re.Pattern[str], value: Any) -> int:
    return sum(1 for _ in pattern.finditer(value)) if isinstance(value, str) else 0
