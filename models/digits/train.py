"""Train the digits network: a few seconds on two cores."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from data import split
from torch import nn

EPOCHS = 40
BATCH = 128


def train(network: nn.Module) -> None:
    """Fit the digits network in place."""
    fit(network, EPOCHS, max_learning_rate=1e-2)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread, because for images this small a second one gains little, and on shared cores both wait for each
    other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def fit(network: nn.Module, epochs: int, max_learning_rate: float) -> None:
    """Fit any network in place with one-cycle Adam and small random shifts of the images."""
    pixels, labels = (torch.from_numpy(array) for array in split()[:2])
    steps = epochs * (len(pixels) // BATCH + 1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=max_learning_rate, total_steps=steps)
    loss = nn.CrossEntropyLoss(label_smoothing=0.05)
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(pixels)).split(BATCH):
            optimizer.zero_grad()
            loss(network(_shifted(pixels[chosen])), labels[chosen]).backward()
            optimizer.step()
            schedule.step()


def _shifted(pixels: torch.Tensor) -> torch.Tensor:
    """Half of the batches moved sideways by one pixel: [batch, 1, 8, 8] -> the same."""
    if torch.rand(()) < 0.5:
        return pixels
    moved = torch.roll(pixels, shifts=int(torch.randint(0, 2, ())) * 2 - 1, dims=3)
    edge = moved.clone()
    edge[..., 0] = 0
    edge[..., -1] = 0
    return edge
