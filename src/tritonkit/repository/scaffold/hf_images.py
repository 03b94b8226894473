"""`tritonkit new --hf` for images: `decode_image` in front of the network, as its image processor works."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.checkpoint_config import FROM_FOLDER
from tritonkit.repository.export.checkpoint_files import read_errors
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.scaffold.hf_checkpoint import AUTO_CLASSES, PROCESSOR, TOWERS, Encoder
from tritonkit.repository.scaffold.hf_parts import Parts, label_parts

__all__ = ["image_parts", "image_tower"]

_EXAMPLE = "example.png"
_EDGES = range(1, 4_097)
"""Edges of an image that a network takes, in pixels."""
_RESAMPLES = {0: "nearest", 2: "bilinear", 3: "bicubic", 4: "box"}
"""Pillow's number of a filter -> its name in decode_image."""
_NEAREST_FILTER = "bicubic"
"""The filter in place of one that decode_image lacks (Lanczos, Hamming)."""
_EAGER = {"swin", "swinv2", "donut-swin"}
"""Types of networks whose attention with scaled_dot_product_attention cannot be traced with a free batch."""
_CONVNEXT_WHOLE = 384
"""From this size on, ConvNeXt's processor stretches the image instead of cutting out its center."""


def image_parts(encoder: Encoder) -> Parts:
    """The parts for a network of images: classes or vectors."""
    if encoder.task == "IMAGE_CLASSIFICATION":
        labels = label_parts(encoder.labels, encoder.config)
        base = _base(encoder, {"logits": {"dtype": "FP32", "shape": [len(encoder.labels)]}})
        pipeline = [*base.pipeline, labels.step]
        quality = ["metric: accuracy", "samples: {folder: samples}   # a folder of images for each label"]
        return replace(base, pipeline=pipeline, files={**base.files, **labels.files}, quality=quality)
    base = _base(encoder, {})
    module, missing = encoder.load(base.loader)
    torch = need("torch", "build")
    size = base.inputs["pixel_values"]["shape"]
    with torch.no_grad(), read_errors(encoder.folder, "a network that takes images of that size"), quiet():
        output = module(pixel_values=torch.zeros(1, *size))
    # The pooler of a ViT that was saved without one has random weights; its first token is the image's vector.
    trained = not any("pooler." in weight for weight in missing)
    if getattr(output, "pooler_output", None) is None or not trained:
        width, forward = output.last_hidden_state.shape[-1], "output.last_hidden_state[:, 0]"
    else:
        width, forward = output.pooler_output[0].numel(), "output.pooler_output.flatten(1)"
    outputs = {"embedding": {"dtype": "FP32", "shape": [width]}}
    return replace(base, outputs=outputs, forward=forward, missing=missing)


def image_tower(encoder: Encoder) -> Parts:
    """The tower of images, whose vectors have length 1."""
    tower = TOWERS[encoder.config.model_type]
    base = _base(encoder, {"embedding": {"dtype": "FP32", "shape": [tower.width(encoder.config, "vision_config")]}})
    return replace(base, loader=tower.image, forward=f"output.{tower.image_vector}", normalized=True)


def _base(encoder: Encoder, outputs: Mapping[str, Any]) -> Parts:
    decode, notes = _decode(encoder)
    shape = [3, decode["height"], decode["width"]]
    return Parts(
        loader=AUTO_CLASSES.get(encoder.task, "AutoModel"),
        inputs={"pixel_values": {"dtype": "FP32", "shape": shape}},
        outputs=outputs,
        pipeline=[
            {"step": "decode_image", "parameters": decode, "outputs": {"pixels": "pixel_values"}},
            "network",
        ],
        example={"image": {"file": _EXAMPLE}},
        quality=["metric: cosine", "samples: {folder: samples}   # images"],
        files={_EXAMPLE: _example(*shape[1:])},
        notes=notes,
        attention="eager" if encoder.config.model_type in _EAGER else "",
    )


