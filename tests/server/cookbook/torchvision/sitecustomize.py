"""Declares the operators of torchvision that its Python needs to be imported, where their library cannot be loaded."""

from __future__ import annotations

import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
