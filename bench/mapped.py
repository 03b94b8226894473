"""The cost of `map:`: items that the server takes out of requests, over callers who send the same items as batches."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.h2load import Body, Load, grpc_body, h2load
from bench.processor import cpu_s
from bench.report import Ratio, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting
    from tritonkit.serve import Endpoint

__all__ = ["run"]

SHAPE = (3, 48, 160)
"""A crop of a line of text, FP32."""
CALLERS = (8, 16)
ITEMS = (1, 8, 20)
CHANNELS = 32
MAPPED, DIRECT = "page_lines", "page_lines_item"
SPEC = """name: page
pipeline: [{name: lines, map: {over: [x], pipeline: [{name: net, network: {onnx: net.onnx}}]}}]
"""


def run(setting: Setting) -> Report:
    """Items a second through the map over those of callers who know the number of items."""
    setting.refuse_address()
    ratios = []
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as endpoint:
        for callers in CALLERS:
            for items in ITEMS:
                rounds = [_round(setting, endpoint, callers, items, turn) for turn in range(setting.rounds)]
                ratios.append(_ratio(callers, items, rounds))
    return Report("map", f"items of {'x'.join(map(str, SHAPE))} FP32 for a small convolution", ratios)


@contextmanager
def _served(root: Path) -> Iterator[Endpoint]:
    from tritonkit.repository.pipeline import build_repository
    from tritonkit.serve import serve

    folder = root / "models" / "page"
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(SPEC)
    (folder / "net.onnx").write_bytes(_network())
    repository = build_repository(root).path
    with serve(repository, root=root, grpc_port=0, metrics_port=0) as endpoint:
        yield endpoint


def _network() -> bytes:
    """Two convolutions and a mean."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    shapes = {"first": (16, SHAPE[0], 3, 3), "second": (CHANNELS, 16, 3, 3)}
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *SHAPE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CHANNELS])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def _body(model: str, items: int) -> Body:
    import numpy as np
    from tritonclient.grpc import service_pb2 as messages

    array = np.random.default_rng(1).standard_normal((items, *SHAPE)).astype(np.float32)
    request = messages.ModelInferRequest(model_name=model)
    shape = [items, *SHAPE] if model == DIRECT else [1, items, *SHAPE]
    request.inputs.add(name="x", datatype="FP32", shape=shape)
    request.raw_input_contents.append(array.tobytes())
    return grpc_body(request.SerializeToString())


def _round(setting: Setting, endpoint: Endpoint, callers: int, items: int, turn: int) -> dict[str, tuple[Load, float]]:
    """Each once, in an order that changes from round to round, with the server's processor time of an item."""
    measured = {}
    for model in sorted((MAPPED, DIRECT), reverse=turn % 2 == 1):
        used = cpu_s(endpoint.pid)
        load = h2load(
            endpoint.grpc, _body(model, items), callers=callers, connections=callers // 8, seconds=setting.seconds
        )
        measured[model] = (load, (cpu_s(endpoint.pid) - used) / load.sent / items * 1e6)
    return measured


def _ratio(callers: int, items: int, rounds: list[dict[str, tuple[Load, float]]]) -> Ratio:
    facts = {}
    for model in (DIRECT, MAPPED):
        one = sorted(rounds, key=lambda measured: measured[model][0].per_s)[len(rounds) // 2][model]
        facts |= {
            f"{model}: items/s": round(one[0].per_s * items, 1),
            f"{model}: p50, ms": round(one[0].p50_ms, 2),
            f"{model}: tritonserver's processor time of an item, us": round(one[1], 1),
        }
    return Ratio(
        f"{callers} callers with {items} items each: items/s, map over batches of callers",
        [measured[MAPPED][0].per_s / measured[DIRECT][0].per_s for measured in rounds],
        facts=facts,
    )
