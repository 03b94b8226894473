"""Serves program.pt2, a network that torch.export wrote, with Triton's python backend on a CPU or a GPU.

The build puts this file and its imports next to the program. Triton's native pytorch backend does not take such files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend_model import StandIn
from pytorch_network import Loaded, Opening, open_file

if TYPE_CHECKING:
    from backend_batch import Network


def open_network(args: dict[str, str]) -> Network:
    """The program of the model version in `args`."""
    return open_file(args, "python", "program.pt2", _load)


def _load(opening: Opening) -> Loaded:
    """The program's function on the instance's device, to which weights, constants and new tensors go."""
    try:
        from torch.export.passes import move_to_device_pass

        program = opening.torch.export.load(opening.path)
        if opening.device is not None:
            program = move_to_device_pass(program, opening.place)
        return Loaded(program.module())
    except Exception as error:  # RuntimeError mostly, about the version or the file
        raise opening.refused(error, "a program that this version can read: build it again") from error


class TritonPythonModel(StandIn):
    """One instance of one model: one exported program in its own process."""

    open_network = staticmethod(open_network)
