"""A build names models that others call and that do not exist."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import WriteModel
from tritonkit.repository.pipeline import build_repository

SPEC = """name: {name}
network:
  python: server.py
  calls: [{calls}]
  inputs: {{x: {{dtype: FP32, shape: [2]}}}}
  outputs: {{y: {{dtype: FP32, shape: [2]}}}}
serving: {{max_batch_size: 0}}
"""


def test_a_model_that_nothing_has_is_named_at_build(root: Path, write_model: WriteModel) -> None:
    """A model that is built with it, lies in the repository or belongs to another spec counts as known."""
    code = "class TritonPythonModel:\n    pass\n"
    write_model(SPEC.format(name="leaf", calls=""), "leaf", server__py=code)
    (root / "model_repository" / "copied").mkdir(parents=True)
    calls = "leaf, copied, leaf_network, nowhere"
    write_model(SPEC.format(name="net", calls=calls), "net", server__py=code)
    for _ in range(2):  # the second build changes nothing
        notes = build_repository(root, ["net"]).notes
        assert [note for note in notes if "calls" in note and "neither" in note] == [
            "net: calls nowhere, and neither models/ nor model_repository/ has it: a server of this repository leaves"
            " net out. Correct `calls`, or put it into the repository"
        ]
