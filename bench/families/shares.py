"""Shares of the processor time that a page's models take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processor import cpu_s
from bench.requests import answer_of
from tritonkit.serve.core.stubs import find_stubs
from tritonkit.serve.core.supervisor import children, run_prefix

if TYPE_CHECKING:
    from bench.families.kitchen import Kitchen

__all__ = ["lines", "seconds", "shares"]

SERVER = "tritonserver"


def seconds(place: Kitchen) -> Counter[str]:
    """Processor time so far: of each model that Python runs, and of the server's own process, in which the other
    networks run: it is divided by the time that each of them computed."""
    if place.endpoint is None:
        return Counter()
    pid = place.endpoint.pid
    own = {pid, *children(pid)}
    used: Counter[str] = Counter()
    for stub in find_stubs(run_prefix()):
        if stub.pid in own:
            used[stub.model] += cpu_s(stub.pid)
    computed = _computed(place, set(used))
    total = sum(computed.values()) or 1.0
    server = cpu_s(pid)
    for model, duration in computed.items() or {SERVER: total}.items():
        used[model] += server * duration / total
    return used


def _computed(place: Kitchen, of_python: set[str]) -> dict[str, float]:
    """Model in the server's own process -> nanoseconds in its runs, each of which counts once for all its requests."""
    import grpc

    repository = place.folder / "model_repository"
    with grpc.insecure_channel(place.address) as channel:
        statistics = answer_of(channel, "Statistics", "").model_stats
    return {
        model.name: float(sum(batch.compute_infer.ns for batch in model.batch_stats))
        for model in statistics
        if model.name not in of_python and not _is_ensemble(repository / model.name)
    }


def _is_ensemble(folder: Path) -> bool:
    return "ensemble_scheduling" in (folder / "config.pbtxt").read_text()


def shares(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The share of each model in the time between, largest first."""
    spent = Counter({name: used - before.get(name, 0.0) for name, used in after.items()})
    total = sum(spent.values()) or 1.0
    return {name: round(used / total, 4) for name, used in spent.most_common()}


def lines(page: str, time: Mapping[str, float]) -> list[str]:
    """A table of the shares, as Markdown."""
    head = ["", f"| {page}: model | processor time |", "| --- | --- |"]
    return [*head, *(f"| {name} | {share:.1%} |" for name, share in time.items())]
