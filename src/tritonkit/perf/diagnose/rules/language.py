"""Rules about language models: waits of sequences, prompts that delay tokens, slow steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence
from tritonkit.perf.diagnose.finding import Finding
from tritonkit.perf.diagnose.language_evidence import LanguageEvidence
from tritonkit.perf.diagnose.rules.common import FULL, languages
from tritonkit.perf.diagnose.snapshot import LanguageFacts

__all__ = ["kv_cache_full", "large_prefills", "places_taken", "slow_decode", "static_batching"]

_WAITING = 0.5
_FREE_PLACES, _TAKEN = 0.8, 0.8
_CACHE_FULL, _PAUSES_PER_S = 0.75, 0.2
_PREFILL_SHARE, _PREFILL_TIMES = 0.2, 3.0
_LEAST_BATCHED = 32


def static_batching(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Requests wait for a language model's batch to end while it has free places: batching is configured so that each
    batch runs until its last sequence has ended.

    "Wait" means half a request on average, "free places" a fifth of `max_sequences`.
    """
    for _, model, facts, language in languages(evidence):
        if not facts.static or language.waiting < _WAITING:
            continue
        if language.running > _FREE_PLACES * facts.max_sequences:
            continue
        free = facts.max_sequences - language.running
        yield Finding(
            "static-batching",
            model.name,
            _waiting_share(language),
            (
                f"{language.waiting:.1f} requests wait while"
                f" {language.running:.1f} of {facts.max_sequences} places are taken",
                "batching is static: the next batch begins when the last sequence of this one has ended",
            ),
            "serving.generation: {batching: continuous}, the default",
            f"{min(free, language.waiting):.1f} more sequences run at a time: those that wait while places are free",
        )


