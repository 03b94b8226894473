"""Run a pipeline's steps during a build, in its own process: the same `model.py` that a server runs."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError, TritonkitError
from tritonkit.repository.export.hooks import last_calls
from tritonkit.repository.export.plain_modules import STAND_IN, PlainModules
from tritonkit.repository.modelspec import ResolvedStep
from tritonkit.resources import STEPS, shipped
from tritonkit.text import first_line
from tritonkit.watched import unbounded

__all__ = ["StepRefusal", "StepRunner", "importable_code"]

_TOGETHER = 32


class StepRefusal(Exception):
    """The reason why a step has no answer for an item."""


class StepRunner:
    """A step, opened on first use.

    Args:
        step: the step with its parameters and files.
        where: the place for errors.
    """

    def __init__(self, step: ResolvedStep, where: str) -> None:
        self.step = step
        self._where = where
        self._modules = PlainModules(_folders(step))
        self._triton: Any = None

    def run(self, items: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any] | StepRefusal]:
        """The outputs of each item, or the reason why it has none.

        Each item is one request, as from callers who send one item each; arrays have no batch axis.

        Raises:
            BuildError: the step cannot be opened here, or fails as a whole.
        """
        for start in range(0, len(items), _TOGETHER):
            yield from self._answers(items[start : start + _TOGETHER])

    def _answers(self, items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | StepRefusal]:
        model = self._model
        with self._isolated("running"):
            triton = self._triton
            requests = [
                triton.InferenceRequest(
                    inputs=[triton.Tensor(name, array[None]) for name, array in item.items()],
                    requested_output_names=list(self.step.outputs),
                )
                for item in items
            ]
            responses = model.execute(requests)
        if not isinstance(responses, list) or len(responses) != len(items):
            raise self._failed("it gives no response for each request", "a step that returns one response each")
        return [self._outputs(response) for response in responses]

    def _outputs(self, response: Any) -> dict[str, Any] | StepRefusal:
        if response.has_error():
            return StepRefusal(response.error().message())
        return {tensor.name(): tensor.as_numpy()[0] for tensor in response.output_tensors()}

    @cached_property
    def _model(self) -> Any:
        """The step's model, initialized as a server does it."""
        folder = Path(tempfile.mkdtemp(prefix="tritonkit-step-"))
        opened: list[Any] = []
        weakref.finalize(self, _close, opened, folder)
        (folder / "1").mkdir()
        for file in self.step.files.values():
            (folder / "1" / file.name).symlink_to(file)
        arguments = {
            "model_config": json.dumps(self._config()),
            "model_name": self.step.name,
            "model_repository": str(folder),
            "model_version": "1",
            "model_instance_name": self.step.name,
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
        }
        with self._isolated("opening"):
            self._triton = self._modules.load_triton()
            model = self._modules.load("model", self.step.folder / "model.py").TritonPythonModel()
            if hasattr(model, "initialize"):
                model.initialize(arguments)
        opened.append(model)
        return model

    def _config(self) -> dict[str, Any]:
        def tensors(given: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
            kinds = {"BYTES": "STRING"}
            return [
                {"name": name, "data_type": f"TYPE_{kinds.get(dtype, dtype)}", "dims": list(shape)}
                for name, (dtype, shape) in given.items()
            ]

        return {
            "name": self.step.name,
            "backend": "python",
            "max_batch_size": _TOGETHER,
            "input": tensors(self.step.inputs),
            "output": tensors(self.step.outputs),
            "parameters": {name: {"string_value": text} for name, text in self.step.parameters.items()},
        }

    @contextlib.contextmanager
    def _isolated(self, doing: str) -> Iterator[None]:
        """Let the step's modules be imported by plain names, and turn any failure into a BuildError."""
        try:
            with self._modules.inside(), unbounded():
                yield
        except (TritonkitError, KeyboardInterrupt, MemoryError):
            raise
        except ModuleNotFoundError as error:
            raise self._missing(error) from error
        except (Exception, SystemExit) as error:
            raise self._failed(
                f"{doing} it failed: {type(error).__name__}: {first_line(error)}", details=last_calls(error)
            ) from error

    def _missing(self, error: ModuleNotFoundError) -> BuildError:
        return self._failed(
            f"step {self.step.folder.name} imports {error.name}, which is not installed here",
            "the step's packages in the environment that builds, too: it prepares the samples",
            f"pip install the package of {error.name}; for tritonkit's steps: pip install 'tritonkit[models]'; or give"
            " the network's own inputs as samples: {npz: FILE}",
        )

    def _failed(
        self,
        found: str,
        wanted: str = "a step that runs in a build, which prepares the samples with it",
        todo: str = "correct the step; or give the network's own inputs as samples: {npz: FILE}",
        details: str = "",
    ) -> BuildError:
        return BuildError(self._where, found=found, wanted=wanted, todo=todo, details=details)


def importable_code(step: ResolvedStep) -> list[Path]:
    """All Python files that a step may import by plain names, the stand-in of Triton's module included."""
    files = [file for folder in _folders(step) for file in sorted(folder.glob("*.py"))]
    return [*files, *map(shipped, STAND_IN.values())]


def _folders(step: ResolvedStep) -> list[Path]:
    """The folders in which a step's imports are looked up, in this order."""
    shared = shipped(STEPS)
    folders = [step.folder, step.folder.parent, shared, *(p for p in sorted(shared.iterdir()) if p.is_dir())]
    return list(dict.fromkeys(folders))


def _close(models: Sequence[Any], folder: Path) -> None:
    """Let a step's model free what it holds, as a server does, and remove its folder.

    Its answers are there already, so a failure changes nothing.
    """
    for model in models:
        with contextlib.suppress(Exception):
            getattr(model, "finalize", lambda: None)()
    shutil.rmtree(folder, ignore_errors=True)
