"""Locust's web page in a real browser: a run is started by clicking, and its charts show it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import PROJECT
from tests.ports import free_port
from tests.waiting import PATIENCE_S, eventually

DRAWN = """
return Array.from(document.querySelectorAll('canvas')).map(canvas => {
  const data = canvas.getContext('2d').getImageData(0, 60, canvas.width, canvas.height - 60).data;
  let colored = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = data.slice(i, i + 4);
    if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 80) colored += 1;
  }
  return colored;
});
"""
"""Pixels of each chart, below its legend, that are neither white, black nor gray: its lines."""

ASKED = """
return performance.getEntriesByType('resource').some(
  entry => entry.name.endsWith('/stats/requests') && entry.responseEnd > 0
);
"""
"""Whether a question of the page for statistics was answered."""


@pytest.fixture
def page(digits_server: Any) -> Iterator[str]:
    """Locust waiting to be started on its web page."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(PROJECT / "loadtest" / "locustfile.py"),
        "--web-host",
        "127.0.0.1",
        "--web-port",
        str(port),
        "--loglevel",
        "WARNING",
        "--users",
        "6",
        "--spawn-rate",
        "6",
        "--host",
        digits_server.grpc,
        "--http-host",
        digits_server.http,
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(url), "the web page")
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def answers(url: str) -> bool:
    """Whether the page is there."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def rows(url: str) -> dict[tuple[str, str], int]:
    """Requests by protocol and model, as the page gets them."""
    with urllib.request.urlopen(f"{url}/stats/requests", timeout=PATIENCE_S) as response:
        stats = json.load(response)["stats"]
    return {(row["method"], row["name"]): row["num_requests"] for row in stats if row["method"]}


def test_a_run_is_started_by_clicking_and_charted(page: str, browser: Any) -> None:
    """Both kinds of users appear in the table and in the ratio; every chart has a line; Stop stops."""
    from selenium.webdriver.common.by import By

    def text() -> str:
        return str(browser.find_element(By.TAG_NAME, "body").text)

    def click(kind: str, words: str) -> None:
        elements = eventually(
            lambda: [
                element
                for element in browser.find_elements(By.CSS_SELECTOR, kind)
                if element.text.strip().lower().startswith(words)
            ],
            words,
        )
        elements[0].click()

    browser.get(page)
    # Where that answer, "ready", comes after the click, Locust's page takes the run for ended and asks no more.
    eventually(lambda: browser.execute_script(ASKED), "the page's first statistics")
    click("button", "start")
    both = {(protocol, model) for protocol in ("grpc", "http") for model in ("digits", "sentences")}
    eventually(lambda: set(rows(page)) == both and min(rows(page).values()) > 2, "answers")
    eventually(lambda: "grpc" in text() and "http" in text() and "RUNNING" in text(), "the table")
    click("[role=tab]", "charts")
    # Two points make a line, and a point comes every few seconds.
    drawn = eventually(
        lambda: (colored := browser.execute_script(DRAWN)) and min(colored) > 300 and colored, "lines in every chart"
    )
    assert len(drawn) == 3, "requests per second, response times, users"
    click("[role=tab]", "current ratio")
    eventually(lambda: "TritonUser" in text() and "RestUser" in text(), "both kinds of users")
    # Where an answer from while users end comes after the click, Locust's page shows that, and asks no more: the
    # click follows an answer, long before the next one.
    browser.execute_script("performance.clearResourceTimings()")
    eventually(lambda: browser.execute_script(ASKED), "the page's next statistics")
    click("button", "stop")
    eventually(lambda: "STOPPED" in text(), "the end")
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
