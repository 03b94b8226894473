"""GPUs during a run: by recorded metrics, several of them, none, and a server that has just started."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakedriver import FakeDriver
from tests.perf.load.gpu import GIB, GPU, POWER_W, gpu_text, look_of, looks_of_run, metrics_server
from tests.waiting import eventually
from tritonkit.perf.load import gpu
from tritonkit.perf.load.gpu import GpuReport, GpuUse, GpuWatch, gpu_lines, gpu_looks, gpu_report, keep_gpus
from tritonkit.perf.load.prometheus import parse_samples
from tritonkit.repository.report.gpu_runs import gpu_runs
from tritonkit.serve.core.devices import Driver, find_driver

ANSWERED = 57_700


def report_of_run(seconds: float = 10.0) -> GpuReport:
    """A run on one GPU in which a request took 0.1 J."""
    report = gpu_report({GPU: looks_of_run(seconds)}, 0.0, seconds, int(ANSWERED * seconds / 10))
    assert report
    return report


def test_a_run_has_its_use_memory_power_and_energy() -> None:
    """Energy is the counter's rise between its changes, over the whole run, for each answered request."""
    report = report_of_run()
    (use,) = report.gpus
    assert (use.gpu, use.busy, use.power_limit_w) == (GPU, pytest.approx(0.76), 700)
    assert use.memory_bytes == pytest.approx(5.6 * GIB)
    assert (use.power_w, report.power_w) == (POWER_W, POWER_W)
    assert report.energy_j == pytest.approx(5770)
    assert report.energy_per_request_j == pytest.approx(0.1)
    assert gpu_lines(report) == [
        f"{GPU}: in use 76% of the time, 5.6 of 79.6 GiB at most, 577 of 700 W on average",
        "GPU energy: 0.1 J a request",
    ]
    facts = report.to_dict()
    assert facts["energy_per_request_j"] == pytest.approx(0.1)
    assert facts["gpus"][0]["looks"][2]["at_s"] == 1.0


def test_power_and_energy_of_several_gpus_are_added_up() -> None:
    """Their use and memory are not: they stay those of each."""
    report = gpu_report({"GPU-2": looks_of_run(10, "GPU-2"), GPU: looks_of_run(10)}, 0.0, 10.0, ANSWERED)
    assert report
    assert report.power_w == 2 * POWER_W
    assert report.energy_per_request_j == pytest.approx(0.2)
    assert [use.busy for use in report.gpus] == pytest.approx([0.76, 0.76])
    assert gpu_lines(report)[-1] == "GPU energy: 0.2 J a request and 1154 W together"
    silent = replace(report, gpus=(report.gpus[0], replace(report.gpus[1], energy_j=None)))
    assert silent.energy_per_request_j is None


def test_zeros_of_a_server_that_has_just_started_do_not_count() -> None:
    """Triton reports 0 for everything until it has read a GPU for the first time."""
    unread = [look_of(at, 0.0) for at in (0.0, 0.5, 1.0, 1.5)]
    started = [*unread, *(replace(look, at_s=look.at_s + 2) for look in looks_of_run(8))]
    use = GpuUse.of(GPU, started, 0.0, 10.0)
    assert use
    assert use.busy == pytest.approx(0.76)
    assert use.energy_j == pytest.approx(5770)
    assert gpu_report({GPU: unread}, 0.0, 10.0, 5) is None


def test_looks_outside_of_the_run_do_not_count() -> None:
    """Warm-up before it, answers still to come after it."""
    idle = replace(look_of(0.0, 1.0), busy=0.0, memory_bytes=70 * GIB)
    looks = [replace(idle, at_s=4.5), *(replace(look, at_s=look.at_s + 5) for look in looks_of_run(5))]
    use = GpuUse.of(GPU, [*looks, replace(idle, at_s=10.5)], 5.0, 5.0)
    assert use
    assert (use.busy, use.memory_bytes) == (pytest.approx(0.76), pytest.approx(5.6 * GIB))
    assert use.looks[0].at_s == 0.0


def test_a_short_run_has_no_energy() -> None:
    """One change of the counter shows no rate; the other figures stay."""
    report = report_of_run(2.5)
    assert report.energy_per_request_j is None
    assert gpu_lines(report) == [
        f"{GPU}: in use 76% of the time, 5.6 of 79.6 GiB at most, 577 of 700 W on average",
    ]