def kv_cache_full(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A language model's cache of keys and values is full, and sequences wait for it: they pause in the middle of their
    answers, or steps leave them out.

    "Full" means 75 % on average, because a sequence that ends or gives way leaves its blocks free for a moment. Steps
    must leave out half a sequence on average, or one sequence pause in five seconds, or requests wait for a place, and
    more places would find no room.
    """
    for server, model, facts, language in languages(evidence):
        paused_per_s = language.paused / max(server.seconds, 1e-9)
        held_up = language.stalled >= _WAITING or paused_per_s >= _PAUSES_PER_S
        if language.cache < _CACHE_FULL or not (held_up or _queues(facts, language)):
            continue
        served = max(1.0, language.running - language.stalled)
        times = (language.running + language.waiting) / served
        yield Finding(
            "kv-cache-full",
            model.name,
            _held_share(language),
            (
                f"its cache is {language.cache:.0%} full, and of {language.running:.1f} running sequences"
                f" a step leaves out {language.stalled:.1f}; {language.waiting:.1f} requests wait for a place",
                f"sequences that had begun to answer paused {language.paused} times ({paused_per_s:.1f} a second)",
                *_queue(language),
            ),
            "a larger serving.generation.cache_mib; or keys and values as u8 (serving.parameters:"
            " {cache_precision: u8}), fewer max_sequences, or a smaller max_tokens",
            f"with {max(times, 1.1):.1f} times the cache all of today's sequences run at the same time, if they stay as"
            " long as they are, and nothing is computed twice",
        )


def places_taken(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Requests wait for a place in a language model's running batch: `max_sequences` is reached, and the cache has
    room.

    "Wait" means half a request on average, "reached" 80 % of the places; there is room if less than three quarters of
    the cache are used.
    """
    for _, model, facts, language in languages(evidence):
        if not _queues(facts, language) or language.cache >= _CACHE_FULL:
            continue
        room = math.floor(0.9 * language.running / max(language.cache, 1e-3))
        places = max(facts.max_sequences + 1, min(math.ceil(language.running + language.waiting), room))
        yield Finding(
            "places-taken",
            model.name,
            _waiting_share(language),
            (
                f"{language.running:.1f} of {facts.max_sequences} places are taken,"
                f" and {language.waiting:.1f} requests wait",
                f"the cache is {language.cache:.0%} full",
                *_queue(language),
            ),
            f"serving.generation.max_sequences {places}; if tokens then become too slow, another replica",
            f"up to {places / facts.max_sequences:.1f} times the tokens a second, if a step with {places} sequences"
            f" takes no longer than one with {facts.max_sequences} (the bound); the cache has room for about {room}",
        )


def large_prefills(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Prompts delay the tokens of other sequences: a step that computes prompts takes three times as long as one that
    does not, longer than a token may, and such steps are a fifth of the engine's time.

    It fires if the mean number of running sequences is 1.5 or more: a single one delays no other. If every step
    computes prompts there is nothing to compare with, so a step longer than a token may take is enough.
    """
    for _, model, facts, language in languages(evidence):
        prefill, decode = language.prefill_ms, language.decode_ms or 0.0
        if prefill is None or language.between_ms is None or language.running < 1.5:
            continue
        if language.prefill_share < _PREFILL_SHARE or prefill < max(_PREFILL_TIMES * decode, target_ms):
            continue
        tokens = min(language.prompt_tokens_per_step or math.inf, facts.max_batched_tokens)
        least = max(_LEAST_BATCHED, facts.max_sequences)
        limit = max(least, math.ceil(tokens * max(target_ms, 2 * decode) / prefill))
        if limit >= facts.max_batched_tokens:
            continue
        yield Finding(
            "large-prefills",
            model.name,
            1 - decode / prefill,
            (
                f"a step that computes prompts takes {prefill:.0f} ms"
                + (f", others {decode:.1f} ms" if decode else ""),
                f"{language.prefill_share:.0%} of the engine's time are such steps, in which others get one token each",
                f"such a step has {tokens:.0f} tokens of prompts on average; max_batched_tokens is"
                f" {facts.max_batched_tokens}",
                *_pace(language),
            ),
            f"serving.generation.max_batched_tokens {limit}: a prompt takes more steps, and others go on between them",
            f"gaps of about {max(prefill * limit / tokens, decode):.0f} ms instead of {prefill:.0f} ms (a step's time"
            " grows with its tokens); first tokens of long prompts come later",
        )


def slow_decode(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A language model's engine makes steps nearly all the time, 85 % of it, and a sequence still waits longer for its
    next token than it may: the network takes the time.

    The median between two tokens, and the mean step without prompts, are above `--target`.
    """
    for server, model, _, language in languages(evidence):
        between, decode = language.between_ms, language.decode_ms
        if between is None or decode is None or language.busy < FULL:
            continue
        if between <= target_ms or decode <= target_ms:
            continue
        machine = server.machine
        cores = (
            "the cores of its machine are not seen from here"
            if machine is None
            else f"the server uses {machine.server_cores:.2f} of {machine.cores} cores"
        )
        yield Finding(
            "slow-decode",
            model.name,
            min(1.0, decode / between),
            (
                f"the engine makes steps {language.busy:.0%} of the time, and one takes {decode:.1f} ms for"
                f" {language.running:.1f} sequences",
                *_pace(language),
                cores,
            ),
            "a variant with smaller weights (llm-int8, llm-int4), more cores, or fewer sequences in a step"
            " (max_sequences, or another replica)",
            f"twice as fast, a token would come after {between - decode / 2:.1f} ms instead of {between:.1f} ms (half"
            " of a step)",
        )


def _queues(facts: LanguageFacts, language: LanguageEvidence) -> bool:
    """Whether requests wait because all places are taken."""
    return language.waiting >= _WAITING and language.running >= _TAKEN * facts.max_sequences


def _held_share(language: LanguageEvidence) -> float:
    """The share of the model's sequences and requests that waits for the cache; at least the rule's own threshold."""
    every = max(language.running + language.waiting, 1.0)
    return min(1.0, max(_WAITING, language.stalled + language.waiting) / every)


def _waiting_share(language: LanguageEvidence) -> float:
    return language.waiting / (language.waiting + language.running)


def _queue(language: LanguageEvidence) -> tuple[str, ...]:
    """Effects of a wait on callers, as far as they were seen."""
    sentences = []
    if language.first_ms is not None:
        sentences.append(f"a request waits {language.first_ms:.0f} ms for its first token")
    if language.refused:
        sentences.append(f"{language.refused} of {language.ended} requests were refused")
    return tuple(sentences)


def _pace(language: LanguageEvidence) -> tuple[str, ...]:
    if language.between_ms is None or language.between_p95_ms is None:
        return ()
    return (
        f"the time between two tokens is {language.between_ms:.1f} ms in the median,"
        f" {language.between_p95_ms:.0f} ms at p95",
    )
