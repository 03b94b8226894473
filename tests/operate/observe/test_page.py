"""The page of `tritonkit dash`, as text and in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.operate.observe.views import view
from tritonkit.operate.observe import PANELS, SECTIONS, Need, Shown, page
from tritonkit.operate.observe.page import figure, scaled
from tritonkit.operate.observe.panel import BYTES, MS


def test_every_panel_is_drawn_or_says_why_not() -> None:
    """A plot with its unit and legend, or a sentence."""
    text = page(view())
    for panel in PANELS:
        part = text.split(f'id="{panel.name}"')[1].split('class="panel"')[0]
        empty = panel.need in (Need.gateway, Need.cache)
        assert ("<svg" in part) != empty, panel.name
        assert ('class="empty"' in part) == empty
        assert empty or "digits" in part.split('class="legend"')[1]


@pytest.mark.parametrize(
    ("title", "panel", "plot", "reason"),
    [
        ("Language models", "llm-first-token", "Time to first token", "language model"),
        ("GPUs", "gpu-energy", "GPU energy of a request", "NVIDIA GPU"),
    ],
)
def test_an_optional_section_is_not_there_without_a_line(title: str, panel: str, plot: str, reason: str) -> None:
    """A server without language models or GPUs shows nothing of them, on the page; JSON says why."""
    whole = view()
    assert title in [section.title for section in SECTIONS if section.optional]
    assert f">{title}<" in page(whole)
    bare = replace(
        whole,
        shown={
            section: [Shown(one.panel, (), 0, str(one.panel.need)) for one in shown] if section == title else shown
            for section, shown in whole.shown.items()
        },
    )
    text = page(bare)
    assert f">{title}<" not in text
    assert plot not in text
    assert "Requests answered" in text
    assert reason in bare.to_dict()["panels"][panel]["empty"]


def test_what_comes_from_elsewhere_is_escaped() -> None:
    """Names of models and keys, and alerts."""
    text = page(view(("<script>alert(1)</script>", "b")))
    assert "<script>alert(1)" not in text
    assert "&lt;away&gt;" in text


def test_a_written_page_asks_for_nothing() -> None:
    """No address, no script; one that is served asks for itself."""
    text = page(view())
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "<script" not in text
    assert "fetch(location.href" in page(view(), refresh_s=5)


def test_the_alert_comes_first_with_its_command() -> None:
    """Before the panels."""
    text = page(view())
    assert text.index("ReplicaDown") < text.index("Requests answered")
    assert "tritonkit doctor" in text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (1234.5, "1234"), (5.0, "5")]
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    """And no power of ten."""
    assert figure(value) == text


@pytest.mark.parametrize(("most", "unit"), [(3e9, "GiB"), (5e6, "MiB"), (3000.0, "KiB"), (3.0, "bytes")])
def test_bytes_are_scaled(most: float, unit: str) -> None:
    """To the unit of the largest; other units stay."""
    assert scaled(BYTES, most)[1] == unit
    assert scaled(MS, most) == (1.0, "ms")


CHECKS = """
const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
const svgs = [...document.querySelectorAll('.panel svg')].map(e => e.getBoundingClientRect());
const outside = [...document.querySelectorAll('.panel svg')].filter(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text, polyline')].some(e => {
    const box = e.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
  });
}).length;
const size = Math.min(...[...document.querySelectorAll('.panel svg')]
  .map(e => e.getBoundingClientRect().width / e.viewBox.baseVal.width));
return [wide, svgs.length, outside, size];
"""
"""Whether it scrolls sideways, how many plots there are, those whose texts leave them, how far they are scaled."""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 820, 390, 320])
def test_the_page_fits_a_desk_and_a_phone(browser: Any, tmp_path: Path, width: int) -> None:
    """No sideways scrolling, all texts in their plots and large enough to be read, nothing in the console."""
    file = tmp_path / "dash.html"
    file.write_text(page(view(("digits", "a_model_with_a_very_long_name_indeed"))))
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(file.as_uri())
    wide, count, outside, size = browser.execute_script(CHECKS)
    assert not wide
    assert count > 15
    assert outside == 0
    assert size * 12 > 7.5
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
