"""Facts about the layers of an openvino.Model that matter for quantization."""

from __future__ import annotations

from typing import Any

from tritonkit.extras import need

__all__ = ["has_attention", "is_quantized", "layers_in_float", "split_constants"]

_LAYERS = ("Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul")
_SHAPES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "VariadicSplit", "Gather", "MaxPool")
_SCALES = ("Convert", "Multiply", "Subtract", *_SHAPES)
_WHOLE = ("i8", "u8", "i4", "u4")


def has_attention(model: Any) -> bool:
    """Whether the model has attention: a softmax whose result goes into a matrix product."""
    return any(
        (kind := node.get_type_name()) == "ScaledDotProductAttention"
        or (kind == "Softmax" and _leads_to(node, "MatMul"))
        for node in model.get_ops()
    )


def split_constants(model: Any) -> None:
    """Give each operator constants of its own.

    Layers with equal weights, such as the copies in nn.TransformerEncoder before training, share their constants
    in an ONNX file. NNCF (3.4) writes a corrected bias or weight as another constant under the old constant's name,
    and finds nodes by name. Accuracy control then fails with "More than one node in NNCFGraph matches name".
    """
    opset = need("openvino.opset13", "optimize")
    names = {node.get_friendly_name() for node in model.get_ops()}
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type().get_type_name() != "f32":
            continue
        first, *others = sorted(node.output(0).get_target_inputs(), key=_place)
        for target in (target for target in others if target.get_node() != first.get_node()):
            own = opset.constant(node.data)
            own.set_friendly_name(_free_name(node.get_friendly_name(), names))
            target.replace_source_output(own.output(0))


def _place(target: Any) -> tuple[str, int]:
    return target.get_node().get_friendly_name(), target.get_index()


def _free_name(name: str, names: set[str]) -> str:
    """The name with a number appended, so that no other node has it; it is added to `names`."""
    number = 1
    while f"{name}.{number}" in names:
        number += 1
    names.add(f"{name}.{number}")
    return f"{name}.{number}"


def is_quantized(model: Any) -> bool:
    """Whether a layer computes, or weights are stored, in integers; quantized pooling alone gains nothing."""
    left, layers = layers_in_float(model)
    return len(left) < layers or any(
        node.get_type_name() == "Constant" and _is_whole(node) and _feeds_scale(node) for node in model.get_ops()
    )


def layers_in_float(model: Any) -> tuple[list[str], int]:
    """Names of the layers with an input that is not in INT8, and how many layers there are in all."""
    layers = [node for node in model.get_ordered_ops() if node.get_type_name() in _LAYERS]
    left = [
        node.get_friendly_name()
        for node in layers
        if not all(_comes_whole(node.input_value(side).get_node()) for side in (0, 1))
    ]
    return left, len(layers)


def _comes_whole(node: Any) -> bool:
    """Whether the values come from rounded ones: activations from a FakeQuantize, weights from integers in the file."""
    weights = node
    while weights.get_type_name() in _SCALES:
        weights = weights.input_value(0).get_node()
    if weights.get_type_name() == "Constant":
        return _is_whole(weights)
    while node.get_type_name() in _SHAPES:
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "FakeQuantize")


def _is_whole(constant: Any) -> bool:
    return constant.get_element_type().get_type_name() in _WHOLE


def _feeds_scale(constant: Any) -> bool:
    """Whether a constant is converted, as quantized weights are; the network's own integers (indices) are not."""
    return any(target.get_node().get_type_name() == "Convert" for target in constant.output(0).get_target_inputs())


def _leads_to(node: Any, kind: str) -> bool:
    users = [target.get_node() for target in node.output(0).get_target_inputs()]
    return any(
        user.get_type_name() == kind or (user.get_type_name() in _SHAPES and _leads_to(user, kind)) for user in users
    )
