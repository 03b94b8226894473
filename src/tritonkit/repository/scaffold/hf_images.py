"""`tritonkit new --hf` for images: `decode_image` in front of the network, as its image processor works."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.checkpoint import read_errors
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.scaffold.hf_checkpoint import AUTO_CLASSES, TOWERS, Encoder
from tritonkit.repository.scaffold.hf_parts import Parts, label_parts

__all__ = ["image_parts", "image_tower"]

_EXAMPLE = "example.png"
_PROCESSOR = "preprocessor_config.json"
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
    return replace(base, outputs={"embedding": {"dtype": "FP32", "shape": [width]}}, forward=forward)


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
    """Parameters of decode_image, and notes on what it does otherwise than the checkpoint's processor."""
    transformers = need("transformers", "models")
    with read_errors(encoder.folder / _PROCESSOR, "an image processor of transformers"), quiet():
        facts = transformers.AutoImageProcessor.from_pretrained(
            str(encoder.folder), local_files_only=True, trust_remote_code=False
        ).to_dict()
    parameters, notes = _resize(encoder, facts)
    filter_name = _RESAMPLES.get(int(facts.get("resample", 2)), "")
    if not filter_name:
        notes.append(f"# transformers resizes with Pillow's filter {int(facts['resample'])}, which decode_image lacks.")
    parameters["resample"] = filter_name or _NEAREST_FILTER
    scale = float(facts.get("rescale_factor", 1 / 255)) if facts.get("do_rescale", True) else 1.0
    if abs(scale * 255 - 1) > 1e-6:
        parameters["scale"] = scale
    if facts.get("do_normalize"):
        parameters |= {"mean": _numbers(facts["image_mean"]), "std": _numbers(facts["image_std"])}
    return parameters, notes


def _resize(encoder: Encoder, facts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    size, crop = facts.get("size") or {}, facts.get("crop_size") or {}
    edge, whole = size.get("shortest_edge"), [size[side] for side in ("height", "width") if side in size]
    if facts.get("do_center_crop") and crop:
        cut = {"height": crop["height"], "width": crop["width"], "resize": "crop"}
        if edge:
            return {**cut, "resize_to": edge}, []
        if len(whole) == 2:
            note = f"# transformers stretches to {whole[0]} x {whole[1]} before it cuts; this keeps the proportions."
            return {**cut, "resize_to": min(whole)}, [note]
    if edge and facts.get("crop_pct"):
        if edge >= _CONVNEXT_WHOLE:
            return {"height": edge, "width": edge}, []
        return {"height": edge, "width": edge, "resize": "crop", "resize_to": int(edge / facts["crop_pct"])}, []
    if len(whole) == 2 and facts.get("do_resize", True):
        return {"height": whole[0], "width": whole[1]}, []
    raise encoder.refusal(
        _PROCESSOR,
        f"size {size}, which gives each image a size of its own",
        "one size for all images: a height and a width, or a center crop",
        "give it size: {height: ..., width: ...}",
    )


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in values] if isinstance(values, list | tuple) else [float(values)]


def _example(height: int, width: int) -> bytes:
    """A PNG with colors that run across it, for warm-up."""
    image = need("PIL.Image", "models")
    across = image.linear_gradient("L").resize((width, height))
    down = across.transpose(image.Transpose.ROTATE_90).resize((width, height))
    stream = io.BytesIO()
    image.merge("RGB", [across, down, across.transpose(image.Transpose.ROTATE_180)]).save(stream, "PNG")
    return stream.getvalue()