def _decode(encoder: Encoder) -> tuple[dict[str, Any], list[str]]:
    """Parameters of decode_image, and notes on what it does differently from the checkpoint's processor."""
    transformers = need("transformers", "models")
    with read_errors(encoder.folder / PROCESSOR, "an image processor of transformers"), quiet():
        facts = transformers.AutoImageProcessor.from_pretrained(str(encoder.folder), **FROM_FOLDER).to_dict()
    parameters, notes = _resize(encoder, facts)
    kind = encoder.processor_number("resample", 2 if facts.get("resample") is None else facts["resample"], range(6))
    filter_name = _RESAMPLES.get(kind, "")
    if not filter_name:
        notes.append(f"# transformers resizes with Pillow's filter {kind}, which decode_image lacks.")
    parameters["resample"] = filter_name or _NEAREST_FILTER
    factor = facts.get("rescale_factor", 1 / 255) if facts.get("do_rescale", True) else 1.0
    [scale] = _numbers(encoder, "rescale_factor", [factor], (1,))
    if abs(scale * 255 - 1) > 1e-6:
        parameters["scale"] = scale
    if facts.get("do_normalize"):
        for name in ("mean", "std"):
            parameters[name] = _numbers(encoder, f"image_{name}", facts.get(f"image_{name}"), (1, 3))
    return parameters, notes


def _resize(encoder: Encoder, facts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    size, crop = _sizes(encoder, facts, "size"), _sizes(encoder, facts, "crop_size")
    edge, whole = size.get("shortest_edge"), [size[side] for side in ("height", "width") if side in size]
    if facts.get("do_center_crop") and {"height", "width"} <= set(crop):
        cut = {"height": crop["height"], "width": crop["width"], "resize": "crop"}
        if edge:
            return {**cut, "resize_to": edge}, []
        if len(whole) == 2:
            note = f"# transformers stretches to {whole[0]} x {whole[1]} before it cuts; this keeps the proportions."
            return {**cut, "resize_to": min(whole)}, [note]
    if edge and facts.get("crop_pct"):
        if edge >= _CONVNEXT_WHOLE:
            return {"height": edge, "width": edge}, []
        [share] = _numbers(encoder, "crop_pct", [facts["crop_pct"]], (1,))
        if not 0 < share <= 1:
            raise encoder.refusal(f"{PROCESSOR} crop_pct", str(share), "a share of the edge, above 0 and at most 1")
        longer = encoder.processor_number("size / crop_pct", int(min(edge / share, _EDGES.stop)), _EDGES)
        return {"height": edge, "width": edge, "resize": "crop", "resize_to": longer}, []
    if len(whole) == 2 and facts.get("do_resize", True):
        return {"height": whole[0], "width": whole[1]}, []
    raise encoder.refusal(
        PROCESSOR,
        f"size {size}, which gives each image a size of its own",
        "one size for all images: a height and a width, or a center crop",
        "give it size: {height: ..., width: ...}",
    )


def _sizes(encoder: Encoder, facts: Mapping[str, Any], key: str) -> dict[str, int]:
    """The edges that a key of the processor has, in pixels."""
    sizes = facts.get(key) or {}
    if not isinstance(sizes, Mapping):
        raise encoder.refusal(f"{PROCESSOR} {key}", repr(sizes)[:120], "an object with edges, such as height and width")
    edges = {str(name): edge for name, edge in sizes.items() if edge is not None}
    return {name: encoder.processor_number(f"{key} {name}", edge, _EDGES) for name, edge in edges.items()}


def _numbers(encoder: Encoder, key: str, values: Any, lengths: tuple[int, ...]) -> list[float]:
    """Finite numbers of the processor: one, or one for each channel."""
    items = list(values) if isinstance(values, list | tuple) else [values]
    numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)
    if not numeric or len(items) not in lengths or not all(math.isfinite(item) for item in items):
        wanted = "a finite number" if lengths == (1,) else "a finite number, or one for each of 3 channels"
        raise encoder.refusal(f"{PROCESSOR} {key}", repr(values)[:120], wanted)
    return [float(item) for item in items]


def _example(height: int, width: int) -> bytes:
    """A PNG with colors that run across it, for warm-up."""
    image = need("PIL.Image", "models")
    across = image.linear_gradient("L").resize((width, height))
    down = across.transpose(image.Transpose.ROTATE_90).resize((width, height))
    stream = io.BytesIO()
    image.merge("RGB", [across, down, across.transpose(image.Transpose.ROTATE_180)]).save(stream, "PNG")
    return stream.getvalue()
