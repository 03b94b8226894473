"""Whether torch.export.load would run code of a file. PyTorch unpickles some parts, and evaluates texts of others.

The ways that its source has are refused here (torch/_export/serde/serialize.py, torch/export/pt2_archive/_package.py,
torch/export/_unlift.py). That is a check of a program, not a sandbox around it.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.optimize.files.ready import Place
from tritonkit.repository.optimize.files.torch_archive import Archive, pickled

__all__ = ["hold_to_program"]

_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|higher_order|quantized_decomposed)\.[\w.]+|_operator\.\w+|torch\.sym_\w+|math\.\w+"
    r"|torch\._sym_\w+"
)
"""Operators that compute. Any other text is looked up in Python's `torch`, and called."""
_NAME = re.compile(r"[\w.]*")
_SYMBOL = re.compile(r"[a-z]+\d+")
_FUNCTIONS = frozenset(
    (
        *("CeilDiv", "CeilToInt", "CleanDiv", "FloatPow", "FloatTrueDiv", "FloorDiv", "FloorToInt", "Identity"),
        *("IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "LShift", "Mod", "ModularIndexing", "PowByNatural"),
        *("PythonMod", "RShift", "RoundDecimal", "RoundToInt", "ToFloat", "TruncToFloat", "TruncToInt", "Where"),
        *("Max", "Min", "Eq", "Ne", "Gt", "Ge", "Lt", "Le", "And", "Or", "Not", "oo", "int_oo", "true", "false"),
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Abs", "floor", "ceiling"),
    )
)
"""Functions of sizes that PyTorch writes into a program (torch.utils._sympy.functions), and sympy's plain ones."""
_TEXT = re.compile(r"[\w.+-]*")
_QUESTIONS = frozenset({"size", "stride", "storage_offset", "dim"})
"""Methods of tensors that guards on inputs ask."""


def hold_to_program(place: Place, archive: Archive) -> None:
    """BuildError for a program whose loading would run code, or that is for another device."""
    if archive.has("data/aotinductor/"):
        raise place.refusal(
            found=f"{place.name} is compiled by AOTInductor: a library for one processor and one PyTorch",
            wanted="a program of torch.export, or the module itself",
            todo="torch.export.save(program, FILE); or network: {torch: network:build} with serving: {variant:"
            " torch-compile}",
        )
    with archive.as_written():
        for name in archive.names:
            _hold_part(place, archive, name)


def _hold_part(place: Place, archive: Archive, name: str) -> None:
    kind = next((kind for kind in ("weights", "constants") if name.startswith(f"data/{kind}/")), "")
    if kind and name.endswith("_config.json"):
        _hold_payload(place, kind, archive.read_json(name))
    elif kind and name.endswith(".pt"):
        raise _runs_code(place, f"its {kind} are one pickle, as older versions of PyTorch wrote them")
    elif name.startswith("data/sample_inputs/"):
        _hold_pickle(place, archive.read(name))
    elif name.startswith("models/"):
        _hold_graph(place, archive.read_json(name))


def _hold_payload(place: Place, kind: str, config: Any) -> None:
    for name, entry in config["config"].items():
        if entry.get("use_pickle") or not str(entry.get("path_name", "")).startswith(("weight_", "tensor_")):
            raise _runs_code(place, f"its {kind[:-1]} {name} is pickled")


def _hold_pickle(place: Place, content: bytes) -> None:
    """Refuse sample inputs that PyTorch would read without weights_only, which it does where that fails."""
    if not content:
        return
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            data = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
    except Exception:  # those of zipfile and its decompressors have no common root
        data = [content]
    for one in data:
        seen = pickled(one)
        if seen.runs_code:
            raise _runs_code(place, f"its sample inputs are {seen.words}")


def _hold_graph(place: Place, program: Any) -> None:
    for code in program.get("guards_code", ()):
        if not _is_plain(code, guard=True):
            raise _runs_code(place, f"a guard is {str(code)[:60]!r}")
    for key, value in _values(program):
        if key == "expr_str" and not _is_plain(value):
            raise _runs_code(place, f"a size is the expression {str(value)[:60]!r}")
        if key == "target" and isinstance(value, str) and not _TARGET.fullmatch(value):
            raise _runs_code(place, f"an operator is {value[:60]!r}, none of PyTorch's own")
        if key == "name" and not _NAME.fullmatch(str(value)):
            raise _runs_code(place, f"a tensor is called {str(value)[:60]!r}")
        if key in ("in_spec", "out_spec") and not _is_flat(str(value)):
            raise place.refusal(
                found=f"{place.name} takes or gives tensors in dictionaries or nested lists",
                wanted="tensors by position",
                todo="export it again within a module that takes tensors and returns a tensor or a tuple",
            )
        if key == "device" and isinstance(value, dict) and value.get("type", "cpu") not in ("cpu", "meta"):
            raise place.refusal(
                found=f"{place.name} was exported on {value['type']}",
                wanted="a program that was exported on the CPU; the server moves it to its device",
                todo="export it again: torch.export.export(module.cpu(), ...)",
            )


def _is_flat(spec: str) -> bool:
    """Whether a description of arguments or results has tensors by position alone."""
    if not spec:
        return True
    left = [json.loads(spec)[1]]
    while left:
        node = left.pop()
        kind, context = node["type"], node["context"]
        if kind not in (None, "builtins.tuple", "builtins.list", "builtins.dict") or "_" in str(context):
            return False
        if kind == "builtins.dict" and node["children_spec"]:
            return False
        left += node["children_spec"]
    return True


def _values(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    left = [content]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from one.items()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _is_plain(text: object, *, guard: bool = False) -> bool:
    """Whether a text has numbers, symbols, operators and functions of sizes alone; a guard also asks inputs."""
    try:
        tree = ast.parse(str(text), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return all(_is_plain_node(node) or (guard and _is_of_guards(node)) for node in ast.walk(tree))


def _is_plain_node(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    if isinstance(node, ast.keyword):  # Symbol('s3', positive=True)
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) or (
            isinstance(node.value, str) and bool(_TEXT.fullmatch(node.value))
        )
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS or bool(_SYMBOL.fullmatch(node.id))
    whole = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)
    parts = (ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context)
    return isinstance(node, (*whole, *parts))


def _is_of_guards(node: ast.AST) -> bool:
    """Parts of `L['args'][0][0].size()[1] <= 64`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and not node.args and not node.keywords
    if isinstance(node, ast.Attribute):
        return node.attr in _QUESTIONS
    return isinstance(node, ast.Subscript) or (isinstance(node, ast.Name) and node.id == "L")


def _runs_code(place: Place, found: str) -> BuildError:
    return place.refusal(
        found=f"{place.name} could run code where it is loaded: {found}",
        wanted="a program whose weights, sizes and operators are PyTorch's own",
        todo="save it with this PyTorch: torch.export.save(torch.export.export(module, ...), FILE)",
    )
