"""The page about a search: the choice, what each way holds, and nothing from outside as markup."""

from __future__ import annotations

from dataclasses import replace

from tests.perf.tune.test_at_rate import search as at_rate
from tests.perf.tune.test_search import NOW, SLO, Machine, search
from tritonkit.perf.tune import ClientBatching, Objective
from tritonkit.perf.tune.page import importance, page
from tritonkit.repository.report import Machine as Host

HOST = Host("a processor", 2, "Linux")


def test_the_page_says_what_was_chosen() -> None:
    """Both rates, the diff as text, the plot, all points, what matters, and how to search again."""
    outcome = search(Machine(broken="onnx-int8"))
    text = page("net", outcome, HOST, "today", diff="+  threads: 1 <b>", command="tritonkit tune")
    assert f"requests/s hold {SLO}" in text
    assert "times the rate" in text
    assert "threads: 1 &lt;b&gt;" in text
    assert "it does not load" in text
    assert text.count("<svg") == 1
    assert "tritonkit tune" in text
    assert str(NOW) in text
    assert "http" not in text.replace("http://www.w3.org", "")


def test_the_page_tells_another_machine_from_the_one_that_sends() -> None:
    """For a search at an address."""
    outcome = search(Machine(), budget_s=0.0)
    text = page("net", outcome, HOST, "today", diff="", command="", where="a:1 with 4 cores")
    assert "The server at a:1 with 4 cores; the load from a processor, 2 cores." in text


def test_a_search_that_found_nothing_has_a_page() -> None:
    """It says so."""
    outcome = search(Machine(), budget_s=0.0)
    text = page("net", outcome, HOST, "today", diff="", command="")
    assert "None of the tried ways of serving holds the target" in text
    assert f"for {SLO}" in text


def test_what_matters_is_what_the_best_choice_gains() -> None:
    """The variant is faster; a choice that changes nothing has a ratio of 1."""
    gains = dict(importance(search(Machine())))
    assert gains["variant"] > 1.2
    assert min(gains.values()) >= 1.0


def test_the_page_of_a_rate_shows_latency_and_processor_time_of_each_way() -> None:
    """No plot: all runs had one rate."""
    outcome = at_rate(Machine(), Objective("cost", 60.0))
    assert outcome.best
    assert outcome.best.cpu_s is not None
    text = page("net", outcome, HOST, "today", diff="", command="")
    assert "least processor time" in text
    assert f"{1e3 * outcome.best.cpu_s:.2f} ms of processor a request" in text
    assert "ms a request" in text
    assert "<svg" not in text


def test_the_page_tells_of_clients_that_batch() -> None:
    """The page has a section about batching in clients if it was looked for and found."""
    outcome = replace(search(Machine()), client_batching=ClientBatching(16, 0.005, 321.5, 33.3))
    text = page("net", outcome, HOST, "today", diff="", command="")
    assert "up to 16 items, 5 ms" in text
    assert "321.5 items/s hold the target, worst tail 33.3 ms" in text
    assert outcome.to_dict()["client_batching"]["items"] == 16
