"""Jinja's sandbox for chat templates, in which everything that a template does is paid from a budget.

The template's tree is changed before it is compiled. Operations that make or read values become filters that pay first,
and each body of a loop or macro begins with its own payment. Jinja runs none of these while it compiles.
"""

from __future__ import annotations

import json
from datetime import datetime
from types import BuiltinMethodType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import BlockReference, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter, safe_range
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer
from llm_budget import current
from llm_prices import (
    METHODS,
    MOST_BITS,
    NUMBER,
    checked_width,
    compared,
    offered_filters,
    offered_tests,
    pay_operator,
    text,
    written,
)
from markupsafe import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jinja2.parser import Parser
    from jinja2.runtime import Context

_NODES_PER_STEP = 8
_CALL_STEPS = 4
_LONGEST_DATE = 100
# No template can write these names of filters: they have spaces.
_BODY, _COMPARE, _CONCAT = "begin body", "compare values", "concat values"
_HASHED, _SLICE, _TEXT = "hashed value", "slice value", "text of value"


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment whose templates can only be rendered within a budget."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation], optimized=False)
        self.globals = {
            "cycler": Cycler,
            "dict": dict,
            "joiner": Joiner,
            "namespace": _Namespace,
            "range": safe_range,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        escaped = (text, lambda value: str(escape(value)))
        own = {"e": escaped, "escape": escaped, "safe": (text, str), "tojson": (written, _tojson)}
        self.filters = offered_filters(own) | _TREE
        self.tests = offered_tests()

    def tree_of(self, source: str) -> nodes.Template:
        """The tree of a template's text, with all its payments."""
        tree = _Paying(self).visit(self.parse(source))
        assert isinstance(tree, nodes.Template)  # noqa: S101  for the type
        return tree

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Output of a macro or a block, as one text."""
        pieces = list(pieces)
        current().take(sum(map(len, pieces)))
        whole = "".join(pieces)
        current().hold(whole)
        return whole

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """One operator's result, paid before and after."""
        budget = current()
        pay_operator(budget, operator, left, right)
        result = super().call_binop(context, operator, left, right)
        budget.hold(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item, whose key Python reads completely."""
        if not isinstance(argument, str | int):
            current().read(argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call an object whose cost is known; refuse all others."""
        budget = current()
        budget.step(_CALL_STEPS + len(args) + len(kwargs))
        args = tuple(budget.listed(value) for value in args)
        _pay_call(__obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        if result is not getattr(__obj, "__self__", None):
            budget.hold(result)
        return result

    def wrap_str_format(self, value: Any) -> Any:
        """`str.format` and `str.format_map`, for which each field is paid."""
        if super().wrap_str_format(value) is None:
            return None
        return _Format(self, str(value.__self__), value.__name__)


class _Format:
    """A text's `format` or `format_map`."""

    def __init__(self, environment: Sandbox, form: str, name: str) -> None:
        self._formatter = _Formatter(environment)
        self._form = form
        self._of_map = name == "format_map"

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        current().read(self._form)
        if self._of_map:
            return self._formatter.vformat(self._form, (), args[0])
        return self._formatter.vformat(self._form, args, kwargs)


class _Formatter(SandboxedFormatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        current().read(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        current().step()
        current().take(4 * sum(checked_width(width) for width in NUMBER.findall(format_spec)))
        return super().format_field(value, format_spec)


class _Namespace(Namespace):
    """Jinja's method, without the names that have a meaning for Python, as in transformers."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with _, such as {name[:40]!r}")


class _Generation(Extension):
    """`{% generation %}`, which marks answers for training in templates; here it is only a scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """The tag's body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Paying(NodeTransformer):
    """A template's tree with its payments."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment

    def _filter(self, name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno, environment=self._environment)

    def _const(self, value: Any, line: int) -> nodes.Const:
        return nodes.Const(value, lineno=line, environment=self._environment)

    def _body(self, node: Any) -> Any:
        """Make a body pay for all its nodes each time it is entered, even for branches that are not reached."""
        steps = 1 + _size(node) // _NODES_PER_STEP
        self.generic_visit(node)
        pays = self._filter(_BODY, self._const(steps, node.lineno))
        node.body.insert(0, nodes.ExprStmt(pays, lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _body  # noqa: N815  as Jinja names them

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """A loop, whose condition is tried for each item, too."""
        steps = 1 + _size(node) // _NODES_PER_STEP
        self._body(node)
        if node.test is not None:
            paid = self._filter(_BODY, self._const(steps, node.lineno))
            node.test = nodes.And(paid, node.test, lineno=node.lineno)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        """Turn written values into text."""
        self.generic_visit(node)
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else self._filter(_TEXT, part) for part in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """`a ~ b`."""
        self.generic_visit(node)
        return self._filter(_CONCAT, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """`a == b`; in a chain each value is paid separately, because some may never be computed."""
        self.generic_visit(node)
        if len(node.ops) == 1:
            operation = self._const(node.ops[0].op, node.lineno)
            return self._filter(_COMPARE, node.expr, operation, node.ops[0].expr)
        node.expr = self._filter(_HASHED, node.expr)
        for operand in node.ops:
            operand.expr = self._filter(_HASHED, operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """Pay for `a[b:c]`, which makes a copy."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        none = self._const(None, node.lineno)
        return self._filter(_SLICE, node.node, *(none if end is None else end for end in ends))

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        """A dictionary's key, which Python reads completely."""
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = self._filter(_HASHED, node.key)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        """A number that is written in the template itself."""
        if isinstance(node.value, int) and node.value.bit_length() > MOST_BITS:
            raise TemplateSyntaxError(f"a number of more than {MOST_BITS} bits", node.lineno)
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.Node) -> nodes.Node:
        """`{% autoescape %}`."""
        raise TemplateSyntaxError("chat templates have no autoescape: a prompt is not HTML", node.lineno)


def _size(node: nodes.Node) -> int:
    """The number of nodes in a part of a tree."""
    return sum(1 for _ in node.find_all(nodes.Node))


@pass_context
def _begin_body(_context: Context, steps: int) -> bool:
    current().step(steps)
    return True


@pass_context
def _concat_values(_context: Context, values: list[Any]) -> str:
    budget = current()
    for value in values:
        budget.read(value)
    result = "".join(map(str, values))
    budget.hold(result)
    return result


@pass_context
def _compare(_context: Context, left: Any, name: str, right: Any) -> Any:
    return compared(current(), left, name, right)


@pass_context
def _read(_context: Context, value: Any) -> Any:
    """A value that Python is about to read completely: to write, to compare or to look something up."""
    if not isinstance(value, str):
        current().read(value)
    return value


@pass_context
def _slice(_context: Context, value: Any, start: Any, stop: Any, step: Any) -> Any:
    result = value[start:stop:step]
    current().hold(result)
    return result


_TREE: dict[str, Any] = {
    _BODY: _begin_body,
    _COMPARE: _compare,
    _CONCAT: _concat_values,
    _HASHED: _read,
    _SLICE: _slice,
    _TEXT: _read,
}


def _pay_call(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Pay for a call.

    Raises:
        SecurityError: its cost is unknown.
    """
    budget = current()
    owner = getattr(function, "__self__", None)
    if isinstance(function, BuiltinMethodType):
        price = METHODS.get((type(owner), function.__name__))
        if price is None:
            raise _refused(function)
        price(budget, owner, args, named)
        if function.__name__ == "join":
            _pay_join(owner, args)
    elif not isinstance(function, Macro | LoopContext | BlockReference | Joiner | _Format | Undefined):
        is_priced = function in _FUNCTIONS if isinstance(function, type | FunctionType) else False
        if not is_priced and not isinstance(owner, LoopContext | Cycler):
            raise _refused(function)
        for value in (*args, *named.values()):
            budget.read(value)


def _pay_join(between: str, args: Sequence[Any]) -> None:
    for values in args:
        budget = current()
        budget.read(values)
        budget.take(4 * len(between) * (len(values) if hasattr(type(values), "__len__") else 0))


def _refused(function: Any) -> SecurityError:
    name = getattr(function, "__name__", type(function).__name__)
    return SecurityError(f"chat templates cannot call {name!r} here")


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter would write `<` as for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _LONGEST_DATE:
        raise SecurityError(f"strftime_now: a format of more than {_LONGEST_DATE} characters")
    return datetime.now().astimezone().strftime(form)


_FUNCTIONS = {Cycler, dict, Joiner, _Namespace, safe_range, _raise_exception, _strftime_now}
