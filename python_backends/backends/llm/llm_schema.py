"""JSON schemas as grammars of the engine: every text of the grammar is JSON that satisfies the schema.

The grammar may allow less than the schema: an object has its declared members in their order and no others, so that no
member comes twice. A keyword that no grammar of bounded size can hold is refused by name, and never left out. The
engine compiles grammars between two steps, so their size is bounded here, and so is all that would make it slow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_BYTES = 1 << 16
DEEPEST = 32
MOST_RULES = 4096
MOST_CHARACTERS = 1 << 15
"""Most characters of a grammar; the engine compiles this many in a second where 150,000 tokens are masked."""
MOST_CHOICES = 512
"""Most values of one `enum`, and most numbers between `minimum` and `maximum`."""
MOST_ITEMS = 64
"""Most items that `minItems` or `maxItems` may count: each of them is a rule."""
_ANNOTATIONS = frozenset(
    ("$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "examples", "title")
)
_KEYWORDS: dict[str, frozenset[str]] = {
    "array": frozenset(("items", "maxItems", "minItems")),
    "boolean": frozenset(),
    "integer": frozenset(("exclusiveMinimum", "maximum", "minimum")),
    "null": frozenset(),
    "number": frozenset(("minimum",)),
    "object": frozenset(("additionalProperties", "properties", "required")),
    "string": frozenset(("minLength",)),
}
_PYTHON = {"array": list, "boolean": bool, "null": type(None), "object": dict, "string": str}
# The engine misreads alternatives with a common beginning, so none has one here.
# Repetitions of classes of characters are fast in the engine; those of alternatives take it seconds.
# Numbers have as many digits as every reader of JSON keeps.
_BASE = r"""
space ::= " "?
text ::= [^"\\\x00-\x1f]* ("\\" ["\\/bfnrt] [^"\\\x00-\x1f]*)*
string ::= "\"" text "\""
some ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt]) text "\""
natural ::= "0" | [1-9] [0-9]{0,14}
positive ::= [1-9] [0-9]{0,14}
integer ::= "-"? natural
amount ::= natural ("." [0-9]{1,15})? ([eE] [+-]? [0-9]{1,2})?
number ::= "-"? amount
boolean ::= "true" | "false"
null ::= "null"
object ::= "{" space members space "}"
members ::= member ("," space member)* | ""
member ::= string space ":" space any
array ::= "[" space items space "]"
items ::= any ("," space any)* | ""
any ::= object | array | string | number | boolean | null
"""


class SchemaError(Exception):
    """The schema cannot be held; the text says where and why."""


def grammar_of(schema: Any) -> str:
    """The grammar of one schema.

    Raises:
        SchemaError: the schema is wrong, too large, or has a keyword that no grammar holds.
    """
    grammar = Grammar()
    return grammar.written(grammar.add(schema))


def literal(text: str) -> str:
    """A text of the grammar that stands for itself."""
    escaped = "".join(_escaped(letter) for letter in text)
    return f'"{escaped}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter >= " " and letter != "\x7f" else f"\\x{ord(letter):02x}"


def check_bounds(value: Any, where: str) -> None:
    """Refuse a value of JSON that is too large or lies too deep.

    Raises:
        SchemaError: it does.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > 2 * DEEPEST:
            raise SchemaError(f"{where}: found more than {2 * DEEPEST} levels, wanted fewer")
        level = [part for item in level for part in _parts(item)]
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except ValueError:
        raise SchemaError(f"{where}: found half a character or a number that JSON lacks, wanted JSON") from None
    if size > MOST_BYTES:
        raise SchemaError(f"{where}: found {size} bytes, wanted at most {MOST_BYTES}")


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


