"""Panels of GPUs: whether they work, what keeps them from it, and what a request costs in energy."""

from __future__ import annotations

from functools import partial

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import BYTES, JOULES, PERCENT, WATTS, Need, Panel, Query, Section
from tritonkit.operate.observe.promql import MODEL, REPLICA, per_s, ratio, triton

__all__ = ["GPUS"]

_GPU = f"{{{{instance}}}} {{{{{m.GPU_UUID}}}}}"
_panel = partial(Panel, need=Need.gpu)


def _copies() -> str:
    """The share of a run before and after the network, of models on replicas with a GPU."""
    parts = (m.COMPUTE_INPUT, m.COMPUTE_OUTPUT, m.COMPUTE_INFER)
    before, after, network = (per_s(triton(part, MODEL, REPLICA), "instance, model") for part in parts)
    return f"{ratio(f'({before} + {after})', f'({before} + {after} + {network})', 100)} and on (instance) {_share()}"


def _share() -> str:
    return triton(m.GPU_SHARE, REPLICA)


def _energy() -> str:
    """Joules for a request, by replica."""
    requests = per_s(triton(m.REQUESTS_OK, REPLICA), "instance")
    return ratio(per_s(triton(m.GPU_ENERGY, REPLICA), "instance"), requests)


GPUS = Section(
    "GPUs",
    (
        _panel(
            "gpu",
            "GPU use",
            PERCENT,
            (Query(f"100 * {_share()}", _GPU),),
            "The share of time in which some kernel ran, by GPU.",
            "It measures busy time, not good use: a kernel on one multiprocessor counts as much as on all.",
            limits=((100.0, "all the time"),),
        ),
        _panel(
            "gpu-copies",
            "Copies, of a run",
            PERCENT,
            (Query(_copies(), "{{model}} on {{instance}}"),),
            "The share of a run that gathers inputs and gives out outputs; the network has the rest.",
            "If it is large, the GPU waits for copies: smaller types, shared memory, or more instances.",
            limits=((100.0, "no network"),),
        ),
        _panel(
            "gpu-memory",
            "GPU memory in use",
            PERCENT,
            (Query(ratio(triton(m.GPU_MEMORY_USED, REPLICA), triton(m.GPU_MEMORY_TOTAL, REPLICA), 100), _GPU),),
            "The share of each GPU's memory that all programs use.",
            "An update needs memory for two versions of a model.",
            limits=((100.0, "all memory"),),
        ),
        _panel(
            "gpu-memory-free",
            "Free GPU memory",
            BYTES,
            (Query(f"{triton(m.GPU_MEMORY_TOTAL, REPLICA)} - {triton(m.GPU_MEMORY_USED, REPLICA)}", _GPU),),
            "Free bytes of each GPU.",
            "A model that needs more than that cannot be loaded.",
        ),
        _panel(
            "gpu-power",
            "GPU power",
            WATTS,
            (
                Query(triton(m.GPU_POWER, REPLICA), _GPU),
                Query(f"{triton(m.GPU_POWER_LIMIT, REPLICA)} > 0", f"{_GPU} limit"),
            ),
            "Power by GPU, and its limit.",
            "Power reflects real work better than use does; at the limit, the GPU lowers its clock.",
        ),
        _panel(
            "gpu-energy",
            "GPU energy of a request",
            JOULES,
            (Query(_energy(), "{{instance}}"),),
            "Energy of a replica's GPUs over its requests, an ensemble's steps included.",
            "It grows if batches shrink or the GPU idles. Replicas that share a GPU each have all of its energy.",
        ),
    ),
    optional=True,
)
