"""The claims of docs/release.md about how soon a release goes back, computed."""

from __future__ import annotations

import re

import numpy as np

from tests.conftest import PROJECT
from tritonkit.operate.release.evidence import ENOUGH, AgainstShare

LIMIT, RUNS = 0.01, 31


def requests_until(share: float) -> int:
    """Until the evidence is enough, in the median of seeded runs."""
    random = np.random.default_rng(0)
    counts = []
    for _ in range(RUNS):
        evidence = AgainstShare(LIMIT)
        while evidence.value < ENOUGH:
            evidence.add(int(random.random() < share), 1)
        counts.append(evidence.requests)
    return int(np.median(counts))


def test_the_table_is_what_is_computed() -> None:
    """A row for each share of late requests."""
    text = (PROJECT / "docs" / "release.md").read_text()
    rows = re.findall(r"^\| (all|\d+ %) \| ([\d,]+) \|$", text, re.MULTILINE)
    documented = {share: int(count.replace(",", "")) for share, count in rows}
    computed = {share: requests_until(1.0 if share == "all" else float(share.split()[0]) / 100) for share in documented}
    assert documented == computed
    assert len(documented) == 4
