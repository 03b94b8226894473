"""Panels of replicas and machines: a replica that differs from the others, and free resources."""

from __future__ import annotations

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import BYTES, COUNT, MS, PER_S, PERCENT, Need, Panel, Query, Section
from tritonkit.operate.observe.promql import MODEL, REPLICA, instants, per_s, ratio, triton

__all__ = ["MACHINE", "REPLICAS"]

_CHOSEN = (MODEL, REPLICA)

REPLICAS = Section(
    "Replicas",
    (
        Panel(
            "replica-up",
            "Replicas up",
            COUNT,
            (Query(triton(m.UP, REPLICA), "{{instance}}"),),
            "1 while a replica serves its metrics, else 0.",
            "The other replicas take over the share of one that is down.",
            Need.scraped,
        ),
        Panel(
            "replica-traffic",
            "Requests answered, by replica",
            PER_S,
            (Query(per_s(triton(m.REQUESTS_OK, *_CHOSEN), "instance"), "{{instance}}"),),
            "Requests of all models, including an ensemble's steps, by replica.",
            "Replicas with the same models should have equal traffic; one with less is slow, new, or left out.",
            Need.traffic,
        ),
        Panel(
            "replica-latency",
            "Latency in Triton, by replica",
            MS,
            (
                Query(
                    ratio(
                        per_s(triton(m.ALL_DURATION, *_CHOSEN), "instance"),
                        per_s(triton(m.REQUESTS_OK, *_CHOSEN), "instance"),
                        1e-3,
                    ),
                    "{{instance}}",
                ),
            ),
            "The mean over all chosen models; choose one to compare like with like.",
            "One that takes longer than the others has a slow machine or a noisy neighbor.",
            Need.traffic,
        ),
        Panel(
            "stub-up",
            "Models with their Python processes",
            COUNT,
            (Query(instants(triton(m.STUB_UP, *_CHOSEN), "instance, model", "min"), "{{model}} on {{instance}}"),),
            "0 from the death of a Python process until its model answers again.",
            "Meanwhile Triton reports such a model as ready.",
            Need.stubs,
        ),
    ),
)

MACHINE = Section(
    "Machine",
    (
        Panel(
            "cpu",
            "CPU use",
            PERCENT,
            (Query(f"100 * {triton(m.CPU_SHARE, REPLICA)}", "{{instance}}"),),
            "The share of all the machine's cores that all its programs use, as each replica sees it.",
            "Above 80 %, latency grows with every further request. Do not autoscale on it: batches distort it.",
            Need.scraped,
            ((100.0, "all cores"),),
        ),
        Panel(
            "memory",
            "Memory in use",
            PERCENT,
            (Query(ratio(triton(m.MEMORY_USED, REPLICA), triton(m.MEMORY_TOTAL, REPLICA), 100), "{{instance}}"),),
            "The share of the machine's memory that all its programs use. A container's own limit is not included.",
            "When memory runs out, the kernel kills a process.",
            Need.scraped,
            ((100.0, "all memory"),),
        ),
        Panel(
            "shared-memory",
            "Free shared memory",
            BYTES,
            (Query(triton(m.SHARED_MEMORY_FREE, REPLICA), "{{instance}}"),),
            "Free bytes of /dev/shm, where each Python process has its region.",
            "Regions grow with the largest batch; without free space, requests fail.",
            Need.gauges,
        ),
        Panel(
            "disk",
            "Free disk space",
            BYTES,
            (Query(triton(m.DISK_FREE, REPLICA), "{{instance}}"),),
            "Free bytes of the file system with the model repository.",
            "A full disk stops publishing, and with it every update.",
            Need.gauges,
        ),
    ),
)
