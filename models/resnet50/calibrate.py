"""Give random weights the scale of trained ones, with a last layer that distinguishes pictures.

Plain random weights are useless for measuring: activations vanish or blow up over 53 convolutions, and every picture
gets the same class.
"""

import numpy as np
import torch
from images import FINENESS, GROUPS, KINDS, TEXTURES, group, picture
from network import CLASSES, ResNet50
from torch import nn

RIDGE = 0.03  # share of the features' mean square
MARGIN = 10.0  # logits between a picture's own class and the others, as trained networks have
SPREAD = 0.5  # of the logits of classes that no picture has
SEED = 1  # data.py has other pictures
SEEN = [  # one picture of each kind, and three of grain, of which there is one texture in a group
    kind for kind in range(KINDS) for _ in range(3 if FINENESS[kind % len(TEXTURES)] == 2 else 1)
]


@torch.no_grad()
def calibrate(network: ResNet50) -> None:
    """Set BatchNorm's statistics and the last layer of `network` in place, from 60 pictures.

    One pass in training mode, in which each layer gets the output of the calibrated ones before it.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0  # statistics of this batch alone
    random = np.random.default_rng(SEED)
    pixels = np.stack([picture(kind, random) for kind in SEEN])
    _fit(network.fc, network.train().features(torch.from_numpy(pixels)).double())
    for norm in norms:
        norm.momentum = 0.1  # BatchNorm's default, for further training
    network.eval()


def _fit(layer: nn.Linear, features: torch.Tensor) -> None:
    """Ridge regression of each picture's group on its features [pictures, 2048].

    The groups get classes spread over the 1000; the rest stays random, near zero.
    """
    groups = torch.tensor([group(kind) for kind in SEEN])
    targets = nn.functional.one_hot(groups, GROUPS).double()
    mean = features.mean(dim=0)
    centered = features - mean
    products = centered @ centered.T  # [pictures, pictures]
    size = products.diagonal().mean()
    ridge = RIDGE * size * torch.eye(len(SEEN))
    solved = torch.linalg.solve(products + ridge, targets - targets.mean(dim=0))
    weight = torch.randn(layer.weight.shape, dtype=torch.double) * (SPREAD / size.sqrt())
    weight[:: CLASSES // GROUPS][:GROUPS] = MARGIN * (centered.T @ solved).T
    layer.weight.copy_(weight)
    layer.bias.copy_(-weight @ mean)
