"""Channels go, outputs stay: small networks of several kinds, and those that cannot be pruned."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.repository.optimize.transforms.conftest import MakeJob
from tritonkit.errors import BuildError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.transforms.loop import outputs_of, parameter_count
from tritonkit.repository.optimize.transforms.pruned import make, remove_channels

SPEC = """
name: net
network:
  torch: network:build
  inputs: {x: {dtype: FP32, shape: [3, 8, 8]}}
  outputs: {y: {dtype: FP32, shape: [5]}}
optimize: {training: data:training, epochs: 4, learning_rate: 0.003, channels: 0.5}
"""
NETWORK = """
from torch import nn
def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(128, 5))
"""
DATA = """
import numpy as np
def training():
    random = np.random.default_rng(0)
    return [({"x": random.standard_normal((8, 3, 8, 8)).astype(np.float32)}, random.integers(0, 5, 8))
            for _ in range(4)]
"""
IMAGES = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


class Bottleneck(nn.Module):
    """A residual block as ResNet-50 has them: [batch, 16, h, w] -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(16, 8, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds the branch."""
        return torch.relu(x + self.branch(x))


class Two(nn.Module):
    """Features [batch, 16], which are an output too, and scores [batch, 5] made from them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.scores = (nn.Conv2d(3, 16, 8), nn.Linear(16, 16), nn.Linear(16, 5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features, scores."""
        features = self.second(torch.relu(self.first(x).flatten(1)))
        return features, self.scores(features)


class Fixed(nn.Module):
    """A network that writes its number of channels into a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(192, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two halves of 8 channels, exchanged."""
        halves = self.first(x.flatten(1)).reshape(-1, 2, 8)
        return self.second(halves.flip(1).flatten(1))


def resnet() -> nn.Module:
    """A stem, three residual blocks whose channels hang together, and a classifier."""
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    blocks = [Bottleneck() for _ in range(3)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


@pytest.fixture
def spec(make_job: MakeJob) -> Spec:
    """A spec that asks for half of the channels."""
    return make_job(SPEC, network__py=NETWORK, data__py=DATA).spec


def test_a_network_is_halved_and_fine_tuned(make_job: MakeJob) -> None:
    """Each layer keeps half its channels and the last its outputs; training brings the loss down."""
    lines: list[str] = []
    job = make_job(SPEC, lines, network__py=NETWORK, data__py=DATA)
    module, notes = make(job)
    assert [tuple(layer.weight.shape) for layer in module if isinstance(layer, nn.Conv2d)] == [
        (8, 3, 3, 3),
        (16, 8, 3, 3),
    ]
    assert module[-1].weight.shape == (5, 64)
    assert not module.training
    assert parameter_count(module) == 1765
    assert notes == ("parameters: 1,765, before 5,829 (0.303 of them)",)
    losses = [float(line.split("loss ")[1]) for line in lines if "loss" in line]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_the_weakest_channels_go(spec: Spec) -> None:
    """Half of the channels are zero: those are removed, and the outputs stay as they were."""
    network = nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 5))
    dead = torch.arange(0, 16, 2)
    with torch.no_grad():
        network[0].weight[dead] = 0
    smaller = remove_channels(spec, network, IMAGES)
    assert smaller[0].weight.shape[0] == 8
    torch.testing.assert_close(smaller(*IMAGES), network(*IMAGES))


def test_residual_blocks_lose_the_same_channels(spec: Spec) -> None:
    """A ResNet keeps its structure: every layer has half of its channels, the classifier its classes."""
    network = resnet()
    smaller = remove_channels(spec, network, IMAGES)
    wide, narrow = (
        [layer.weight.shape[0] for layer in net.modules() if isinstance(layer, nn.Conv2d)] for net in (network, smaller)
    )
    assert [2 * channels for channels in narrow] == wide
    assert smaller(*IMAGES).shape == (2, 5)
    assert parameter_count(smaller) < 0.35 * parameter_count(network)
    assert network[0].weight.shape[0] == 16, "the teacher itself is untouched"


@pytest.fixture
def keeping(make_job: MakeJob) -> Callable[..., Spec]:
    """A spec whose `keep_channels` are these patterns."""

    def make(*patterns: str) -> Spec:
        text = SPEC.replace("channels: 0.5", f"channels: 0.5, keep_channels: {list(patterns)}")
        return make_job(text, network__py=NETWORK, data__py=DATA).spec

    return make


def channels(network: nn.Module) -> list[int]:
    """Output channels of each convolution, in order."""
    return [layer.out_channels for layer in network.modules() if isinstance(layer, nn.Conv2d)]


def test_layers_that_are_named_keep_their_channels(keeping: Callable[..., Spec]) -> None:
    """With the ends of all branches named, residual blocks lose channels inside alone."""
    smaller = remove_channels(keeping("0", "*.branch.6"), resnet(), IMAGES)
    assert channels(resnet()) == [16, *3 * [8, 8, 16]]
    assert channels(smaller) == [16, *3 * [4, 4, 16]]
    assert smaller(*IMAGES).shape == (2, 5)


def test_what_is_added_to_a_kept_layer_keeps_its_channels_too(keeping: Callable[..., Spec]) -> None:
    """The stem's channels are those of every block's end: naming the stem keeps them all."""
    assert channels(remove_channels(keeping("0"), resnet(), IMAGES)) == [16, *3 * [4, 4, 16]]


def test_a_pattern_that_names_no_layer_is_refused(keeping: Callable[..., Spec]) -> None:
    """A typing error does not quietly remove what was to stay; a norm is no layer with channels of its own."""
    with pytest.raises(BuildError) as caught:
        remove_channels(keeping("*.branch.6", "3.brunch.0"), resnet(), IMAGES)
    assert caught.value.where.endswith("optimize.keep_channels")
    assert caught.value.found == "'3.brunch.0' matches no layer with channels"
    assert "'3.branch.0'" in caught.value.wanted
    with pytest.raises(BuildError):
        remove_channels(keeping("1"), resnet(), IMAGES)


def test_nothing_left_to_remove_is_told_with_what_is_kept(keeping: Callable[..., Spec]) -> None:
    """The message says that every layer is named."""
    with pytest.raises(BuildError) as caught:
        remove_channels(keeping("*"), resnet(), IMAGES)
    assert "outputs and keep_channels kept" in caught.value.found


def test_every_output_keeps_its_channels(spec: Spec) -> None:
    """Features that are returned and used further are not pruned; what lies before them is."""
    smaller = remove_channels(spec, Two(), IMAGES)
    assert [tuple(output.shape) for output in outputs_of(smaller, IMAGES)] == [(2, 16), (2, 5)]
    assert smaller.first.weight.shape[0] == 8


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "no layer has channels that can be removed"),
        (nn.Sequential(nn.Flatten(), nn.Softmax(1)), "no layer has channels that can be removed"),
        (Fixed(), "its channels cannot be removed: RuntimeError"),
    ],
    ids=["one layer", "no layer", "fixed shape"],
)
def test_what_cannot_be_pruned_is_refused(spec: Spec, network: nn.Module, message: str) -> None:
    """A network of one layer, of none, or that knows its channels by heart is an error of its own."""
    with pytest.raises(BuildError) as caught:
        remove_channels(spec, network, IMAGES)
    assert caught.value.where.endswith("optimize.channels")
    assert message in caught.value.found
    assert "another variant" in caught.value.todo
