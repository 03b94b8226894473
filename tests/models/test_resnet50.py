"""ResNet-50 without its weights: the architecture, the pictures, the score."""

from __future__ import annotations

import io
from fnmatch import filter as filter_names
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.models.conftest import folder_module
from tritonkit.repository.modelspec import load, load_all


@pytest.fixture(scope="module")
def network() -> Any:
    """The network on torch's meta device: shapes without numbers."""
    with torch.device("meta"):
        return folder_module("resnet50", "network").build().eval()


def test_it_has_the_parameters_of_resnet50(network: Any) -> None:
    """25,557,032 in 53 convolutions, 53 batch norms and one linear layer, as published."""
    assert sum(p.numel() for p in network.parameters()) == 25_557_032
    kinds = [type(module) for module in network.modules()]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.BatchNorm2d), kinds.count(nn.Linear)) == (53, 53, 1)


def test_it_does_the_work_of_version_1_5(network: Any) -> None:
    """4.09 billion multiply-adds an image; version 1, with its strides elsewhere, has 3.86."""
    work = 0

    def count(module: Any, _inputs: Any, output: torch.Tensor) -> None:
        nonlocal work
        inner = module.weight[0].numel()  # multiply-adds per output element
        work += output[0].numel() * inner

    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    pixels = torch.empty(2, 3, 224, 224, dtype=torch.uint8, device="meta")
    logits = network(pixels)
    assert logits.shape == (2, 1000)
    assert logits.dtype == torch.float32
    assert round(work / 1e9, 2) == 4.09


def test_a_torchvision_checkpoint_has_the_same_names(network: Any) -> None:
    """Its state_dict has 320 entries; some from each part, with their shapes."""
    state = network.state_dict()
    assert len(state) == 320
    for name, shape in {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_mean": (64,),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer2.3.conv2.weight": (128, 128, 3, 3),
        "layer3.5.bn3.num_batches_tracked": (),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "fc.bias": (1000,),
    }.items():
        assert state[name].shape == shape, name


def test_bytes_are_normalized_inside() -> None:
    """The first operation gives (x / 255 - mean) / std of ImageNet, per channel."""
    normalize = folder_module("resnet50", "network").Normalize()
    pixels = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(normalize(pixels), (pixels / 255 - mean) / std)


def test_pictures_are_the_same_for_a_seed_and_differ_within_it(data: ModuleType) -> None:
    """The same seed gives the same pictures, another gives others, and any two kinds look different."""
    some = data.pictures(50, 7)
    assert some.shape == (50, 3, 224, 224)
    assert some.dtype == np.uint8
    np.testing.assert_array_equal(data.pictures(3, 7), some[:3])
    assert (data.pictures(3, 8) != some[:3]).mean() > 0.5
    small = some[:, :, ::8, ::8].reshape(50, -1).astype(float)
    distances = np.linalg.norm(small[:, None] - small, axis=2) + 1e9 * np.eye(50)
    assert distances.min() > 200
    assert small.std(axis=1).min() > 10, "none is a plain area"


def test_calibration_pictures_come_in_batches(data: ModuleType) -> None:
    """64 pictures of every kind in batches of 8, no two equal, none of them held out."""
    batches = data.calibration_batches()
    assert {batch["pixels"].shape for batch in batches} == {(8, 3, 224, 224)}
    pictures = [image.tobytes() for batch in batches for image in batch["pixels"]]
    assert len(set(pictures)) == len(pictures) == 64
    _, seed = data.HELD_OUT
    assert not {image.tobytes() for image in data.pictures(5, seed)} & set(pictures)


def test_training_pictures_have_no_labels(data: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 16 without targets, of pictures that are neither held out nor calibrated with."""
    count, seed = data.TRAINING
    assert seed not in {data.HELD_OUT[1], data.CALIBRATION[1]}
    assert count % data.TRAINING_BATCH == 0, "batch normalization sees no small batch"
    monkeypatch.setattr(data, "TRAINING", (32, seed))
    batches = data.training_batches()
    assert [batch["pixels"].shape for batch, _ in batches] == 2 * [(16, 3, 224, 224)]
    assert {targets for _, targets in batches} == {None}


def test_pruning_keeps_what_the_blocks_add_to_each_other(network: Any, project: Path) -> None:
    """Named are the stem, each block's last convolution and the shortcuts' own: 1 + 16 + 4 of 53."""
    optimize = load(project / "models" / "resnet50", project).model.optimize
    layers = [name for name, m in network.named_modules() if isinstance(m, nn.Conv2d)]
    kept = {name for pattern in optimize.keep_channels for name in filter_names(layers, pattern)}
    inside = {name for name in layers if name.count(".") == 2 and name[-5:] in ("conv1", "conv2")}
    assert kept == set(layers) - inside
    assert (len(kept), len(inside)) == (21, 32)


def test_agreement_has_a_score_for_each_picture(data: ModuleType) -> None:
    """1.0 where the best class is the reference's, whatever the other logits."""
    random = np.random.default_rng(0)
    reference = [{"logits": random.standard_normal((size, 1000))} for size in (8, 3)]
    outputs = [{"logits": 2 * batch["logits"]} for batch in reference]
    outputs[1]["logits"][2] *= -1
    scores = data.agreement(outputs, reference)
    assert scores.tolist() == [1.0] * 10 + [0.0]


def test_the_spec_says_what_it_is(project: Path) -> None:
    """Built only when named, says that its weights are random, and sends bytes to the network."""
    spec = load(project / "models" / "resnet50", project)
    assert not spec.model.default
    assert "resnet50" not in {other.name for other in load_all(project)}
    assert "random weights" in spec.model.description
    assert "pruned+openvino-int8" in spec.model.optimize.variants
    decode, _, top = spec.steps
    assert decode is not None
    assert top is not None
    tensor = spec.model.network.inputs["pixels"]
    assert decode.outputs == {"pixels": (tensor.dtype, tensor.dims)} == {"pixels": ("UINT8", (3, 224, 224))}
    assert top.outputs["label"] == ("BYTES", (5,))
    labels = top.files["labels"].read_text().splitlines()
    assert labels == [f"class_{number:03d}" for number in range(1000)]


def test_the_example_is_a_small_picture(project: Path) -> None:
    """A JPEG larger than the crop and of few bytes, because warm-up data hold it."""
    data = (project / "models" / "resnet50" / "examples" / "discs.jpg").read_bytes()
    assert len(data) < 20_000
    assert min(Image.open(io.BytesIO(data)).size) >= 224
