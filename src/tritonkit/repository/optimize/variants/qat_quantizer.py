"""Choice of the tensors of a traced network that become 8-bit integers: those that ONNX Runtime's integer kernels use.

An integer convolution there has 8-bit inputs, weights and outputs. An addition has two 8-bit inputs and an 8-bit
output, and a linear layer may output floats. Pooling and reshaping pass their input's format on.
https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
"""

from __future__ import annotations

from typing import Any

from tritonkit.extras import need

__all__ = ["Int8Quantizer"]

_CONVOLUTIONS = ("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
_LINEAR = ("aten.linear.default",)
_ADDITIONS = ("aten.add.Tensor", "aten.add_.Tensor")
# An operator and the clipping after it are one kernel.
_CLIPPING = (
    "aten.relu.default",
    "aten.relu_.default",
    "aten.hardtanh.default",
    "aten.hardtanh_.default",
    "aten.relu6.default",
    "aten.relu6_.default",
)
_PASSING = (
    "aten.max_pool1d.default",
    "aten.max_pool2d.default",
    "aten.flatten.using_ints",
    "aten.reshape.default",
    "aten.view.default",
    "aten.permute.default",
    "aten.transpose.int",
    "aten.squeeze.dim",
    "aten.unsqueeze.default",
)
_DROPOUT = ("aten.dropout.default", "aten.dropout_.default")


class Int8Quantizer:
    """A quantizer that annotates a graph for torchao's `prepare_pt2e`, with the interface of its `Quantizer`.

    Weights are int8 up to `largest`, symmetric, with a scale per output channel. Activations are uint8 with a zero
    point. Both are fake-quantized with straight-through gradients, as in Jacob et al. 2017
    (https://arxiv.org/abs/1712.05877), and ranges are moving averages.
    """

    def __init__(self, largest: int = 127) -> None:
        torch = need("torch", "build")
        ao = need("torchao.quantization.pt2e", "optimize")
        self._quantizer = need("torchao.quantization.pt2e.quantizer", "optimize")
        # The fused form is avoided: in training it rounds with other scales than the finished file has.
        fake = ao.FakeQuantize
        self._activation = self._quantizer.QuantizationSpec(
            dtype=torch.uint8,
            quant_min=0,
            quant_max=255,
            qscheme=torch.per_tensor_affine,
            observer_or_fake_quant_ctr=fake.with_args(observer=ao.MovingAverageMinMaxObserver, averaging_constant=0.05),
        )
        self._weight = self._quantizer.QuantizationSpec(
            dtype=torch.int8,
            quant_min=-largest,
            quant_max=largest,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
            # The weights themselves are known at each step, so nothing is averaged.
            observer_or_fake_quant_ctr=fake.with_args(
                observer=ao.MovingAveragePerChannelMinMaxObserver, averaging_constant=1.0
            ),
        )
        self._integer: set[Any] = set()
        self.layers = 0
        """Number of convolutions and linear layers that were annotated."""

    def transform_for_annotation(self, model: Any) -> Any:
        """The graph without dropout, which does nothing in evaluation mode and would hide which operators are
        adjacent."""
        for node in list(model.graph.nodes):
            if str(node.target) in _DROPOUT:
                node.replace_all_uses_with(node.args[0])
                model.graph.erase_node(node)
        model.recompile()
        return model

    def validate(self, model: Any) -> None:
        """Refuse nothing, because operators that are not annotated stay FP32."""

    def prepare_obs_or_fq_callback(self, model: Any, observers: dict[Any, Any]) -> None:
        """Adjust nothing."""

    def annotate(self, model: Any) -> Any:
        """Mark the 8-bit inputs and outputs of each operator, in order."""
        for node in model.graph.nodes:
            kind = str(node.target)
            if kind in _CONVOLUTIONS + _LINEAR:
                if node.args[1].op == "get_attr":
                    self._layer(node, always_out=kind in _CONVOLUTIONS)
            elif kind in _ADDITIONS:
                if len(node.all_input_nodes) == 2 and self._integer.issuperset(node.all_input_nodes):
                    self._annotate(node, node.all_input_nodes)
                    self._output(node)
            elif kind in _PASSING and node.args[0] in self._integer:
                self._passing(node)
        return model

    def _layer(self, node: Any, always_out: bool) -> None:
        specs = {node.args[1]: self._weight}
        if len(node.args) > 2 and node.args[2] is not None and (always_out or _is_flat(node)):
            specs[node.args[2]] = self._bias(node)
        self._annotate(node, [node.args[0]], specs)
        self.layers += 1
        users = _end(node).users
        if always_out or all(str(user.target) in _CONVOLUTIONS + _LINEAR for user in users):
            self._output(node)

    def _bias(self, node: Any) -> Any:
        """The bias as int32 in units of input scale x weight scale, because it is added to sums of their products."""
        torch = need("torch", "build")

        def scale_and_zero(sources: list[Any]) -> tuple[Any, Any]:
            (inputs, _), (weights, _) = (source.calculate_qparams() for source in sources)
            return inputs * weights, torch.zeros_like(weights, dtype=torch.int32)

        return self._quantizer.DerivedQuantizationSpec(
            derived_from=[(node.args[0], node), (node.args[1], node)],
            derive_qparams_fn=scale_and_zero,
            dtype=torch.int32,
            quant_min=-(2**31),
            quant_max=2**31 - 1,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
        )

    def _passing(self, node: Any) -> None:
        """Give the output of an operator the scale of its input."""
        source = node.args[0]
        self._annotate(node, [source])
        shared = self._quantizer.SharedQuantizationSpec((source, node))
        node.meta["quantization_annotation"].output_qspec = shared
        self._integer.add(node)

    def _output(self, node: Any) -> None:
        """Make an output 8-bit, after the clipping that follows, unless the network returns it."""
        end = _end(node)
        if any(user.op == "output" for user in end.users):
            return
        if end is not node:
            self._annotate(end, [])
        end.meta["quantization_annotation"].output_qspec = self._activation
        self._integer.add(end)

    def _annotate(self, node: Any, inputs: list[Any], more: dict[Any, Any] | None = None) -> None:
        specs = dict.fromkeys(inputs, self._activation)
        node.meta["quantization_annotation"] = self._quantizer.QuantizationAnnotation(
            input_qspec_map={**specs, **(more or {})}, _annotated=True
        )


def _is_flat(node: Any) -> bool:
    """Whether a linear layer takes [batch, features], for which ONNX has one operator that includes the bias."""
    return bool(node.args[0].meta["val"].ndim == 2)


def _end(node: Any) -> Any:
    """The clipping after an operator, if nothing else uses the operator's output; else the operator."""
    users = list(node.users)
    return users[0] if len(users) == 1 and str(users[0].target) in _CLIPPING else node
