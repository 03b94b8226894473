"""Small models for a real Triton: a configuration, and the Python behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import eventually

VECTOR = """max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
"""

ECHO = """import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # y is x; the first value is how many seconds to take.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            time.sleep(max(0.0, float(x[0, 0])))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return answers
"""


@dataclass(frozen=True)
class ModelText:
    """A model's folder: config.pbtxt without the name, model.py (None: there is none), other files."""

    config: str = 'backend: "python"\n' + VECTOR
    code: str | None = ECHO
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_ensemble(self) -> bool:
        """Whether the model only connects others."""
        return 'platform: "ensemble"' in self.config


def noting(file: Path, instances: int = 1) -> ModelText:
    """An echo that appends a dot to a file whenever it begins a request that takes time."""
    sleep = "            time.sleep("
    note = f"            if x[0, 0] > 0:\n                open({str(file)!r}, 'a').write('.')\n"
    group = f"instance_group {{ count: {instances} kind: KIND_CPU }}\n"
    return ModelText(ModelText().config + group, ECHO.replace(sleep, note + sleep))


def held(file: Path, gate: Path, instances: int) -> ModelText:
    """The same, where a request that takes time takes it until another file is there."""
    model = noting(file, instances)
    assert model.code is not None
    sleep = "            time.sleep(max(0.0, float(x[0, 0])))\n"
    wait = f"            while x[0, 0] > 0 and not os.path.exists({str(gate)!r}):\n                time.sleep(0.01)\n"
    return ModelText(model.config, "import os\n" + model.code.replace(sleep, wait))


def await_begun(file: Path, count: int = 1) -> None:
    """Wait until such a model has begun with `count` requests."""
    eventually(lambda: file.exists() and file.stat().st_size >= count, f"{count} requests begun")


def write_repository(folder: Path, models: Mapping[str, ModelText]) -> Path:
    """Write every model as version 1."""
    for name, model in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(f'name: "{name}"\n{model.config}')
        if model.code is not None:
            (version / "model.py").write_text(model.code)
        for path, content in model.files.items():
            (folder / name / path).parent.mkdir(exist_ok=True)
            (folder / name / path).write_bytes(content)
    return folder


def ensemble(*parts: str) -> ModelText:
    """An ensemble that sends a vector through one model after the other."""
    tensors = ["x", *(f"t{number}" for number in range(1, len(parts))), "y"]
    steps = "".join(
        f'step {{ model_name: "{part}" model_version: -1'
        f' input_map {{ key: "x" value: "{before}" }} output_map {{ key: "y" value: "{after}" }} }}\n'
        for part, before, after in zip(parts, tensors[:-1], tensors[1:], strict=True)
    )
    return ModelText(f'platform: "ensemble"\n{VECTOR}ensemble_scheduling {{ {steps} }}', code=None)
