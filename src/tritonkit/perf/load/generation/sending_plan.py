"""The plan of a run, handed in a file to the process that sends."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tritonkit.perf.load.generation.requests import TextRequests
from tritonkit.perf.load.openloop.arrivals import Moments

__all__ = ["READY", "SendingPlan", "load_plan", "save_plan"]

READY: Final = "ready"
"""Printed when an interrupt ends the run, not the process."""


@dataclass(frozen=True)
class SendingPlan:
    """One run.

    Args:
        addresses: gRPC addresses of servers, which get requests in turns.
        inputs: names of the inputs that the model takes.
        requests: the requests to send.
        due: float64 [n], seconds since the start when each request is due; none in a closed loop.
        users: streams under way at the same time in a closed loop; 0: an open loop.
        duration_s: seconds of a closed loop, after which no more requests are sent.
        timeout_s: seconds after which an answer that has not ended has failed.
    """

    addresses: tuple[str, ...]
    model: str
    inputs: frozenset[str]
    requests: TextRequests
    due: Moments
    users: int
    duration_s: float
    timeout_s: float


def save_plan(plan: SendingPlan, folder: Path) -> None:
    """Write it where `main` reads it."""
    requests = plan.requests
    facts = {
        "addresses": plan.addresses,
        "model": plan.model,
        "inputs": sorted(plan.inputs),
        "users": plan.users,
        "duration_s": plan.duration_s,
        "timeout_s": plan.timeout_s,
        "prefix": requests.prefix,
    }
    np.savez(
        folder / "plan.npz",
        facts=np.array(json.dumps(facts)),
        due=plan.due,
        start=requests.start,
        words=requests.words,
        prompt=requests.prompt,
        output=requests.output,
        clipped=requests.clipped,
    )


def load_plan(folder: Path) -> SendingPlan:
    """Read what `save_plan` has written."""
    with np.load(folder / "plan.npz", allow_pickle=False) as saved:
        facts = json.loads(str(saved["facts"]))
        requests = TextRequests(
            saved["start"], saved["words"], tuple(facts["prefix"]), saved["prompt"], saved["output"], saved["clipped"]
        )
        return SendingPlan(
            tuple(facts["addresses"]),
            facts["model"],
            frozenset(facts["inputs"]),
            requests,
            saved["due"],
            facts["users"],
            facts["duration_s"],
            facts["timeout_s"],
        )
