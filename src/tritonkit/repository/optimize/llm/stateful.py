"""Keys and values as state inside OpenVINO's graph, the form that OpenVINO GenAI's paged attention needs."""

from __future__ import annotations

from typing import Any

from tritonkit.extras import need

__all__ = ["make_stateful"]

_FIRST = 3
"""Number of inputs before those of the layers: input_ids, attention_mask, position_ids."""


def make_stateful(model: Any) -> None:
    """Turn the inputs and outputs of the layers into variables, in place.

    The new input beam_idx int32 [batch] names the row of the state that each row continues. The pattern, a gather
    behind each state, which begins empty, is that of Hugging Face's optimum-intel. OpenVINO GenAI's pass for paged
    attention looks for it.
    """
    import numpy as np

    opset, ov = need("openvino.opset13", "optimize"), need("openvino", "optimize")
    passes = need("openvino._offline_transformations", "optimize")
    past, present = model.inputs[_FIRST:], model.outputs[1:]
    names = [f"{place // 2}.{'key' if place % 2 == 0 else 'value'}" for place in range(len(past))]
    for name, before, after in zip(names, past, present, strict=True):
        before.get_tensor().set_names({f"past_key_values.{name}"})
        after.get_tensor().set_names({f"present.{name}"})
    for name, tensor in zip(("input_ids", "attention_mask", "position_ids"), model.inputs, strict=False):
        tensor.get_tensor().set_names({name})
    model.outputs[0].get_tensor().set_names({"logits"})
    rows = opset.parameter(ov.PartialShape([-1]), np.int32, name="beam_idx")
    rows.output(0).get_tensor().set_names({"beam_idx"})
    for before in past:
        users = list(before.get_node().output(0).get_target_inputs())
        chosen = opset.gather(before.get_node(), rows, opset.constant(np.int64(0)))
        for user in users:
            user.replace_source_output(chosen.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    passes.apply_make_stateful_transformation(model, {f"past_key_values.{name}": f"present.{name}" for name in names})
    _begin_empty(model, opset)


def _begin_empty(model: Any, opset: Any) -> None:
    """Let each state begin with the batch's rows and no token."""
    import numpy as np

    shape = opset.shape_of(model.input("input_ids"), output_type="i64")
    batch = opset.gather(shape, opset.constant(np.array([0])), opset.constant(np.int64(0)))
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            sizes = [size.get_length() if size.is_static else 0 for size in node.get_output_partial_shape(0)]
            rest = [opset.constant(np.array([size], np.int64)) for size in sizes[1:]]
            zeros = opset.broadcast(opset.constant(np.float32(0)), opset.concat([batch, *rest], axis=0))
            node.set_arguments([zeros])
    model.validate_nodes_and_infer_types()
