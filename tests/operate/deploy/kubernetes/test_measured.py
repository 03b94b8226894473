"""Measurements of models decide cores, startup budget and replicas; contradictions are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.running import failed, tritonkit_here
from tests.server.models import ModelText, ensemble, write_repository
from tritonkit.errors import RenderError, SpecError, UsageError
from tritonkit.operate.deploy import Values, read_facts, render_tree
from tritonkit.operate.deploy.measured import Profile, read_profile
from tritonkit.perf.load.openloop import parse_slo
from tritonkit.perf.plan import Demand, Measured, make_plan, of_shape
from tritonkit.perf.simulation import Costs
from tritonkit.perf.tune.space import InstanceGroup, Point

GROUP = InstanceGroup("fp32", 1, 2)
RATE = 3000.0


def save(file: Path, model: str = "a", cores: int = 2, start_s: float = 30.0) -> Measured:
    """A replica that takes 1 ms and 0.5 ms for each item of a batch of up to 8."""
    measured = Measured(model, Point(GROUP, 8), {GROUP: Costs(0.001, 0.0005, 0.001)}, (8,), start_s, "a test", cores)
    measured.save(file)
    return measured


def expected(model: str = "a", **more: Any) -> dict[str, Any]:
    """An entry of `measured`."""
    return {"file": f"{model}.json", "rate_per_s": RATE, "slo": "p99=50ms", **more}


Found = Callable[..., tuple[Values, Profile]]


@pytest.fixture
def profiled(tmp_path: Path) -> Found:
    """Values with these entries, and the profile of the files next to them."""

    def read(*entries: dict[str, Any], **keys: Any) -> tuple[Values, Profile]:
        values = Values.model_validate({"measured": entries, **keys})
        return values, read_profile(tmp_path, values.measured)

    return read


@pytest.mark.slow
def test_replicas_are_those_of_the_plan(tmp_path: Path, repository: Path, profiled: Found) -> None:
    """The same figure as `tritonkit plan`, spare ones included; two models' replicas add up."""
    measured = save(tmp_path / "a.json")
    plan = make_plan(measured, Demand(of_shape("steady", RATE), parse_slo(["p99=50ms"]), spare=2))
    values, profile = profiled(expected(spare=2))
    assert profile.replicas == plan.replicas > 3
    tree = render_tree(values, read_facts(repository, values, profile))
    deployment = yaml.safe_load(tree["base/deployment.yaml"])
    assert deployment["spec"]["replicas"] == plan.replicas
    save(tmp_path / "b.json", "b")
    assert profiled(expected(), expected("b"))[1].replicas == 2 * plan.sized.replicas + 1
    assert profiled()[1] == Profile()


def test_a_slow_start_that_was_measured_has_its_time(tmp_path: Path, repository: Path, profiled: Found) -> None:
    """Four times what it took, in place of ten seconds; cores are those of the measurement."""
    without = read_facts(repository, Values())
    assert (without.startup_s, without.replicas, without.unmeasured) == (90, 2, 2)
    save(tmp_path / "a.json", cores=3, start_s=100)
    values, profile = profiled(expected())
    facts = read_facts(repository, values, profile)
    assert facts.startup_s == 480
    assert (facts.cores, facts.unmeasured) == (3, 1)
    assert "measured" in facts.cores_from


def test_parts_of_a_measured_model_were_measured_with_it(tmp_path: Path, profiled: Found) -> None:
    """Parts are those of its ensemble; a common prefix of names does not count."""
    models = {"a": ensemble("net", "a_top"), "net": ModelText(), "a_top": ModelText(), "a_b": ModelText()}
    folder = write_repository(tmp_path / "models", models)
    save(tmp_path / "a.json")
    values, profile = profiled(expected())
    assert read_facts(folder, values, profile).unmeasured == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"cpu": 4}, "with which `measured` was measured"),
        ({"replicas": 1}, "replicas in values.yaml"),
        ({"scaling": {"min": 1, "max": 1}}, "scaling.max in values.yaml"),
    ],
)
def test_values_that_contradict_the_measurement_are_refused(
    tmp_path: Path, repository: Path, profiled: Found, keys: dict[str, Any], message: str
) -> None:
    """Rather than one of the two being taken without a word."""
    save(tmp_path / "a.json")
    values, profile = profiled(expected(), **keys)
    with pytest.raises(RenderError, match=message):
        read_facts(repository, values, profile)


@pytest.mark.slow
def test_measurements_that_do_not_fit_are_refused(tmp_path: Path, repository: Path, profiled: Found) -> None:
    """An unknown model, one model twice, different machines, no measurement, or a target out of reach."""
    save(tmp_path / "a.json")
    save(tmp_path / "b.json", "b", cores=4)
    save(tmp_path / "other.json", "other")
    (tmp_path / "text.json").write_text("[]")
    values, profile = profiled(expected("other"))
    with pytest.raises(RenderError, match="a measurement of other"):
        read_facts(repository, values, profile)
    for entries, error, message in (
        ([expected(), expected()], RenderError, "once more"),
        ([expected(), expected("b")], RenderError, "measured with 4 cores"),
        ([expected("text")], UsageError, "not a measurement"),
        ([expected("absent")], UsageError, "cannot be read"),
        ([expected(slo="p99=1ms")], UsageError, "measured.slo p99=1ms: even alone, requests take"),
    ):
        with pytest.raises(error, match=message):
            profiled(*entries)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{file: ../a.json, rate_per_s: 1, slo: p99=1s}", "file"),
        ("{file: /etc/passwd, rate_per_s: 1, slo: p99=1s}", "file"),
        ("{file: a.json, rate_per_s: 0, slo: p99=1s}", "rate_per_s"),
        ("{file: a.json, rate_per_s: 1, slo: soon}", "slo: 'soon'"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_with_its_line(
    tmp_path: Path, repository: Path, entry: str, message: str
) -> None:
    """The command refuses them before it renders anything."""
    (tmp_path / "values.yaml").write_text(f"# first line\nmeasured: [{entry}]\n")
    error = failed(
        tritonkit_here("deploy", "--repository", str(repository), "--out", str(tmp_path)), SpecError.exit_code
    )
    assert message in error
    assert "values.yaml:2" in error
    assert not (tmp_path / "base").exists()
