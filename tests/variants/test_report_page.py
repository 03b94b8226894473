"""The report in a real browser: on a desk, on a phone, in the dark and on paper."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.repository.report.figures import CROWD, MACHINE, crowd
from tritonkit.repository.report import render

Show = Callable[..., Any]

OVERLAPS = """
const svg = [...document.querySelectorAll('svg.plot')].filter(e => e.getBoundingClientRect().width);
const boxes = [...svg[0].querySelectorAll('text.name, text.limit-name, text.tick, text.axis-name')]
  .map(e => [e.textContent, e.getBoundingClientRect()]);
const found = [], frame = svg[0].getBoundingClientRect();
boxes.forEach(([a, p], i) => {
  if (p.left < frame.left || p.right > frame.right || p.top < frame.top || p.bottom > frame.bottom)
    found.push([a, 'leaves the plot']);
  boxes.slice(i + 1).forEach(([b, q]) => {
    if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
      found.push([a, b]);
  });
});
return [svg.length, boxes.length, found];
"""
"""The plots that are shown, the texts of the first, and those that cover another or leave the frame."""

CONTRASTS = """
const parse = s => s.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = c => c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const back = e => {
  for (let n = e; n; n = n.parentElement) {
    const c = getComputedStyle(n).backgroundColor;
    if (!/, 0\\)$/.test(c) && c !== 'transparent') return c;
  }
  return getComputedStyle(document.body).backgroundColor;
};
return [...document.querySelectorAll('h1, p, th, td, small, .passed, .refused, .tag, li, text, a')].map(e => {
  const style = getComputedStyle(e), own = e instanceof SVGElement ? style.fill : style.color;
  const [a, b] = [light(parse(own)), light(parse(back(e)))].sort((x, y) => y - x);
  return [(a + 0.05) / (b + 0.05), e.tagName + ' ' + e.textContent.slice(0, 30)];
}).sort((x, y) => x[0] - y[0])[0];
"""
"""The text that is hardest to tell from its background, and its contrast (WCAG 2.2, 1.4.3)."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model with eighteen variants."""
    folder = tmp_path_factory.mktemp("page")
    page = folder / "report.html"
    page.write_text(render([crowd(folder)], MACHINE, "2026-01-31 12:00"), encoding="utf-8")
    return page


@pytest.fixture
def show(browser: Any, file: Path) -> Show:
    """Open the page on a screen so wide, light or dark."""

    def showing(width: int, scheme: str = "light") -> Any:
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(file.as_uri())
        return browser

    return showing


@pytest.mark.parametrize("width", [1280, 820, 390, 320])
def test_the_page_fits_and_its_names_can_be_read(show: Show, width: int) -> None:
    """No sideways scrolling but inside the tables' boxes; one plot, its texts apart and in full size."""
    chrome = show(width)
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
    plots, texts, overlaps = chrome.execute_script(OVERLAPS)
    assert plots == 1
    assert texts > len(CROWD) + 4
    assert overlaps == []
    height = chrome.execute_script(
        "return Math.min(...[...document.querySelectorAll('text.name')]"
        ".map(e => e.getBoundingClientRect().height).filter(h => h))"
    )
    assert height >= (12 if width > 320 else 10), "pixels"
    assert chrome.get_log("browser") == []


def test_a_wide_table_scrolls_in_its_box_and_keeps_its_first_column(show: Show) -> None:
    """On a phone the last column is reached by scrolling, and the variant's name stays beside it."""
    chrome = show(390)
    left, right, inside = chrome.execute_script(
        "const box = document.querySelector('.scroll'); box.scrollLeft = 10000;"
        "const row = box.querySelector('tbody tr');"
        "const name = row.querySelector('th').getBoundingClientRect();"
        "const gate = row.querySelector('td:last-child').getBoundingClientRect();"
        "return [name.left, gate.right, box.getBoundingClientRect().right];"
    )
    assert 0 <= left < 40
    assert right <= inside + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_background(show: Show, scheme: str) -> None:
    """At least 4.5 to 1 in both color schemes, and the dark one is dark."""
    chrome = show(1280, scheme)
    contrast, text = chrome.execute_script(CONTRASTS)
    assert contrast >= 4.5, text
    ground = chrome.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_it_prints(show: Show) -> None:
    """As a PDF of a few pages of A4, with nothing cut off at the side."""
    chrome = show(1280, "dark")
    printed = chrome.execute_cdp_cmd(
        "Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
    )
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF-")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 12
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    screen = {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= 718
    ground = chrome.execute_script("return getComputedStyle(document.body).color")
    assert ground == "rgb(0, 0, 0)"
