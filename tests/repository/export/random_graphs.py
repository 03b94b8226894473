"""Random small ONNX networks, whose items are independent or not, and a slow oracle that says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tritonkit.errors import BuildError

Rows = Callable[[dict[str, Any]], dict[str, Any]]
Random = np.random.Generator

_ORACLE_ROUNDS = 60


@dataclass
class Graph:
    """A network under way: its current tensor [N, width] and what is needed for it."""

    random: Random
    width: int
    tensor: str = "x"
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The parts it has, for people."""
    inputs: int = 0
    """The width of x."""

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """A node with one output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def const(self, value: Any) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def over(self, kind: str, axis: int) -> str:
        """A reduction that keeps its axis."""
        return self.add(kind, [self.tensor, self.const(np.int64([axis]))], keepdims=1)

    def rows(self) -> str:
        """The number of rows, as [1] of INT64."""
        return self.add("Shape", [self.tensor], start=0, end=1)

    def slice(self, start: int, end: int, step: int = 1, axis: int = 0) -> str:
        """A part of the current tensor."""
        parts = [self.const(np.int64([n])) for n in (start, end, axis, step)]
        return self.add("Slice", [self.tensor, *parts])


def _binary(g: Graph, kind: str, other: str) -> None:
    g.tensor = g.add(kind, [g.tensor, other])


def _matmul(g: Graph) -> None:
    width = int(g.random.integers(2, 7))
    _binary(g, "MatMul", g.const(g.random.standard_normal((g.width, width)).astype(np.float32)))
    g.width = width


def _unary(kind: str, **attributes: Any) -> Callable[[Graph], None]:
    def part(g: Graph) -> None:
        g.tensor = g.add(kind, [g.tensor], **attributes)

    return part


def _centered(axis: int) -> Callable[[Graph], None]:
    return lambda g: _binary(g, "Sub", g.over("ReduceMean", axis))


def _scaled(axis: int) -> Callable[[Graph], None]:
    def part(g: Graph) -> None:
        most = g.add("ReduceMax", [g.add("Abs", [g.tensor]), g.const(np.int64([axis]))], keepdims=1)
        _binary(g, "Div", g.add("Add", [most, g.const(np.float32(1))]))

    return part


def _running_sum(axis: int) -> Callable[[Graph], None]:
    return lambda g: _binary(g, "CumSum", g.const(np.int64(axis)))


def _sort(axis: int) -> Callable[[Graph], None]:
    def part(g: Graph) -> None:
        count = g.rows() if axis == 0 else g.const(np.int64([g.width]))
        name = f"t{len(g.nodes)}"
        g.nodes.append(helper.make_node("TopK", [g.tensor, count], [name, f"{name}_places"], axis=axis))
        g.tensor = name

    return part


def _bias(g: Graph) -> None:
    _binary(g, "Add", g.const(g.random.standard_normal(g.width).astype(np.float32)))


def _twice(g: Graph) -> None:
    g.tensor = g.add("Concat", [g.tensor, g.tensor], axis=1)
    g.width *= 2


def _turned(g: Graph) -> None:
    """Transposed, multiplied and transposed back: no coupling, though axis 0 moves."""
    weight = g.const(g.random.standard_normal((g.width, g.width)).astype(np.float32))
    there = g.add("Transpose", [g.tensor], perm=[1, 0])
    g.tensor = g.add("Transpose", [g.add("MatMul", [weight, there])], perm=[1, 0])


def _apart(g: Graph) -> None:
    """Reshaped to three axes and back."""
    three = g.add("Reshape", [g.tensor, g.const(np.int64([0, 1, -1]))])
    g.tensor = g.add("Reshape", [g.add("Sigmoid", [three]), g.const(np.int64([0, -1]))])


def _steps(g: Graph) -> None:
    _binary(g, "Mul", g.const(np.float32(3)))
    g.tensor = g.add("Round", [g.tensor])


INDEPENDENT: dict[str, Callable[[Graph], None]] = {
    "matmul": _matmul,
    "bias": _bias,
    "relu": _unary("Relu"),
    "tanh": _unary("Tanh"),
    "negated": _unary("Neg"),
    "absolute": _unary("Abs"),
    "softmax of features": _unary("Softmax", axis=1),
    "centered features": _centered(1),
    "scaled features": _scaled(1),
    "sum along features": _running_sum(1),
    "sorted features": _sort(1),
    "twice": _twice,
    "transposed and back": _turned,
    "reshaped and back": _apart,
    "steps": _steps,
}


def _rolled(g: Graph) -> None:
    g.tensor = g.add("Concat", [g.slice(1, 2**31), g.slice(0, 1)], axis=0)


def _reversed(g: Graph) -> None:
    g.tensor = g.slice(-1, -(2**31), -1)


def _first_row(g: Graph) -> None:
    _binary(g, "Add", g.slice(0, 1))


def _attention(g: Graph) -> None:
    scores = g.add("MatMul", [g.tensor, g.add("Transpose", [g.tensor], perm=[1, 0])])
    g.tensor = g.add("MatMul", [g.add("Softmax", [scores], axis=1), g.tensor])


def _identity_matrix(g: Graph) -> None:
    """A product with the identity: independent, but for NaN and infinity."""
    square = g.add("Concat", [g.rows(), g.rows()], axis=0)
    _binary(g, "Mul", g.const(np.float32(1)))
    eye = g.add("EyeLike", [g.add("ConstantOfShape", [square])])
    g.tensor = g.add("MatMul", [eye, g.tensor])


def _faint(g: Graph) -> None:
    weight = g.const(np.float32(10.0 ** -g.random.integers(1, 8)))
    _binary(g, "Add", g.add("Mul", [g.over("ReduceMean", 0), weight]))


def _limit(g: Graph) -> None:
    """Divided by the largest value of all, where that is above a bound."""
    most = g.add("ReduceMax", [g.add("Abs", [g.tensor]), g.const(np.int64([0, 1]))], keepdims=1)
    bound = g.const(np.float32(10.0 ** g.random.integers(0, 3)))
    _binary(g, "Div", g.add("Max", [most, bound]))


def _row_number(g: Graph) -> None:
    zeros = g.add("Mul", [g.slice(0, 1, axis=1), g.const(np.float32(0))])
    ones = g.add("Add", [zeros, g.const(np.float32(1))])
    _binary(g, "Add", g.add("CumSum", [ones, g.const(np.int64(0))]))


def _row_count(g: Graph) -> None:
    _binary(g, "Mul", g.add("Cast", [g.rows()], to=TensorProto.FLOAT))


def _only_later(g: Graph) -> None:
    """Rows after the first few take the sum of those."""
    split = int(g.random.integers(1, 17))
    first, rest = g.slice(0, split), g.slice(split, 2**31)
    total = g.add("ReduceSum", [first, g.const(np.int64([0]))], keepdims=1)
    g.tensor = g.add("Concat", [first, g.add("Add", [rest, total])], axis=0)


def _branch(g: Graph) -> None:
    """Doubled where any value of the batch is above a bound."""
    most = g.add("ReduceMax", [g.tensor, g.const(np.int64([0, 1]))], keepdims=1)
    over = g.add("Greater", [most, g.const(np.float32(g.random.choice([1, 10, 100])))])
    double = g.add("Add", [g.tensor, g.tensor])
    g.tensor = g.add("Where", [over, double, g.tensor])


def _dynamic(g: Graph) -> None:
    name = f"t{len(g.nodes)}"
    parts = [name, f"{name}_scale", f"{name}_zero"]
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", [g.tensor], parts))
    g.tensor = g.add("DequantizeLinear", parts)


def _recurrent(g: Graph) -> None:
    """A network over time, with rows as time."""
    weights = [g.const(g.random.standard_normal((1, 3, n)).astype(np.float32)) for n in (g.width, 3)]
    three = g.add("Unsqueeze", [g.tensor, g.const(np.int64([1]))])
    g.tensor = g.add("RNN", [three, *weights], hidden_size=3)
    g.tensor = g.add("Reshape", [g.tensor, g.const(np.int64([-1, 3]))])
    g.width = 3


def _rows_joined(g: Graph) -> None:
    g.tensor = g.add("Reshape", [g.tensor, g.const(np.int64([-1, 2 * g.width]))])
    g.width *= 2


COUPLED: dict[str, Callable[[Graph], None]] = {
    "centered rows": _centered(0),
    "scaled rows": _scaled(0),
    "sum along rows": _running_sum(0),
    "softmax of rows": _unary("Softmax", axis=0),
    "sorted rows": _sort(0),
    "rolled": _rolled,
    "reversed": _reversed,
    "first row": _first_row,
    "attention": _attention,
    "identity matrix": _identity_matrix,
    "faint": _faint,
    "limit": _limit,
    "row number": _row_number,
    "row count": _row_count,
    "only later": _only_later,
    "branch": _branch,
    "dynamic INT8": _dynamic,
    "recurrent": _recurrent,
    "rows joined": _rows_joined,
}


def random_network(seed: int, *, ids: bool = False) -> tuple[bytes, Graph]:
    """An ONNX file with x [N, width] and y; about half have a part that couples rows. With `ids`, x is INT32."""
    random = np.random.default_rng(seed)
    g = Graph(random, int(random.integers(2, 7)))
    width = g.inputs = g.width
    if ids:
        small = g.add("Cast", ["x"], to=TensorProto.FLOAT)
        g.tensor = g.add("Mul", [small, g.const(np.float32(0.01))])
    parts = [str(name) for name in random.choice(list(INDEPENDENT), int(random.integers(1, 5)))]
    if random.random() < 0.5:
        parts.insert(int(random.integers(0, len(parts) + 1)), str(random.choice(list(COUPLED))))
    for name in parts:
        (INDEPENDENT | COUPLED)[name](g)
        g.names.append(name)
    kind = TensorProto.FLOAT
    if random.random() < 0.15:
        g.tensor, kind = g.add("ArgMax", [g.tensor], axis=1, keepdims=1), TensorProto.INT64
        g.names.append("the largest")
    g.nodes.append(helper.make_node("Identity", [g.tensor], ["y"]))
    graph = helper.make_graph(
        g.nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.INT32 if ids else TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("y", kind, ["M", "K"])],
        g.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString(), g


def runner(content: bytes) -> Rows:
    """ONNX Runtime on one thread."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(batch: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"y": session.run(["y"], batch)[0]}
        except Exception as error:  # its errors have no common root
            raise BuildError("net", found=str(error)) from error

    return run


