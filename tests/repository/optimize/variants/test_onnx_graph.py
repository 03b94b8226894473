"""ONNX graphs without what no runtime reads."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.repository.optimize.variants.onnx_nets import attributes, model, perceptron, random, residual, run
from tritonkit.repository.optimize.variants.onnx_graph import name_nodes, shorten, tidy


def test_the_exporters_notes_go_and_the_models_own_stay() -> None:
    """Source paths on operators are dropped; what the model says of itself, and what it does, is not."""
    network = residual()
    for node in network.graph.node:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value='File "/home/someone/net.py"')
        node.doc_string = "made on a machine"
    network.metadata_props.add(key="classes", value="five")
    x = random(2, 3, 8, 8)
    expected = run(network, x)
    tidy(network)
    assert b"/home/someone" not in network.SerializeToString()
    assert b"made on a machine" not in network.SerializeToString()
    assert network.metadata_props[0].value == "five"
    assert np.array_equal(run(network, x), expected)


def test_equal_constants_become_one_and_unused_ones_none() -> None:
    """Two weights of the same values are stored once."""
    network = perceptron()
    weight = network.graph.initializer[0]
    network.graph.initializer[1].raw_data = weight.raw_data
    network.graph.initializer.append(numpy_helper.from_array(random(9), "unused"))
    x = random(2, 32)
    expected = run(network, x)
    tidy(network)
    assert [tensor.name for tensor in network.graph.initializer] == ["w1"]
    assert np.array_equal(run(network, x), expected)


def test_a_constant_that_a_caller_may_override_stays_its_own() -> None:
    """An initializer that is an input too is not made one with an equal constant."""
    nodes = [helper.make_node("Add", ["x", "given"], ["a"]), helper.make_node("Add", ["a", "fixed"], ["y"])]
    one = np.ones(4, np.float32)
    network = model(nodes, {"given": one, "fixed": one}, ["batch", 4], ["batch", 4])
    network.graph.input.append(helper.make_tensor_value_info("given", TensorProto.FLOAT, [4]))
    tidy(network)
    assert [list(node.input) for node in network.graph.node] == [["x", "given"], ["a", "fixed"]]


def test_attributes_that_say_the_default_go() -> None:
    """`group: 1` is dropped and `group: 2` is not."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], group=1, pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w2"], ["y"], group=2, auto_pad="NOTSET"),
    ]
    weights = {"w1": random(4, 4, 3, 3), "w2": random(4, 2, 3, 3)}
    network = model(nodes, weights, ["batch", 4, 8, 8], ["batch", 4, 6, 6])
    expected = run(network, random(1, 4, 8, 8))
    shorten(network)
    assert [attributes(n) for n in network.graph.node] == [{"pads"}, {"group"}]
    assert np.array_equal(run(network, random(1, 4, 8, 8)), expected)


def test_short_names_leave_inputs_outputs_and_operators_alone() -> None:
    """A tensor inside is renamed, also where its short name would be an input's."""
    network = perceptron()
    network.graph.node[0].input[0] = network.graph.input[0].name = "0"
    shorten(network)
    onnx.checker.check_model(network, full_check=True)
    assert [node.name for node in network.graph.node] == ["first", "relu", "second"]
    assert network.graph.node[0].input[0] == "0"
    assert network.graph.node[-1].output[0] == "y"
    assert max(len(tensor.name) for tensor in network.graph.initializer) <= 2


def test_every_node_has_a_name_of_its_own() -> None:
    """Missing and repeated names are replaced, others kept, also one that looks like a replacement."""
    network = residual()
    for place, name in enumerate(["", "same", "same", "Add_0", "Conv_0"]):
        network.graph.node[place].name = name
    name_nodes(network)
    names = [node.name for node in network.graph.node]
    assert len(set(names)) == len(names)
    assert names[1] == "same"
    assert "" not in names
