"""Columns of differences: in order, on one axis, adding up."""

from __future__ import annotations

import numpy as np
import pytest

from tritonkit.repository.export.closeness import differences
from tritonkit.repository.report.histogram import columns, used_edges


def test_columns_are_in_order_of_size_whatever_the_record_says() -> None:
    """A record in JSON is sorted by the alphabet: 1e+00 before 1e-08."""
    expected = [{"y": np.zeros(8)}]
    outputs = [{"y": np.array([0, 0, 5e-9, 5e-7, 0.5, 0.5, 0.5, 50.0])}]
    counts = dict(sorted(differences(outputs, expected).items()))
    edges = used_edges([counts])
    assert edges[0] == "0"
    assert edges[-1] == "1e+02"
    made = columns(counts, edges)
    assert [column.tick for column in made][:3] == ["0", "10⁻⁸", "10⁻⁷"]
    assert [column.share for column in made] == pytest.approx([2 / 8, 1 / 8, 0, 1 / 8, 0, 0, 0, 0, 0, 3 / 8, 0, 1 / 8])


def test_all_variants_get_the_axis_of_the_farthest_ones() -> None:
    """Edges between used ones stay, unused ones outside are left out; `more` is last."""
    exact, far = {"0": 4, "1e-08": 0, "1e-07": 0, "more": 0}, {"0": 0, "1e-07": 3, "more": 1}
    assert used_edges([exact, far]) == ("0", "1e-08", "1e-07", "more")
    assert used_edges([exact]) == ("0",)
    assert [column.share for column in columns(exact, ("0", "1e-08"))] == [1, 0]
    assert used_edges([]) == ()