class Grammar:
    """Rules of one grammar, to which schemas are added."""

    def __init__(self) -> None:
        self._rules: list[str] = []
        self._root: Any = None
        self._refs: dict[str, str] = {}
        self._same: dict[str, set[str]] = {}
        """References that stand for each other without a character between them."""

    def add(self, schema: Any, where: str = "schema") -> str:
        """The name of the rule that holds one schema.

        Raises:
            SchemaError: see `grammar_of`.
        """
        check_bounds(schema, where)
        self._root, self._refs, self._same = schema, {}, {}
        name = self._value(schema, where, 0, "")
        self._check_ends(where)
        return name

    def rule(self, body: str) -> str:
        """The name of a new rule."""
        name = self._reserve()
        self._rules[int(name[1:])] = body
        return name

    def written(self, root: str) -> str:
        """The whole grammar, which begins with this expression.

        Raises:
            SchemaError: it is too large.
        """
        rules = "".join(f"r{number} ::= {body}\n" for number, body in enumerate(self._rules))
        if len(rules) > MOST_CHARACTERS:
            raise SchemaError(f"schema: found a grammar of {len(rules)} characters, wanted at most {MOST_CHARACTERS}")
        return f"root ::= {root}\n{rules}{_BASE.lstrip()}"

    def _reserve(self) -> str:
        if len(self._rules) >= MOST_RULES:
            raise SchemaError(f"schema: found more than {MOST_RULES} parts, wanted fewer")
        self._rules.append("")
        return f"r{len(self._rules) - 1}"

    def _value(self, schema: Any, where: str, depth: int, owner: str) -> str:
        """The rule of a schema; `owner` is the reference that it stands for, if no character lies between."""
        if depth > DEEPEST:
            raise SchemaError(f"{where}: found more than {DEEPEST} levels, wanted fewer")
        if schema is True or schema == {}:
            return "any"
        if not isinstance(schema, dict):
            raise SchemaError(f"{where}: found {_kind(schema)}, wanted a schema that allows something")
        if "$ref" in schema:
            self._check(schema, where, {"$ref"})
            return self._reference(schema["$ref"], where, depth, owner)
        for keyword in ("anyOf", "allOf"):
            if keyword in schema:
                self._check(schema, where, {keyword})
                return self._alternatives(schema[keyword], keyword, where, depth, owner)
        if "enum" in schema or "const" in schema:
            return self._choices(schema, where)
        kinds = _kinds(schema, where)
        if kinds is None:
            self._check(schema, where, set())
            return "any"
        self._check(schema, where, {"type"}.union(*(_KEYWORDS[kind] for kind in kinds)))
        rules = [self._one(kind, schema, where, depth) for kind in kinds]
        return rules[0] if len(rules) == 1 else self.rule(" | ".join(rules))

    @staticmethod
    def _check(schema: Mapping[str, Any], where: str, known: set[str]) -> None:
        for name in schema:
            if name not in known and name not in _ANNOTATIONS:
                also = ", ".join(sorted(known)) or "an annotation"
                raise SchemaError(f"{where}: found {name[:64]!r}, which cannot be held here, wanted only {also}")

    def _reference(self, ref: Any, where: str, depth: int, owner: str) -> str:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise SchemaError(
                f"{where}.$ref: found {str(ref)[:64]!r}, wanted a place of the same schema, as #/$defs/name"
            )
        if owner:
            self._same.setdefault(owner, set()).add(ref)
        if ref not in self._refs:
            target = self._root
            for part in ref.split("/")[1:]:
                part = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, dict) or part not in target:
                    raise SchemaError(f"{where}.$ref: found {ref[:64]!r}, wanted a place of the same schema")
                target = target[part]
            name = self._refs[ref] = self._reserve()
            self._rules[int(name[1:])] = self._value(target, ref, depth + 1, ref)
        return self._refs[ref]

    def _check_ends(self, where: str) -> None:
        """Refuse references that stand for themselves."""
        for ref in self._same:
            left, seen = [ref], set()
            while left:
                for other in self._same.get(left.pop(), ()):
                    if other == ref:
                        raise SchemaError(f"{where}: found {ref[:64]!r}, which stands for itself, wanted a value")
                    if other not in seen:
                        seen.add(other)
                        left.append(other)

    def _alternatives(self, schemas: Any, keyword: str, where: str, depth: int, owner: str) -> str:
        if not isinstance(schemas, list) or not schemas or (keyword == "allOf" and len(schemas) > 1):
            wanted = "a list of schemas" if keyword == "anyOf" else "a list of one schema"
            raise SchemaError(f"{where}.{keyword}: found {_kind(schemas)}, wanted {wanted}")
        rules = [
            self._value(each, f"{where}.{keyword}.{number}", depth + 1, owner) for number, each in enumerate(schemas)
        ]
        return self.rule(" | ".join(rules))

    def _choices(self, schema: Mapping[str, Any], where: str) -> str:
        self._check(schema, where, {"const", "enum", "type"})
        values = schema.get("enum", [schema.get("const")])
        if not isinstance(values, list) or not 1 <= len(values) <= MOST_CHOICES:
            raise SchemaError(f"{where}.enum: found {_kind(values)}, wanted 1 to {MOST_CHOICES} values")
        if "enum" in schema and "const" in schema:
            raise SchemaError(f"{where}: found enum and const, wanted one of them")
        kinds = _kinds(schema, where)
        fitting = [value for value in values if kinds is None or any(_is(value, kind) for kind in kinds)]
        if not fitting:
            raise SchemaError(f"{where}.enum: found no value of the type, wanted at least one")
        return self.choice({json.dumps(value, ensure_ascii=False): "" for value in fitting})

    def choice(self, ends: Mapping[str, str]) -> str:
        """One of these texts, each with the rule that follows it, and a rule of its own wherever texts part."""
        parts: dict[str, dict[str, str]] = {}
        for text, end in ends.items():
            parts.setdefault(text[:1], {})[text] = end
        branches = []
        for begun in parts.values():
            shared = _shared(min(begun), max(begun))
            rests = {text[len(shared) :]: end for text, end in begun.items()}
            rest = rests[""] if len(rests) == 1 else self.choice(rests)
            branches.append(f"{literal(shared)} {rest}".rstrip())
        return self.rule(" | ".join(branches))

    def _one(self, kind: str, schema: Mapping[str, Any], where: str, depth: int) -> str:
        if kind == "object":
            return self._object(schema, where, depth)
        if kind == "array":
            return self._array(schema, where, depth)
        if kind == "string":
            return {0: "string", 1: "some"}[_whole(schema, "minLength", 0, 1, where)]
        return self._number(kind, schema, where) if kind in ("integer", "number") else kind

    def _number(self, kind: str, schema: Mapping[str, Any], where: str) -> str:
        least, most = schema.get("minimum"), schema.get("maximum")
        if "exclusiveMinimum" in schema:
            below = schema["exclusiveMinimum"]
            if least is not None or type(below) is not int:
                raise SchemaError(
                    f"{where}.exclusiveMinimum: found {str(below)[:64]}, wanted an integer, and no minimum with it"
                )
            least = below + 1
        if least is None and most is None:
            return kind
        if kind == "integer" and most is None and type(least) is int and least in (0, 1):
            return "positive" if least else "natural"
        if kind == "number" and least == 0 and not isinstance(least, bool):
            return "amount"
        if kind == "integer" and type(least) is int and type(most) is int and 0 <= most - least < MOST_CHOICES:
            return self.choice({str(number): "" for number in range(least, most + 1)})
        raise SchemaError(
            f"{where}: found minimum or maximum of {'an' if kind == 'integer' else 'a'} {kind}, wanted minimum 0"
            f", for an integer also 1, or both with at most {MOST_CHOICES} values"
        )

    def _array(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        item = self._value(schema.get("items", True), f"{where}.items", depth + 1, "")
        least = _whole(schema, "minItems", 0, MOST_ITEMS, where)
        most = _whole(schema, "maxItems", -1, MOST_ITEMS, where)
        if 0 <= most < least:
            raise SchemaError(f"{where}.maxItems: found {most}, wanted at least minItems, {least}")
        if most == 0:
            return self.rule('"[" space "]"')
        # From the last item to the first: after each comes another one, or nothing where enough came.
        rest = self.rule(f'("," space {item})*') if most < 0 else ""
        for number in range(max(least, 1) if most < 0 else most, 1, -1):
            after = f'"," space {item} {rest}'
            rest = self.rule(after if number <= least else f'{after} | ""')
        items = self.rule(f"{item} {rest}" if least else f'{item} {rest} | ""')
        return self.rule(f'"[" space {items} space "]"')

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            raise SchemaError(f"{where}.properties: found {_kind(properties)}, wanted an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise SchemaError(f"{where}.required: found {_kind(required)}, wanted a list of names")
        missing = [name for name in dict.fromkeys(required) if name not in properties]
        if missing and others is False:
            raise SchemaError(f"{where}.required: found {missing[0][:64]!r}, wanted one of properties")
        if not properties and not missing and others is not False:
            return self._free(self._value(others, f"{where}.additionalProperties", depth + 1, ""))
        members = properties | dict.fromkeys(missing, others)
        rules = {
            name: self._value(each, f"{where}.properties.{name[:64]}", depth + 1, "") for name, each in members.items()
        }
        return self._members(rules, frozenset(required))

    def _free(self, value: str) -> str:
        """An object with any members, all of one schema."""
        member = self.rule(f'string space ":" space {value}')
        members = self.rule(f'{member} ("," space {member})* | ""')
        return self.rule(f'"{{" space {members} space "}}"')

    def _members(self, rules: Mapping[str, str], required: frozenset[str]) -> str:
        """An object with these members, in their order; those that are not required may be left out."""
        # The engine misreads a sequence with an empty text in it, so the last member has no rest.
        first = later = ""
        for name, value in reversed(rules.items()):
            member = f'{literal(json.dumps(name, ensure_ascii=False))} space ":" space {value} {later}'
            here = self.rule(member)
            if name in required:
                first, later = here, self.rule(f'"," space {here}')
            else:
                nothing = '""'
                first = self.rule(f"{here} | {first or nothing}")
                later = self.rule(f'"," space {here} | {later or nothing}')
        return self.rule(f'"{{" space {first} space "}}"')


def _shared(first: str, last: str) -> str:
    """The beginning that two texts share."""
    ends = (place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    return first[: next(ends, min(len(first), len(last)))]


def _kinds(schema: Mapping[str, Any], where: str) -> Sequence[str] | None:
    """The types of a schema, each once; None: any. Integers are numbers too, so `number` stands for both."""
    given = schema.get("type")
    if given is None:
        return next(([kind] for kind in ("object", "array") if _KEYWORDS[kind] & schema.keys()), None)
    kinds = given if isinstance(given, list) else [given]
    if not kinds or not all(isinstance(kind, str) and kind in _KEYWORDS for kind in kinds):
        raise SchemaError(
            f"{where}.type: found {str(given)[:64]}, wanted one of {', '.join(_KEYWORDS)}, or a list of them"
        )
    return [kind for kind in dict.fromkeys(kinds) if kind != "integer" or "number" not in kinds]


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (kind == "number" or value == int(value))
    return isinstance(value, _PYTHON[kind])


def _whole(schema: Mapping[str, Any], name: str, default: int, most: int, where: str) -> int:
    value = schema.get(name, default)
    if type(value) is not int or (name in schema and not 0 <= value <= most):
        raise SchemaError(f"{where}.{name}: found {str(value)[:64]}, wanted 0 to {most}")
    return value


def _kind(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list) else str(value)[:64]