def coupled(run: Rows, width: int, seed: int, *, ids: bool = False) -> bool:
    """Search for a coupling in batches of all sizes up to 70, with items of all magnitudes, NaN and infinity.

    Either a row changes with its neighbors, or some rows differ from what they are alone.
    """
    random = np.random.default_rng(seed)
    differing = compared = 0
    for size in random.integers(2, 71, _ORACLE_ROUNDS):
        kept = random.random(size) < 0.5
        kept[int(random.integers(0, size))] = True
        first = items(random, int(size), width, ids=ids)
        second = np.where(kept[:, None], first, items(random, int(size), width, ids=ids, plain=False))
        places = np.flatnonzero(kept)
        single = first[places[:1]]
        try:
            before, after, alone = (run({"x": x})["y"] for x in (first, second, single))
        except BuildError:
            return True
        if not len(before) == len(after) == size or len(alone) != 1:
            return True
        if alone.shape[1:] != before.shape[1:]:
            return True
        if any(_apart(after[place], before[place], 0) for place in places):
            return True
        compared += 1
        differing += _apart(before[places[0]], alone[0], 0.01)
    return differing > 0.1 * compared


def has_coupling(graph: Graph) -> bool:
    """Whether a part computes across rows; what follows may hide that from all input there is."""
    return any(name in COUPLED for name in graph.names)


def items(random: Random, size: int, width: int, *, ids: bool, plain: bool = True) -> Any:
    """Rows of input, numbers or ids; those that are not plain reach further."""
    if ids:
        return random.integers(0, 256 if plain else 2**20, (size, width)).astype(np.int32)
    return _numbers(random, size, width, plain=plain)


def _numbers(random: Random, size: int, width: int, *, plain: bool) -> Any:
    batch = random.standard_normal((size, width))
    if not plain:
        batch *= 10.0 ** random.integers(-3, 13, (size, 1))
        # All of one kind too: a maximum hides NaN from what compares with it.
        special = random.integers(0, 12, size) if random.random() < 0.5 else random.integers(0, 6)
        batch[special == 0] = 0
        batch[special == 1] = np.nan
        batch[special == 2] *= np.inf
    return batch.astype(np.float32)


def _apart(got: Any, expected: Any, floor: float) -> bool:
    if got.dtype.kind != "f":
        return bool((got != expected).any())
    finite = np.abs(expected[np.isfinite(expected)])
    scale = min(1.0, max(float(finite.max(initial=0.0)), floor))
    with np.errstate(invalid="ignore"):
        near = np.isclose(got, expected, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
    return not near.all()