@pytest.mark.parametrize(
    "name", ["utilization", "power_usage", "power_limit", "memory_total_bytes", "memory_used_bytes"]
)
def test_a_figure_that_the_driver_does_not_know_is_null_for_programs(name: str) -> None:
    """Prometheus' format has NaN for it, which JSON lacks; the others stay, and no line speaks of it."""
    text = re.sub(rf"(?m)^(nv_gpu_{name}{{.*}}) .*", r"\1 NaN", gpu_text(600.0))
    looks = [gpu_looks(parse_samples(text), at)[GPU] for at in (0.0, 0.5)]
    report = gpu_report({GPU: looks}, 0.0, 1.0, 5)
    assert report
    facts = json.loads(json.dumps(report.to_dict(), allow_nan=False))["gpus"][0]
    field = {"utilization": "busy", "memory_used_bytes": "memory_bytes", "power_usage": "power_w"}.get(name, name)
    field = {"power_limit": "power_limit_w"}.get(field, field)
    figures = {key for key, value in facts.items() if value is None}
    assert figures == {"energy_j", field}
    assert facts["looks"][0][field] is None
    assert "nan" not in "".join(gpu_lines(report)).lower()


def test_figures_that_are_missing_now_and_then_do_not_spoil_the_others() -> None:
    """Means are of the looks that have a figure, and energy is counted between those."""
    looks = looks_of_run(10)
    looks[9:12] = [replace(look, busy=None, power_w=None, energy_j=None) for look in looks[9:12]]
    use = GpuUse.of(GPU, looks, 0.0, 10.0)
    assert use
    assert (use.busy, use.power_w) == (pytest.approx(0.76), POWER_W)
    assert use.energy_j == pytest.approx(5770)


def test_a_server_without_gpus_has_nothing_to_report() -> None:
    """No look, no report, no line."""
    assert gpu_looks(parse_samples('nv_inference_count{model="net"} 5\n'), 0.0) == {}
    assert gpu_report({}, 0.0, 10.0, 5) is None
    assert gpu_lines(None) == []


def test_labels_that_never_end_are_read_once() -> None:
    """A text in place of labels costs its length, not its square: this one would take an hour."""
    assert [sample.labels for sample in parse_samples(f"x{{{'a' * 2_000_000}}} 1\n")] == [{}]


def test_servers_are_read_until_the_run_ends() -> None:
    """A GPU that two servers report counts once; a server that does not answer is left out."""
    energy = itertools.count(1000, 1000)
    with (
        metrics_server(lambda: gpu_text(next(energy))) as first,
        metrics_server(lambda: gpu_text(5.0)) as second,
        GpuWatch([first, second, "127.0.0.1:1"]) as watch,
    ):
        eventually(lambda: (report := watch.report(0.0, 1e12, 5)) and len(report.gpus[0].looks) >= 4, "four looks")
        report = watch.report(0.0, 1e12, 5)
    assert report
    assert [use.gpu for use in report.gpus] == [GPU]
    assert report.energy_j


def test_a_server_without_gpus_is_read_once() -> None:
    """It is not asked again during the load."""
    reads = itertools.count()
    with metrics_server(lambda: f"nv_x{{}} {next(reads)}\n") as address, GpuWatch([address]) as watch:
        assert watch.report(0.0, 10.0, 5) is None
    assert next(reads) == 1


@pytest.fixture
def asked(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Driver]]:
    """A machine with one card, of which nothing is known before or after the test; the driver's answers."""
    answers: list[Driver] = []

    def ask() -> Driver:
        answers.append(find_driver())
        return answers[-1]

    fake_driver.answer(monkeypatch)
    monkeypatch.setattr(gpu, "find_driver", ask)
    gpu._card_names.cache_clear()
    yield answers
    gpu._card_names.cache_clear()


def test_a_card_of_this_machine_has_its_name(asked: list[Driver]) -> None:
    """The driver, asked once, knows it by the UUID that Triton reports; a GPU of another machine keeps that."""
    own = "GPU-01010101-0101-0101-0101-010101010101"
    began = time.monotonic()
    energies = itertools.count(300, 300)

    def text() -> str:
        return gpu_text(float(next(energies)), gpu=own) + gpu_text(1.0).partition("5\n")[2]

    with metrics_server(text) as address, GpuWatch([address]) as watch:
        eventually(lambda: watch.report(began, 3600.0, 1) is not None, "figures of the GPUs")
    report = watch.report(began, 3600.0, 1)
    assert report
    assert [use.card for use in report.gpus] == ["NVIDIA H100 80GB HBM3 (GPU-01010101)", GPU]
    assert report.to_dict()["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    assert len(asked) == 1


def test_a_run_is_kept_for_the_report(tmp_path: Path) -> None:
    """With the card and the energy of a request; a server without GPUs leaves nothing."""
    keep_gpus(tmp_path, "net", "load", 5770.0, None)
    assert gpu_runs(tmp_path, "net") == ()
    keep_gpus(tmp_path, "net", "load", 5770.0, report_of_run())
    (run,) = gpu_runs(tmp_path, "net")
    assert (run.by, run.rate_per_s, run.energy_per_request_j) == ("load", 5770.0, pytest.approx(0.1))
    assert [(card.card, card.busy) for card in run.cards] == [(GPU, pytest.approx(0.76))]
