"""kubectl in a namespace of the cluster that KUBECONFIG names."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

__all__ = ["Done", "Kubectl", "Resource"]

Done = subprocess.CompletedProcess[str]
Resource = dict[str, Any]


@dataclass(frozen=True)
class Kubectl:
    """The program, for a namespace."""

    namespace: str

    def words(self, *words: str) -> list[str]:
        """The command."""
        return ["kubectl", "--namespace", self.namespace, *words]

    def may_fail(self, *words: str, stdin: str = "") -> Done:
        """A command whose exit code is the caller's matter."""
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=False, input=stdin)

    def __call__(self, *words: str, stdin: str = "") -> str:
        """The output of a command that must succeed."""
        done = self.may_fail(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def get(self, *words: str) -> Resource:
        """An object or a list of them."""
        resource: Resource = json.loads(self("get", *words, "--output", "json"))
        return resource

    def items(self, *words: str) -> list[Resource]:
        """The objects of a list."""
        return list(self.get(*words)["items"])

    def apply(self, *resources: Resource) -> None:
        """Make or change objects."""
        self("apply", "--filename", "-", stdin=json.dumps(as_list(*resources)))


def as_list(*resources: Resource) -> Resource:
    """Several objects as one."""
    return {"apiVersion": "v1", "kind": "List", "items": list(resources)}
