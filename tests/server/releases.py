"""A project whose one model is released under load: two replicas behind a gateway, and their callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import PROJECT
from tests.server.watched import Load, Watched
from tests.waiting import eventually
from tritonkit.client import Client
from tritonkit.operate.release import ReleaseTerms, Status, parse_rules
from tritonkit.repository.pipeline import build_repository

SPEC = """name: shift
network:
  python: server.py
  inputs: {x: {dtype: FP32, shape: [2]}}
  outputs: {y: {dtype: FP32, shape: [2]}}
serving: {max_batch_size: 8, idempotent: true}
"""
CODE = """import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            BODY
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]))
        return answers
"""


class Project(Watched):
    """A project with one model, and its stack of two replicas."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "models" / "shift").mkdir(parents=True)
        (root / "python_backends").symlink_to(PROJECT / "python_backends")
        (root / "models" / "shift" / "model.yaml").write_text(SPEC)
        self.write("y = x + 1")
        repository = build_repository(root, ["shift"]).path
        super().__init__(root, repository, replicas=2, prometheus=False, redis=False)

    def write(self, body: str) -> None:
        """Write the next version's code for `x`; text after an empty line goes to the end of its module."""
        inner, _, outer = body.partition("\n\n")
        text = CODE.replace("BODY", inner.replace("\n", "\n            ")) + outer
        (self.root / "models" / "shift" / "server.py").write_text(text)

    def answer(self) -> float:
        """The model's answer to zero now."""
        with self.client() as client:
            return shifted(client)

    def published(self) -> str:
        """The newest code in the project's repository."""
        versions = (self.root / "model_repository" / "shift").glob("[0-9]*/model.py")
        return max(versions, key=lambda file: int(file.parent.name)).read_text()

    def candidates(self) -> list[str]:
        """States of the candidates there are."""
        return [part.state for part in self.stack.parts if part.name == "candidate"]


def shifted(client: Client) -> float:
    """The model's answer to zero."""
    return float(client.model("shift").predict(x=np.zeros(2, np.float32))["y"][0, 0])


class Shifts(Load):
    """Callers of the model, and how often each answer came."""

    def __init__(self, place: Project, *, may_fail: bool = False) -> None:
        super().__init__(place, shifted, pause_s=0.01)
        self._may_fail = may_fail
        self.kinds: Counter[float] = Counter()

    def took(self, answer: Any) -> None:
        """Count it."""
        super().took(answer)
        self.kinds[answer] += 1

    def more(self, count: int = 100) -> Counter[float]:
        """Answers from now on, once there are some."""
        before = self.kinds.copy()
        eventually(
            lambda: self.kinds.total() > before.total() + count or (self.failures and not self._may_fail), "answers"
        )
        assert self._may_fail or self.failures[:3] == []
        return self.kinds - before


def terms(rules: str = "errors>0.1%", *steps: float, **options: Any) -> ReleaseTerms:
    """Short steps."""
    settings = {"hold_s": 0.5, "requests": 30, "wait_s": 60.0} | options
    return ReleaseTerms(steps or (20.0, 100.0), parse_rules(rules), **settings)


def at(percent: float, do: Callable[[], object]) -> Callable[[Status], None]:
    """Do something once, at a step's first requests."""
    done: list[object] = []

    def tell(status: Status) -> None:
        if status.percent == percent and status.requests > 10 and not done:
            done.append(do() or True)

    return tell
