"""The service level objective, and the windows in which alerts look at it.

Source: "Alerting on SLOs" in The Site Reliability Workbook (Google), its multi-window, multi-burn-rate alerts: an alert
needs a long window, so that a single burst does not fire it, and a short one, so that it ends soon after the fault.
14.4 for an hour uses 2 % of a budget of 30 days, 6 for six hours uses 5 %.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BUDGET",
    "FAST",
    "FAST_WINDOWS_S",
    "FIRST_TOKEN_LATE",
    "FIRST_TOKEN_S",
    "SLOW",
    "SLOW_WINDOWS_S",
    "TARGET",
    "TARGET_TEXT",
]

TARGET: Final = 0.999
"""The share of requests that is answered, over 30 days."""
TARGET_TEXT: Final = "99.9 % of a month's requests"
BUDGET: Final = round(1 - TARGET, 9)
"""The share that may fail."""

FAST: Final = 14.4
FAST_WINDOWS_S: Final = (3600.0, 300.0)
"""The long and the short window of alerts that page, in seconds."""
SLOW: Final = 6.0
SLOW_WINDOWS_S: Final = (21600.0, 1800.0)
"""The same for alerts that open a ticket."""

FIRST_TOKEN_S: Final = 2.5
"""Seconds within which an answer of a language model begins. It is a bound of the histogram, which avoids
interpolation: the first above the 2 s that MLPerf Inference allows its server with Llama 2 70B."""
FIRST_TOKEN_LATE: Final = 0.05
"""The share of answers that may begin later."""
