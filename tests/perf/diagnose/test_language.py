"""Looks at a language model's metrics and configuration become evidence."""

from __future__ import annotations

import pytest

from tritonkit.client.wire.protos import schema
from tritonkit.perf.diagnose import LanguageEvidence, LanguageFacts
from tritonkit.perf.diagnose.configuration import facts_of
from tritonkit.perf.diagnose.language_evidence import language_evidence
from tritonkit.perf.diagnose.snapshot import LanguageLook

BOUNDS = ("0.01", "0.02", "+Inf")


def look(tokens: float, running: float = 2.0, cache: float = 0.5) -> LanguageLook:
    """Counters after a number of tokens: each fifth step takes 10 ms and has prompts of 50 tokens, the others take 5
    ms; half of the times between tokens are below 10 ms and all below 20."""
    prefill, decode = tokens / 5, tokens * 4 / 5
    between = dict(zip(BOUNDS, (tokens / 2, tokens, tokens), strict=True))
    counters = {
        ("tokens_total", ""): tokens,
        ("prompt_tokens_total", ""): 50 * prefill,
        ("preemptions_total", ""): tokens / 100,
        ("requests_total", "stop"): tokens / 10,
        ("requests_total", "refused"): tokens / 50,
        ("steps_total", "prefill"): prefill,
        ("steps_total", "decode"): decode,
        ("step_seconds_total", "prefill"): 0.01 * prefill,
        ("step_seconds_total", "decode"): 0.005 * decode,
        ("first_token_seconds_count", ""): tokens / 10,
        ("first_token_seconds_sum", ""): tokens / 50,
        **{("between_tokens_seconds_bucket", bound): count for bound, count in between.items()},
    }
    gauges = {"running": running, "waiting": 1.0, "stalled": 0.0, "cache_usage": cache}
    return LanguageLook(gauges, counters)


def evidence_of_looks(*looks: LanguageLook) -> LanguageEvidence:
    """A look each second."""
    evidence = language_evidence([(float(at), look_) for at, look_ in enumerate(looks)])
    assert evidence is not None
    return evidence


def test_counters_are_rates_and_gauges_are_means() -> None:
    """100 tokens a second in as many steps."""
    evidence = evidence_of_looks(look(1000, running=2.0), look(1100, running=3.0), look(1200, running=4.0))
    assert (evidence.running, evidence.waiting, evidence.cache) == (3.0, 1.0, 0.5)
    assert evidence.tokens_per_s == pytest.approx(100)
    assert evidence.prompt_tokens_per_s == pytest.approx(1000)
    assert evidence.prompt_tokens_per_step == pytest.approx(50)
    assert (evidence.decode_ms, evidence.prefill_ms) == (pytest.approx(5), pytest.approx(10))
    assert evidence.prefill_share == pytest.approx(1 / 3)
    assert evidence.busy == pytest.approx(0.6)
    assert (evidence.paused, evidence.refused, evidence.ended) == (2, 4, 24)
    assert evidence.first_ms == pytest.approx(200)
    assert (evidence.between_ms, evidence.between_p95_ms) == (pytest.approx(10), pytest.approx(19))


def test_a_model_that_was_loaded_again_begins_anew() -> None:
    """Counters that fall are no negative rates."""
    assert evidence_of_looks(look(1000), look(100)).tokens_per_s == pytest.approx(100)


def test_an_idle_model_has_no_times() -> None:
    """Nothing is divided by nothing."""
    evidence = evidence_of_looks(look(1000), look(1000))
    assert evidence.tokens_per_s == evidence.busy == evidence.prefill_share == 0
    assert evidence.decode_ms is evidence.prefill_ms is evidence.between_ms is evidence.first_ms is None


def test_one_look_says_nothing() -> None:
    """Nor none."""
    assert language_evidence([]) is None
    assert language_evidence([(1.0, look(5))]) is None


def test_the_configuration_says_how_it_is_served() -> None:
    """If a configuration is silent, the backend's defaults count; other models are not language models."""
    config = schema().ModelConfig(name="m", backend="llm")
    assert facts_of(config).language == LanguageFacts(32, 256)
    for key, value in (("max_sequences", "4"), ("max_batched_tokens", "64"), ("batching", "static")):
        config.parameters[key].string_value = value
    assert facts_of(config).language == LanguageFacts(4, 64, static=True)
    assert facts_of(schema().ModelConfig(name="m", backend="python")).language is None
