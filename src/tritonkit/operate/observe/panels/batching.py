"""Panels about a request's time in Triton: queue, batches, runs, cache."""

from __future__ import annotations

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import COUNT, MS, PERCENT, Need, Panel, Query, Section
from tritonkit.operate.observe.promql import MODEL, REPLICA, instants, per_s, ratio, triton

__all__ = ["BATCHING"]

_CHOSEN = (MODEL, REPLICA)
_SERVED = per_s(triton(m.REQUESTS_OK, *_CHOSEN))
_RUNS = per_s(triton(m.EXECUTIONS, *_CHOSEN))
_BATCH = ratio(per_s(triton(m.INFERENCES, *_CHOSEN)), _RUNS)
_PARTS = {"input": m.COMPUTE_INPUT, "infer": m.COMPUTE_INFER, "output": m.COMPUTE_OUTPUT}
_HITS = per_s(triton(m.CACHE_HITS, *_CHOSEN))
_RAN = f"({_SERVED} - {_HITS} or {_SERVED})"
"""Requests that the cache did not answer; a model without a cache has no hits."""


def _summed(metric: str) -> str:
    return f"sum (rate({triton(metric, *_CHOSEN)}[$window]))"


_WHOLE = f"({' + '.join(map(_summed, _PARTS.values()))})"

BATCHING = Section(
    "Queue, batches and runs",
    (
        Panel(
            "queue-time",
            "Time in the queue, mean",
            MS,
            (Query(ratio(per_s(triton(m.QUEUE_DURATION, *_CHOSEN)), _SERVED, 1e-3), "{{model}}"),),
            "The time that a request waits before its run begins, including the batcher's delay.",
            "A wait longer than a run means too few instances, or more traffic than they can handle.",
            Need.traffic,
        ),
        Panel(
            "queue-length",
            "Waiting requests",
            COUNT,
            (Query(instants(triton(m.PENDING, *_CHOSEN)), "{{model}}"),),
            "Requests in Triton's queues at the moment of each scrape.",
            "A growing queue is the surest sign of too little capacity; autoscale on it.",
            Need.scraped,
        ),
        Panel(
            "batch-size",
            "Effective batch size",
            COUNT,
            (Query(_BATCH, "{{model}}"),),
            "Inferences in one run of the model, on average; a run that failed counts, its inferences do not.",
            "1 under load means that the batcher has nothing to join: serial callers, different shapes, or no batcher.",
            Need.traffic,
        ),
        Panel(
            "batch-use",
            "Batches filled",
            PERCENT,
            (
                Query(
                    f"100 * ({_BATCH}) / ({instants(triton(m.MAX_BATCH_SIZE, *_CHOSEN), how='max')} > 0)", "{{model}}"
                ),
            ),
            "The effective batch size over `max_batch_size`.",
            "Near 100 % a larger limit may bring more; near 0 a smaller one costs less memory.",
            Need.gauges,
        ),
        Panel(
            "run-time",
            "Time of a run, mean",
            MS,
            (Query(ratio(per_s(triton(m.COMPUTE_INFER, *_CHOSEN)), _RAN, 1e-3), "{{model}}"),),
            "The model's own time for the batch that contains a request.",
            "It grows with the batch size, and when other programs use the cores.",
            Need.traffic,
        ),
        Panel(
            "compute-split",
            "Where runs spend their time",
            PERCENT,
            tuple(Query(ratio(_summed(metric), _WHOLE, 100), name) for name, metric in _PARTS.items()),
            "Shares of all runs: copying inputs into a batch, the model, copying outputs.",
            "Inputs or outputs above a third: the tensors are large compared with the model's work.",
            Need.traffic,
            stacked=True,
        ),
        Panel(
            "cache-hits",
            "Answers from the response cache",
            PERCENT,
            (Query(ratio(f"100 * {_HITS}", f"({_HITS} + {per_s(triton(m.CACHE_MISSES, *_CHOSEN))})"), "{{model}}"),),
            "Hits over lookups of Triton's response cache, by model.",
            "Few hits: every lookup costs time and saves none. A sudden 0: the cache is down, or was emptied.",
            Need.cache,
        ),
    ),
)
