"""Answers of torchvision: run in a process that has it on its path, and this file there as `sitecustomize`.

PyPI's torchvision is compiled for PyTorch with CUDA. Its networks do without its operators, but its Python is only
imported where these are declared, and other libraries, such as transformers, would import it where it is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

if __name__ == "sitecustomize":
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

if __name__ == "__main__":
    from PIL import Image
    from torchvision import transforms
    from torchvision.models import resnet18

    weights, answers, *pictures = map(Path, sys.argv[1:])
    torch.manual_seed(3)
    network = resnet18()
    if not weights.exists():
        torch.save(network.state_dict(), weights)
        sys.exit()
    network.load_state_dict(torch.load(weights, weights_only=True))
    prepared = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    with torch.inference_mode():
        pixels = torch.stack([prepared(Image.open(path)) for path in pictures])
        torch.save(network.eval()(pixels).softmax(1), answers)
