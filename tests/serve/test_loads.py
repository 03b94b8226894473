"""Reading the log of a start, and choosing the model that a server is started again without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.models import ModelText, ensemble, write_repository
from tritonkit.errors import ServerStartError
from tritonkit.serve import ServeEvent
from tritonkit.serve.core.pools import Pools
from tritonkit.serve.loads import read_loads, without_warm_up
from tritonkit.serve.ready import EndedAtLoad
from tritonkit.serve.repository import read_models
from tritonkit.serve.selection import select
from tritonkit.serve.shm import ShmPlan
from tritonkit.serve.start import Run
from tritonkit.serve.values import Settings
from tritonkit.serve.without import without_cause

LOG = """I1127 03:25:45.23 31369 model_lifecycle.cc:472] "loading: good:1"
I1127 03:25:45.24 31369 model_lifecycle.cc:472] "loading: slow:2"
I1127 03:25:45.25 31369 model_lifecycle.cc:472] "loading: bad:1"
I1127 03:25:45.28 31369 model_lifecycle.cc:839] "successfully loaded 'good'"
E1127 03:25:45.29 31369 model_lifecycle.cc:642] "failed to load 'bad' version 1: failed to run warmup sample 'w': no"
I1127 03:25:45.30 31369 model_lifecycle.cc:777] "failed to load 'bad'"
"""
WARM = 'model_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP32 dims: [4] zero_data: true } } }\n'
ENDED = ServerStartError("tritonserver", found="it was ended by SIGSEGV")


def test_the_log_says_what_is_loading(tmp_path: Path) -> None:
    """From a place on: the processes of a run share their log."""
    log = tmp_path / "log"
    log.write_text(LOG + LOG.replace("good", "later").splitlines(keepends=True)[0])
    loads = read_loads(log)
    assert (loads.begun, loads.going) == (("good", "slow", "bad", "later"), ("slow", "later"))
    assert loads.warm_up_failed
    assert read_loads(log, len(LOG)).begun == ("later",)
    assert not read_loads(log, len(LOG)).warm_up_failed
    assert read_loads(tmp_path / "none").going == ()


def test_a_configuration_without_its_warm_up(tmp_path: Path) -> None:
    """All the rest stays."""
    write_repository(tmp_path, {"net": ModelText(ModelText().config + WARM)})
    [model] = read_models(tmp_path)
    text = without_warm_up(model)
    assert "model_warmup" not in text
    assert '"max_batch_size": 4' in text
    assert len(model.config.model_warmup) == 1


def run_of(folder: Path, events: list[ServeEvent], *require: str) -> Run:
    """A run of four models that never starts."""
    parts = {"one": ModelText(), "two": ModelText(), "three": ModelText(), "over": ensemble("two")}
    models = read_models(write_repository(folder / "r", parts))
    settings = Settings(folder / "r", on_event=events.append)
    selection = select(models, {}, None, require)
    missing: Any = None
    return Run(settings, missing, selection, folder, (), ShmPlan((), 1, 1), folder, "key", 1, "", Pools())


def test_the_model_that_ended_the_server_is_left_out(tmp_path: Path) -> None:
    """If several models are loaded one by one, the first is the cause; its ensemble goes with it."""
    events: list[ServeEvent] = []
    run = run_of(tmp_path, events)
    again = without_cause(run, EndedAtLoad(ENDED, ("two", "three")))
    assert again is not None
    assert (again.one_by_one, list(again.models)) == (True, list(run.models))
    last = without_cause(again, EndedAtLoad(ENDED, ("two", "three")))
    assert last is not None
    assert list(last.models) == ["one", "three"]
    assert {event.model for event in events if event.kind == "not_served"} == {"two", "over"}
    assert set(last.selection.killers) == {"two"}
    assert without_cause(last, EndedAtLoad(ENDED, ())) is None


def test_without_a_required_model_there_is_no_next_start(tmp_path: Path) -> None:
    """Nor without all."""
    run = run_of(tmp_path, [], "over")
    assert without_cause(run, EndedAtLoad(ENDED, ("two",))) is None
    assert without_cause(run, EndedAtLoad(ENDED, ("one",))) is not None
    everything = EndedAtLoad(ENDED, tuple(run.models), certain=True)
    assert without_cause(replace(run, selection=replace(run.selection, required=frozenset())), everything) is None


@pytest.mark.parametrize("certain", [False, True])
def test_a_crash_at_a_warm_up_costs_the_warm_up_first(tmp_path: Path, certain: bool) -> None:
    """Then the model, which a request loads without it."""
    run = run_of(tmp_path, [])
    end = EndedAtLoad(ENDED, ("two",), certain=certain, warming=True)
    again = without_cause(run, end)
    assert again is not None
    if certain:  # at a request of ours, so not by Triton's warm-up
        assert "two" not in again.models
        return
    assert (again.unwarmed, again.later) == ({"two"}, {"two", "over"})
    last = without_cause(again, end)
    assert last is not None
    assert "two" not in last.models
