"""The thresholds file: what may stand in it, and what it asks of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritonkit.errors import SpecError, UsageError
from tritonkit.perf.load import Limits, Recorder, Report, Thresholds, judge, limits_for, read_thresholds

TEXT = """
tiers:
  quick: {p50_ms: 5, p95_ms: 10}
models:
  digits: {tier: quick, p95_ms: 20, min_rate: 3}
"""


def read(tmp_path: Path, text: str = TEXT) -> Thresholds:
    """A file with this text, for a project with the models digits and sentences."""
    file = tmp_path / "thresholds.yaml"
    file.write_text(text)
    return read_thresholds(file, ["digits", "sentences"])


def report(*times: float, failures: int = 0, protocol: str = "grpc", duration_s: float = 1) -> Report:
    """A run in which digits answered in these times, with this share of failures."""
    recorder = Recorder()
    for ms in times:
        recorder.add(protocol, "digits", ms)
    for _ in range(failures):
        recorder.add(protocol, "digits", 0.1, failure="label 3, expected 8")
    return recorder.report(duration_s)


def test_a_model_takes_its_tier_and_what_stands_beside_it(tmp_path: Path) -> None:
    """A model's own limits precede its tier; a tier named outside replaces both."""
    thresholds = read(tmp_path)
    own = limits_for(thresholds, "digits")
    assert (own.p50_ms, own.p95_ms, own.p99_ms, own.min_rate) == (5, 20, None, 3)
    assert limits_for(thresholds, "digits", "quick") == Limits(p50_ms=5, p95_ms=10)
    assert limits_for(thresholds, "sentences") == Limits()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: {digts: {p50_ms: 5}}", "no model 'digts'"),
        ("models: {digits: {p51_ms: 5}}", "unknown key 'p51_ms'"),
        ("models: {digits: {tier: quik}}", "quik"),
        ("tirs: {}", "unknown key 'tirs'"),
        ("models: {digits: {p50_ms: 0}}", "greater than 0"),
        ("models: {digits: {error_rate: 1.5}}", "less than or equal to 1"),
        ("models: {digits: {p50_ms: .nan}}", "finite"),
        ("models: {digits: {p50_ms: 5ms}}", "valid number"),
        ("- 1", "no keys"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    """Unknown models, keys and tiers and impossible limits; what to do names the right page."""
    with pytest.raises(SpecError, match=words) as caught:
        read(tmp_path, text)
    assert "thresholds.yaml" in caught.value.where
    assert "model.schema" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """An error of the command line's user."""
    with pytest.raises(SpecError, match="no such file"):
        read_thresholds(tmp_path / "none.yaml", ["digits"])


def test_an_unknown_tier_is_a_usage_error(tmp_path: Path) -> None:
    """With the tiers there are."""
    with pytest.raises(UsageError, match="quik") as caught:
        limits_for(read(tmp_path), "digits", "quik")
    assert "quick" in caught.value.wanted


def test_limits_of_tokens_are_for_language_models_alone(tmp_path: Path) -> None:
    """There they are a target; another model's are refused, from a tier too."""
    text = "tiers: {chat: {ttft_p99_ms: 500}}\nmodels: {digits: {itl_p50_ms: 20, p99_ms: 900, error_rate: 0.01}}"
    thresholds = read(tmp_path, text)
    limits = limits_for(thresholds, "digits", language=True)
    assert str(limits.slo) == "itl_p50=20ms,p99=900ms,errors=1.000%"
    assert str(limits_for(thresholds, "digits", "chat", language=True).slo) == "ttft_p99=500ms"
    for tier in (None, "chat"):
        with pytest.raises(UsageError, match="it is not a language model"):
            limits_for(thresholds, "digits", tier)


def test_limits_that_hold_say_nothing() -> None:
    """Times at the limit hold."""
    limits = Limits(p50_ms=10, p95_ms=10, p99_ms=10, error_rate=0.0, min_rate=3)
    assert judge(report(4, 5, 6), {"digits": limits}) == []


def test_every_missed_limit_is_one_line() -> None:
    """A line has the measured and the required value."""
    limits = Limits(p50_ms=1, p95_ms=2, p99_ms=3, error_rate=0.1, min_rate=50)
    missed = judge(report(*[8.0] * 8, failures=2, duration_s=2), {"digits": limits})
    assert missed == [
        "digits over grpc: error rate 0.2000, at most 0.1 (2 of 10; first: label 3, expected 8)",
        "digits over grpc: p50 8.00 ms, at most 1 ms",
        "digits over grpc: p95 8.00 ms, at most 2 ms",
        "digits over grpc: p99 8.00 ms, at most 3 ms",
        "digits over grpc: 4.0 right answers/s, at least 50",
    ]


def test_a_model_that_never_answered_misses() -> None:
    """A missing request fails, as does a missing right answer if a time is limited."""
    assert judge(report(), {"digits": Limits()}) == ["digits: no request was answered"]
    missed = judge(report(failures=3), {"digits": Limits(p50_ms=5, error_rate=1)})
    assert missed == ["digits over grpc: p50 no right answer, at most 5 ms"]


def test_http_is_judged_where_grpc_did_not_run() -> None:
    """Next to gRPC, HTTP only serves as a comparison."""
    limits = {"digits": Limits(p50_ms=1)}
    assert len(judge(report(5, protocol="http"), limits)) == 1
    both = Recorder()
    both.add("grpc", "digits", 0.5)
    both.add("http", "digits", 5)
    assert judge(both.report(1), limits) == []


def test_the_projects_own_file_names_its_tiers_and_models(project: Path) -> None:
    """Four tiers in order; the shipped models have limits."""
    thresholds = read_thresholds(project / "loadtest" / "thresholds.yaml", ["digits", "sentences"])
    assert list(thresholds.tiers) == ["interactive", "standard", "relaxed", "batch"]
    assert [tier.p95_ms for tier in thresholds.tiers.values()] == [10, 100, 500, None]
    assert set(thresholds.models) == {"digits", "sentences", "story"}
