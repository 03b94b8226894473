"""The results of a search so far, on disk: the next search of the same model, target and cores goes on from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tritonkit.disk import unwritable
from tritonkit.machine import cores
from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.load.openloop.find_rate import RateTrial
from tritonkit.perf.simulation import Costs
from tritonkit.perf.tune.objective import Objective
from tritonkit.perf.tune.outcome import Evaluation
from tritonkit.perf.tune.space import InstanceGroup, Point
from tritonkit.repository.modelspec import Spec

__all__ = ["Known", "load_state", "save_state", "state_file"]

_VERSION = 3


@dataclass
class Known:
    """Costs of groups, and evaluated points."""

    costs: dict[InstanceGroup, Costs] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)


def state_file(root: Path, spec: Spec) -> Path:
    """The file of a model's state."""
    return root / ".tritonkit" / "tune" / f"{spec.name}.json"


def load_state(
    file: Path, spec: Spec, slo: Slo, artifacts: Mapping[str, str], objective: Objective, where: str = ""
) -> Known:
    """Results for this spec, target, number of cores and these artifacts (variant -> source hash); nothing if one of
    them differs or the file cannot be read. Costs alone if the objective was another.

    Args:
        where: a server other than this machine's embedded one.
    """
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts["key"] != _key(spec, slo, artifacts, where):
            return Known()
        costs = {InstanceGroup(**row["group"]): Costs(**_costs(row["costs"])) for row in facts["costs"]}
        if facts["objective"] != asdict(objective):
            return Known(costs)
        return Known(costs, [_evaluation(row) for row in facts["evaluations"]])
    except (OSError, ValueError, KeyError, TypeError):
        return Known()


def save_state(
    file: Path,
    spec: Spec,
    slo: Slo,
    artifacts: Mapping[str, str],
    objective: Objective,
    costs: Mapping[InstanceGroup, Costs],
    evaluations: Sequence[Evaluation],
    where: str = "",
) -> None:
    """Write it, in one step."""
    facts = {
        "key": _key(spec, slo, artifacts, where),
        "objective": asdict(objective),
        "costs": [{"group": asdict(group), "costs": asdict(cost)} for group, cost in costs.items()],
        "evaluations": [asdict(evaluation) for evaluation in evaluations],
    }
    part = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(facts), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise unwritable(file, error) from error


def _key(spec: Spec, slo: Slo, artifacts: Mapping[str, str], where: str) -> str:
    """A hash of all that makes measurements comparable."""
    facts = [_VERSION, spec.model.model_dump_json(), str(slo), cores(), sorted(artifacts.items())]
    facts += [where] if where else []
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _costs(facts: dict[str, Any]) -> dict[str, Any]:
    return facts | {name: tuple(facts[name]) for name in ("weights", "shapes", "factors")}


def _evaluation(facts: dict[str, Any]) -> Evaluation:
    trials = tuple(RateTrial(**trial | {"missed": tuple(trial["missed"])}) for trial in facts["trials"])
    return Evaluation(**facts | {"point": Point.from_dict(facts["point"]), "trials": trials})
