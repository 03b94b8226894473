"""Rules about the server's machine and its container."""

from __future__ import annotations

from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence
from tritonkit.perf.diagnose.finding import Finding
from tritonkit.perf.diagnose.machine_evidence import MachineEvidence
from tritonkit.perf.diagnose.rules.common import BUSY, at_stake, languages, parts

__all__ = ["memory", "oversubscribed_cores", "shared_memory", "throttled"]

_THROTTLED = 0.1
_LEAST_PERIODS = 5
_WAITING, _WAITING_SHARE, _WAITING_RUNS, _PRESSURE = 0.5, 0.35, 0.3, 0.4
_MEMORY_HITS, _MEMORY_STALLED, _MEMORY_LEFT = 10, 0.1, 0.03
_SHM_LEFT = 0.1


def _machines(evidence: Evidence) -> Iterator[tuple[str, MachineEvidence]]:
    for server in evidence.servers:
        if server.machine is not None:
            yield server.address, server.machine


def throttled(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """The container's CPU quota is used up in a tenth of its periods or more.

    In each such period (100 ms) all threads stand still until the next: a tenth is what reaches p90.
    """
    for address, machine in _machines(evidence):
        share, stood_s = machine.throttled, machine.throttled_s
        if share is None or stood_s is None or (machine.periods or 0) < _LEAST_PERIODS:
            continue
        if share >= _THROTTLED:
            yield Finding(
                "throttled",
                address,
                min(1.0, share),
                (
                    f"the CPU quota was used up in {share:.0%} of its periods;"
                    f" tasks stood still for {stood_s:.1f} s in {machine.seconds:.1f} s",
                    f"the server used {machine.server_cores:.2f} cores",
                ),
                "raise the container's CPU limit, or leave it out and keep the request (docker --cpus,"
                " Kubernetes resources.limits.cpu)",
                f"about {_without(share):.1f} times the processor time: what is used now over the part of"
                " periods that ran to their end",
            )


def _without(share: float) -> float:
    return 1 / max(1 - share, 0.1)


def memory(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """The container runs into its memory limit while it serves, or the machine has no memory left.

    At its limit the kernel reclaims memory within the calls of the server; ten times in the window are no
    accident. Of a whole machine: tasks waited for memory a tenth of the time, or under 3 % of it is free.
    """
    for address, machine in _machines(evidence):
        sentences = []
        if (machine.memory_hits or 0) >= _MEMORY_HITS:
            sentences.append(f"the container ran into its memory limit {machine.memory_hits} times")
        if machine.oom_kills:
            sentences.append(f"{machine.oom_kills} of its processes were killed for memory")
        if machine.psi_memory is not None and machine.psi_memory >= _MEMORY_STALLED:
            sentences.append(f"tasks waited for memory {machine.psi_memory:.0%} of the time")
        left = None if machine.memory_share is None else 1 - machine.memory_share
        # A container's page cache fills up to the limit anyway, so that alone proves nothing there.
        if left is not None and left <= _MEMORY_LEFT and machine.memory_hits is None:
            sentences.append(f"{left:.1%} of the machine's memory is free")
        if sentences:
            of = f"{machine.memory_share:.0%}" if machine.memory_share is not None else "all"
            limit = machine.memory_limit_mib
            sentences.append(f"{of} of {limit:.0f} MiB in use" if limit else f"{of} in use")
            yield Finding(
                "memory",
                address,
                1.0,
                tuple(sentences),
                "raise the memory limit, serve fewer models or instances, or a smaller variant",
                "what is read or made is no longer thrown away and fetched again; tasks waited for memory"
                f" {(machine.psi_memory or 0.0):.0%} of the time by the kernel's pressure counters (the least)",
            )


def shared_memory(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Less than a tenth of /dev/shm is free.

    Each instance of a Python model has a region there which grows with the largest batch and never shrinks;
    when there is no room the request fails, and a stub may die.
    """
    for address, machine in _machines(evidence):
        free, size = machine.shm_free_mib, machine.shm_mib
        if free is None or not size or free > _SHM_LEFT * size:
            continue
        errors = sum(e.failed for s in evidence.servers if s.address == address for e in s.entries)
        failed = f"{errors} requests failed meanwhile"
        yield Finding(
            "shared-memory",
            address,
            1 - free / size,
            (f"{free:.0f} MiB of the server's {size:.0f} MiB in /dev/shm are free", failed),
            "give the container more (docker --shm-size, an emptyDir of medium Memory); `tritonkit manifests`"
            " computes how much the repository needs",
            "requests as large as before no longer fail for want of it",
        )


def oversubscribed_cores(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """The server's threads wait for a core at least 35 % of the time in which they could run; that is half a thread or
    more on average, and half as many threads as there are cores exceed them.

    Some waiting occurs on every busy machine: two threads on one core would wait 50 %. So instances must also be busy
    or requests too slow, and the wait must be 30 % of the time of all runs: threads that wait for something else lose
    little by it. By the kernel's pressure counters, if it has them, some task waited 40 % of the time.
    """
    for address, machine in _machines(evidence):
        ran = [part for server, part in parts(evidence) if server.address == address]
        engines = [language.busy for server, _, _, language in languages(evidence) if server.address == address]
        if not (any(at_stake(part, target_ms) for part in ran) or max(engines, default=0.0) >= BUSY):
            continue
        busy = sum(part.busy for part in ran) + sum(engines)
        runnable, waiting, others = machine.runnable, machine.waiting, machine.other_runnable
        if not runnable or waiting is None or others is None:
            continue
        ready_threads = runnable + others
        if waiting < max(_WAITING, _WAITING_SHARE * runnable) or ready_threads < 1.5 * machine.cores:
            continue
        if waiting < _WAITING_RUNS * busy or (machine.psi_cpu or 1.0) < _PRESSURE:
            continue
        alone = runnable >= others
        yield Finding(
            "oversubscribed-cores",
            address,
            waiting / runnable,
            (
                f"{ready_threads:.1f} threads want {machine.cores} cores: {runnable:.1f} of the server and"
                f" {others:.1f} of others, which use {machine.other_cores:.1f} cores",
                f"the server's threads waited for a core {waiting / runnable:.0%} of the time in which"
                " they could have run",
            ),
            "fewer instances or threads, so that instances x threads is the number of cores"
            if alone
            else "move the other programs off these cores, or give the server cores of its own",
            f"runs take {waiting / runnable:.0%} less of the time they need cores for: what was waited",
        )
