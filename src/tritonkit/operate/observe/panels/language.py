"""Panels of language models: first tokens, the pace of the others, and whether sequences have room."""

from __future__ import annotations

from functools import partial

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import (
    COUNT,
    EVENTS_PER_S,
    MS,
    PER_S,
    PERCENT,
    TOKENS_PER_S,
    Need,
    Panel,
    Query,
    Section,
)
from tritonkit.operate.observe.promql import MODEL, REPLICA, instants, per_s, ratio, triton

__all__ = ["LANGUAGE"]

_CHOSEN = (MODEL, REPLICA)
_PERCENTS = (50, 95, 99)


def _of(metric: str) -> str:
    return triton(metric, *_CHOSEN)


def _percentiles(metric: str) -> tuple[Query, ...]:
    """Percentiles, in ms, of a histogram of seconds."""
    buckets = per_s(_of(f"{metric}_bucket"), "le, model")
    return tuple(
        Query(f"1000 * (histogram_quantile({percent / 100:g}, {buckets}) >= 0)", f"{{{{model}}}} p{percent}")
        for percent in _PERCENTS
    )


_panel = partial(Panel, need=Need.llm)

LANGUAGE = Section(
    "Language models",
    (
        _panel(
            "llm-first-token",
            "Time to first token",
            MS,
            _percentiles(m.LLM_FIRST_S),
            "From a request's arrival in its model to its first token, including the wait for a slot; percentiles, "
            "interpolated within a bucket of the model's histogram.",
            "It is the reader's wait; long prompts, a wait for a slot, or a full cache raise it.",
        ),
        _panel(
            "llm-between-tokens",
            "Time between tokens",
            MS,
            _percentiles(m.LLM_BETWEEN_S),
            "The time between two tokens of a sequence; percentiles are interpolated too.",
            "It grows with the running batch; a p99 far above the median comes from others' prompts, or from pauses "
            "for lack of cache.",
        ),
        _panel(
            "llm-tokens",
            "Tokens generated",
            TOKENS_PER_S,
            (Query(per_s(_of(m.LLM_TOKENS)), "{{model}}"),),
            "Tokens of answers a second, of all sequences together.",
            "It is the throughput; if it no longer grows with the running sequences, the machine is saturated.",
        ),
        _panel(
            "llm-prompt-tokens",
            "Tokens of prompts",
            TOKENS_PER_S,
            (Query(per_s(_of(m.LLM_PROMPT_TOKENS)), "{{model}}"),),
            "Tokens of prompts whose answers began, a second; those found in the prefix cache count too.",
            "Prompts and answers share the engine: more of one leaves less for the other.",
        ),
        _panel(
            "llm-sequences",
            "Sequences",
            COUNT,
            tuple(
                Query(instants(_of(metric)), f"{{{{model}}}} {name}")
                for metric, name in (
                    (m.LLM_RUNNING, "running"),
                    (m.LLM_WAITING, "waiting"),
                    (m.LLM_STALLED, "left out"),
                )
            ),
            "Sequences that run, requests that wait for a slot, and running sequences that the last step left out.",
            "Waiting, with free cache: raise max_sequences. Left out, with a full cache: raise cache_mib.",
        ),
        _panel(
            "llm-cache",
            "Cache of keys and values in use",
            PERCENT,
            (Query(f"100 * {instants(_of(m.LLM_CACHE), 'model, instance', 'max')}", "{{model}} on {{instance}}"),),
            "The part that running sequences hold, without blocks that are kept only for shared prefixes.",
            "When the cache is full, sequences pause and are computed again.",
            limits=((100.0, "full"),),
        ),
        _panel(
            "llm-preemptions",
            "Pauses for lack of cache",
            EVENTS_PER_S,
            (Query(per_s(_of(m.LLM_PREEMPTIONS)), "{{model}}"),),
            "How often a sequence in progress got no token, because the cache had no block for it or others took "
            "its blocks.",
            "Each is a gap in a reader's text, and work done twice.",
        ),
        _panel(
            "llm-outcomes",
            "Requests ended, by outcome",
            PER_S,
            (Query(f"{per_s(_of(m.LLM_REQUESTS), 'model, outcome')} > 0", "{{model}} {{outcome}}"),),
            "stop and length: whole answers; cancelled: their callers left; deadline; refused: no slot to wait in; "
            "invalid: callers' mistakes; failed: the rest.",
            "Triton counts an answer that ends with an error as a success; only this panel tells them apart.",
        ),
        _panel(
            "llm-steps",
            "Time of a step, mean",
            MS,
            (
                Query(
                    ratio(per_s(_of(m.LLM_STEP_S), "model, phase"), per_s(_of(m.LLM_STEPS), "model, phase"), 1e3),
                    "{{model}} {{phase}}",
                ),
            ),
            "Means of steps that also computed prompts (prefill), and of those with one token per sequence (decode).",
            "While a prompt is computed, all others wait: if prefill takes many times as long, lower "
            "max_batched_tokens.",
        ),
    ),
    optional=True,
)
