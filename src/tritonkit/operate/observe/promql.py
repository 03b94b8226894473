"""PromQL in a few words: selectors, rates, ratios, and the share of requests that failed."""

from __future__ import annotations

from collections.abc import Sequence

from tritonkit import metrics as m

__all__ = ["MODEL", "REPLICA", "error_ratio", "gateway", "instants", "per_s", "per_s_of_any", "ratio", "triton"]

MODEL = 'model=~"$model"'
REPLICA = 'instance=~"$instance"'
"""Selector of the page's variables; `$window` is the span of a rate, longer than four scrapes."""


def triton(metric: str, *labels: str) -> str:
    """A selector of the replicas' own metrics."""
    return _selector(metric, m.TRITON_JOB, labels)


def gateway(metric: str, *labels: str) -> str:
    """A selector of the gateway's metrics."""
    return _selector(metric, m.GATEWAY_JOB, labels)


def _selector(metric: str, job: str, labels: tuple[str, ...]) -> str:
    inside = ",".join((f'job="{job}"', *labels))
    return f"{metric}{{{inside}}}"


def per_s(selector: str, by: str = "model", window: str = "$window") -> str:
    """Increase of a counter per second, summed by labels."""
    return f"sum by ({by}) (rate({selector}[{window}]))"


def per_s_of_any(
    metric: str, any_of: Sequence[str], labels: Sequence[str] = (), by: str = "model", window: str = "$window"
) -> str:
    """The same for the gateway's series that have at least one of some labels; each series counts once."""
    rates = (f"rate({gateway(metric, one, *labels)}[{window}])" for one in any_of)
    return f"sum by ({by}) ({' or '.join(rates)})"


def instants(selector: str, by: str = "model", how: str = "sum") -> str:
    """Gauges, added up by labels, or their `min` or `max`."""
    return f"{how} by ({by}) ({selector})"


def ratio(above: str, below: str, factor: float = 1) -> str:
    """Ratio of two expressions; no value instead of NaN if the denominator is 0."""
    return f"{'' if factor == 1 else f'{factor:g} * '}{above} / ({below} > 0)"


def error_ratio(window: str, *, chosen: bool = False) -> str:
    """The share of a model's requests that failed by the service's fault, 0 to 1, by model.

    It uses the gateway's count for models that have one, because it includes requests that no replica answered; else
    Triton's.

    Args:
        window: the span of the rates.
        chosen: whether the page's variables choose models.
    """
    labels = (MODEL,) if chosen else ()
    outside = _failed(
        per_s_of_any(m.GATEWAY_REQUESTS, m.BAD_CODES, labels, window=window),
        per_s(gateway(m.GATEWAY_REQUESTS, *labels), window=window),
    )
    failed = per_s(triton(m.REQUESTS_FAILED, m.CANCELED, *labels), window=window)
    well = per_s(triton(m.REQUESTS_OK, *labels), window=window)
    return f"{outside} or on (model) {_failed(failed, f'({well} + ({failed} or 0 * {well}))')}"


def _failed(bad: str, total: str) -> str:
    """The share of bad codes. Their series begins with the first one; until then the share is 0."""
    return ratio(f"({bad} or 0 * {total})", total)
