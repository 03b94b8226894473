"""A network opened with a configuration, for the stand-in that serves it and for a build that tries it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backend_batch import Network
from backend_config import is_batched
from backend_padding import read_padding
from openvino import Core
from openvino_config import check_device, properties
from openvino_engine import Engine, Forms
from openvino_network import input_specs, output_specs, precision, read_network, scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def any_size(forms: Forms, _config: Mapping[str, Any]) -> Engine:
    """The network compiled once, for any batch size: for a build, which measures none."""
    return Engine(forms.free())


def network_of(
    name: str,
    path: Path,
    config: Mapping[str, Any],
    make_engine: Callable[[Forms, Mapping[str, Any]], Engine] = any_size,
    say: Callable[[str], None] = lambda _: None,
) -> Network:
    """The network of a file, checked against the configuration and compiled; ModelError if they do not fit."""
    check_device(config)
    core = Core()
    model = read_network(core, path, config)
    options = properties(config, precision(model))
    engine = make_engine(Forms(core, model, config, options), config)
    listed = ", ".join(f"{key} {value}" for key, value in options.items())
    say(f"model '{name}': {listed}; {engine.choice}")
    inputs = input_specs(model, config)
    padding = read_padding(config, inputs, output_specs(model, config))
    return Network(name, engine, inputs, is_batched(config), scalars=scalars(model, config), padding=padding)
