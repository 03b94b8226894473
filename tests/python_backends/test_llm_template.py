"""Chat templates: those that would never end are ended, and all others are rendered as by transformers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from llm_budget import Exhausted
from llm_template import ChatTemplate, RenderError

CHAT = [{"role": "user", "content": "hi"}]
MANY = "{% for i in range(99999) %}{% for j in range(99999) %}"
ENDS = "{% endfor %}{% endfor %}"


def grown(change: str, start: str = "1", times: int = 60) -> str:
    """A template that grows a value in a loop; `x` is the value afterwards."""
    loop = f"{{% for i in range({times}) %}}{{% set ns.x = {change} %}}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}) %}}{loop}{{% set x = ns.x %}}"


NESTED = grown("(ns.x, ns.x)")
"""A tuple of 2**60 values that takes no memory."""
BOXES = grown("[ns.x, ns.x]") + "{% set y = x %}" + grown("[ns.x, ns.x]")

ENDLESS = {
    "loops": MANY + ENDS,
    "loops with a condition": "{% for i in range(99999) %}{% for j in range(99999) if false %}" + ENDS,
    "text in loops": MANY + "x" * 20_000 + ENDS,
    "captured text": MANY + "{% set y %}" + "x" * 20_000 + "{% endset %}" + ENDS,
    "macros": "{% macro f() %}" + "x" * 20_000 + "{% endmacro %}" + MANY + "{{ f() }}" + ENDS,
    "macros of macros": "{% macro f(n) %}{% if n %}{{ f(n-1) ~ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "blocks": "{% block a %}x{% endblock %}" + MANY + "{{ self.a() }}" + ENDS,
    "loops that call themselves": (
        "{% for x in range(999) recursive %}{% if loop.depth < 9 %}{{ loop(range(999)) }}" + "{% endif %}{% endfor %}"
    ),
    "arguments": "{% macro f() %}{% if varargs %}{% endif %}{% endmacro %}" + MANY + "{{ f(*range(9999)) }}" + ENDS,
    "a constant": "{{ 'a' * 10 ** 10 }}",
    "a constant in an output": "{{ ('a' * 1000000000) | length }}",
    "texts joined": "{% set a = 'a' * 10000000 %}{% set b = a ~ a ~ a ~ a ~ a ~ a ~ a ~ a %}{{ b }}",
    "a text that doubles": grown("ns.x ~ ns.x", "'a'"),
    "a list that doubles": grown("ns.x + ns.x", "[1]"),
    "a width": "{{ 'a' | center(9999999999) }}",
    "a method's width": "{{ '1'.zfill(9999999999) }}",
    "tabs": "{{ ('\\t' * 1000).expandtabs(9999999999) }}",
    "text replaced": "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "nothing replaced": "{{ ('a' * 99999) | replace('', 'b' * 99999) }}",
    "a separator": "{{ ('b' * 99999).join('a' * 99999) }}",
    "a separator of a filter": "{{ ('a' * 99999) | join('b' * 99999) }}",
    "an indent": "{{ ('\\n' * 99999) | indent(99999999) }}",
    "a format": "{{ ('%s' * 99999) % (('a' * 99999,) * 99999) }}",
    "a format by name": "{{ ('%(a)s' * 99999) % {'a': 'a' * 99999} }}",
    "a format in braces": "{{ ('{0}' * 99999).format('a' * 99999) }}",
    "a map's format": "{{ ('{a!r}' * 99999).format_map({'a': 'a' * 99999}) }}",
    "JSON's indent": "{{ range(1000) | list | tojson(indent=99999999) }}",
    "JSON's separators": "{{ range(1000) | list | tojson(separators=('a' * 1000000, ':')) }}",
    "nested values written": NESTED + "{{ x }}",
    "nested values as JSON": NESTED + "{{ x | tojson }}",
    "a nested key": NESTED + "{{ {x: 1} }}",
    "a nested key looked up": NESTED + "{{ {}[x] }}",
    "a nested key got": NESTED + "{{ {}.get(x) }}",
    "a nested key of pairs": NESTED + "{{ dict([(x, 1)] | map('list')) }}",
    "nested values made unique": NESTED + "{{ [x] | unique | list }}",
    "nested values compared": BOXES + "{{ x == y }}",
    "nested values tested": BOXES + "{{ x is eq y }}",
    "nested values in a chain": BOXES + "{{ x <= y <= x }}",
    "nested values searched": BOXES + "{{ x in ([y] | map('list')) }}",
    "nested values sorted": BOXES + "{{ [x, y] | sort }}",
    "nested values that change": BOXES + "{% for i in [1, 2] %}{{ loop.changed(x if i == 1 else y) }}{% endfor %}",
    "a slice": "{% set a = 'a' * 1000000 %}" + MANY + "{% set b = a[1:] %}" + ENDS,
    "a search from behind": "{% set a = 'a' * 1000000 %}{{ a.rfind('b' + 'a' * 500000) }}",
    "pieces": "{{ ('a ' * 1000000).split() | length }}",
    "an attribute's path": "{{ range(99999) | map(attribute='a.' * 99999) | list }}",
    "what an exception says": "{{ raise_exception('a' * 100000000) }}",
}

REFUSED = {
    "{{ 9 ** (9 ** 9) }}": "numbers of more than 4096 bits",
    grown("ns.x * ns.x", "9"): "numbers of more than 4096 bits",
    "{{ range(0, 99 * 0x1fffffffffffffff, 0x1fffffffffffffff) | unique | list }}": "whole numbers from",
    "{{ dict(range(0, 99 * 0x1fffffffffffffff, 0x1fffffffffffffff) | groupby('real')) }}": "whole numbers from",
    "{{ ([(0x1fffffffffffffff, 1)] * 9) | unique | list }}": "whole numbers from",
    "{{ 1.5 | round(999999999, 'ceil') }}": "that precision",
    "{{ ('9' * 1000000) | int }}": "that many digits",
    "{{ '%9999999999d' % 1 }}": "that width",
    "{{ '%*d' % (999999999, 1) }}": "that width",
    "{{ '%((x))9999999999d' % {'(x)': 1} }}": "that width",
    "{{ '%.99999f' | format(1.5) }}": "that width",
    "{{ '{:{w}}'.format(1, w=9999999999) }}": "that width",
    grown("(ns.x,)", times=9999) + "{{ {}[x] }}": "more than 100 deep",
    "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}": "more than 100 deep",
    "{{ ([[1]] * 9) | sum(start=[]) }}": "plain numbers",
    "{{ strftime_now('%Y' * 1000) }}": "more than 100 characters",
    "{{ {}.fromkeys(range(9)) }}": "cannot call 'fromkeys'",
    "{{ (1).to_bytes(999999999, 'big') }}": "cannot call 'to_bytes'",
    "{{ 'a'.translate({97: 'b'}) }}": "cannot call 'translate'",
    "{{ lipsum(n=999999999) }}": "lipsum",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}": "__class__",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "recursion",
    "{% block a %}{{ self.a() }}{% endblock %}": "recursion",
}

NOT_COMPILED = {
    "{{ [1] | batch(999999999, 'x') | list }}": "No filter named 'batch'",
    "{% autoescape true %}{% endautoescape %}": "no autoescape",
    "{{ 0x" + "f" * 2000 + " }}": "more than 4096 bits",
    "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}": "cannot compile",
    "{% for i in [1] %}" * 30 + "{% endfor %}" * 30: "cannot compile",
    "x" * 200_000: "at most 131,072",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_that_goes_on_for_ever_is_ended(name: str) -> None:
    """A counted budget ends the template, in the same place on every machine."""
    template = ChatTemplate(ENDLESS[name])
    with pytest.raises(Exhausted, match=r"it (takes|makes) more than"):
        template.render(CHAT, {})


@pytest.mark.parametrize("source", REFUSED)
def test_a_value_without_bounds_is_refused(source: str) -> None:
    """The value is refused before it is made, with a message about it."""
    template = ChatTemplate(source)
    with pytest.raises(RenderError, match=REFUSED[source]):
        template.render(CHAT, {})


@pytest.mark.parametrize("source", NOT_COMPILED, ids=range(len(NOT_COMPILED)))
def test_a_template_that_cannot_be_bounded_does_not_compile(source: str) -> None:
    """A build refuses such a template."""
    with pytest.raises(TemplateError, match=NOT_COMPILED[source]):
        ChatTemplate(source)


def test_the_line_is_said() -> None:
    """The message has the line in which the budget ended."""
    template = ChatTemplate("{{ 1 }}\n{{ 2 }}\n{{ 'a' * 10 ** 10 }}\n")
    with pytest.raises(Exhausted, match=r"more than 64 MiB .* \(line 3\)"):
        template.render(CHAT, {})


def test_one_render_leaves_the_next_its_whole_budget() -> None:
    """Each request has its own budget; more messages have a larger one."""
    loop = "{% for m in messages %}{% for i in range(900) %}{{ i }}{% endfor %}{% endfor %}"
    template = ChatTemplate(loop)
    assert len(template.render(CHAT * 400, {})) == 400 * 2590
    assert len(template.render(CHAT * 400, {})) == 400 * 2590


TOOLS = """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = "" %}
    {%- set rest = messages %}
{%- endif %}
{%- set ns = namespace(last=-1, text='') %}
{%- for m in rest[::-1] if m.role == "user" and not ns.text %}
    {%- set ns.text = m.content.split(' ')[0] %}
{%- endfor %}
{{- "<|sys|>" + system ~ "\\nToday: " + strftime_now("%d %b %Y") | length | string }}
{%- macro shown(value, depth=0) -%}
    {%- if value is mapping %}
        {%- for key, inner in value | dictsort %}{{ key ~ ':' }}{{ shown(inner, depth + 1) }}{% endfor %}
    {%- elif value is iterable and value is not string %}
        {{- value | map('string') | join(', ') | upper }}
    {%- else %}{{ value | string }}{% endif %}
{%- endmacro %}
{%- for m in rest %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if '</think>' in m.content %}
        {%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}
    {%- else %}
        {%- set content = m.content %}
    {%- endif %}
    {%- generation %}{{ '<|' + m.role + '|>' + content | trim + '%s' % loop.index }}{% endgeneration %}
    {%- if loop.last %}{{ m | tojson(indent=2) }}{{ m | tojson(separators=(',', ':'), sort_keys=true) }}{% endif %}
    {{- m.get('name', 'none') ~ loop.cycle('a', 'b') ~ loop.previtem is defined }}
{% endfor %}
{{- shown({'b': [1, 'x'], 'a': {'c': none}}) }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{%- if messages | rejectattr('role', 'in', ['user', 'assistant']) %}generators are true{% endif %}
{{- '{:>4}|{a}'.format(ns.text, a=1.5) }}{{ "a,b".replace(',', '.').title() }}{{ 7 // 2 ** 1 - 3 % 2 }}
{%- macro twice() %}{{ caller(1) ~ caller(2) }}{% endmacro %}{% call(x) twice() %}[{{ x }}]{% endcall %}
{%- filter upper %}done{% endfilter %}{{ (x.y is undefined) if x else 'no x' }}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
TALKS: list[list[dict[str, str]]] = [
    CHAT,
    [{"role": "system", "content": " s é <b> "}, {"role": "user", "content": "a b"}],
    [{"role": r, "content": "<think>\nt\n</think>\n\nb %d" + r} for r in ("user", "assistant", "user")],
    [{"role": "assistant", "content": "x"}],
    [{"role": r, "content": "word " * 50} for _ in range(500) for r in ("user", "assistant")],
]


@pytest.mark.parametrize("talk", TALKS, ids=["user", "system", "thoughts", "refused", "long"])
def test_templates_are_rendered_as_by_transformers(talk: list[dict[str, str]]) -> None:
    """Templates with everything that models for tools use are rendered; a thousand messages have room."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    given: dict[str, Any] = {"messages": talk, "tools": None, "documents": None}
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    template, theirs = ChatTemplate(TOOLS), utils._compile_jinja_template(TOOLS)
    try:
        expected = theirs.render(**given, **special, add_generation_prompt=True)
    except TemplateError as refused:
        with pytest.raises(RenderError, match=str(refused)):
            template.render(talk, special)
    else:
        assert template.render(talk, special) == expected
        assert json.dumps(talk[-1]["content"])[1:-1] in expected
