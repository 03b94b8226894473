"""ResNet-50 with its calibrated random weights: worth measuring on, exported and replaced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from tests.conftest import WriteModel
from tests.models.conftest import MODELS, folder_module
from tritonkit.repository.export.onnx_file import open_session, run_session
from tritonkit.repository.export.torch_module import make_module
from tritonkit.repository.export.torch_onnx import export_onnx
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.weights import WeightCache, load_trained

FOLDER = MODELS / "resnet50"


def calibrated() -> Any:
    """The network as a build makes it."""
    network = make_module(load(FOLDER, MODELS.parent), "network:build", "test")
    folder_module("resnet50", "calibrate").calibrate(network)
    return network


@pytest.fixture(scope="module")
def network() -> Any:
    """The network, made once for all tests that only look at it."""
    return calibrated()


def logits_of(network: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first held-out pictures and what the network says of them."""
    data = folder_module("resnet50", "data")
    pixels = data.pictures(count, data.HELD_OUT[1])
    with torch.no_grad():
        return pixels, network(torch.from_numpy(pixels)).numpy()


def test_activations_neither_vanish_nor_blow_up(network: Any) -> None:
    """Behind each of 53 batch norms, and each block, values have a spread of the same order."""
    spreads: dict[str, float] = {}
    handles = [
        module.register_forward_hook(
            lambda _module, _inputs, output, name=name: spreads.update({name: float(output.std())})
        )
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d) or type(module).__name__ == "Bottleneck"
    ]
    logits_of(network, 8)
    for handle in handles:
        handle.remove()
    assert len(spreads) == 53 + 16
    assert min(spreads.values()) > 0.1
    assert max(spreads.values()) < 2


def test_pictures_get_classes_of_their_own(network: Any) -> None:
    """Over pictures of every kind the best class is its group's, clearly ahead of the second."""
    images = folder_module("resnet50", "images")
    _, logits = logits_of(network, images.KINDS)
    best = logits.argmax(axis=1)
    step = 1000 // images.GROUPS
    own = np.array([images.group(kind) * step for kind in range(images.KINDS)])
    assert (best == own).mean() > 0.9
    assert len(set(best.tolist())) >= images.GROUPS - 1
    first, second = np.sort(logits, axis=1)[:, :-3:-1].T
    assert np.median(first - second) > 3


def test_the_same_seed_gives_the_same_weights(network: Any) -> None:
    """A second build is the first one, parameter for parameter and statistic for statistic."""
    again = calibrated().state_dict()
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(again[name], tensor, msg=name)


def test_a_checkpoint_replaces_the_random_weights(network: Any, write_model: WriteModel, tmp_path: Path) -> None:
    """With `weights` in the spec the build loads them as they are, and calibrates nothing."""
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    state["fc.bias"] += 1
    torch.save({"state_dict": state}, tmp_path / "checkpoint.pth")
    text = (FOLDER / "model.yaml").read_text().replace("name: resnet50", "name: net")
    network_part = text[text.index("network:") : text.index("quality:")]
    text = "name: net\n" + network_part.replace("train: calibrate:calibrate", "weights: resnet50.pth")
    spec = write_model(
        text, network__py=(FOLDER / "network.py").read_text(), resnet50__pth=(tmp_path / "checkpoint.pth").read_bytes()
    )
    loaded = load_trained(spec, WeightCache(tmp_path, spec), lambda _: None)
    assert not loaded.training
    torch.testing.assert_close(loaded.state_dict(), state)


def test_the_exported_file_agrees_and_starts_with_a_cheap_prologue(network: Any, tmp_path: Path) -> None:
    """Bytes go through Cast, Sub and Div into the first convolution; logits are PyTorch's."""
    pixels, logits = logits_of(network, 4)
    file = tmp_path / "model.onnx"
    spec = load(FOLDER, MODELS.parent)
    export_onnx(spec, network, {"pixels": pixels[:3]}, True, file)
    nodes = onnx.load(file).graph.node
    assert [node.op_type for node in nodes[:4]] == ["Cast", "Sub", "Div", "Conv"]
    assert Counter(node.op_type for node in nodes)["Conv"] == 53
    output = run_session(open_session(file, "test"), {"pixels": pixels}, "test")["logits"]
    np.testing.assert_allclose(output, logits, atol=1e-4, rtol=1e-3)
