"""A model's own Python, loaded and called as Triton's stub does it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tritonkit.errors import InferenceError, ServerStartError
from tritonkit.repository.environments.environment import OWN_MODEL
from tritonkit.repository.export.plain_modules import PlainModules
from tritonkit.repository.python_model.calls import Callee, Responder
from tritonkit.repository.python_model.requests import arrays_of, read_inputs, sequence_controls
from tritonkit.repository.python_model.source import ModelSource, of_project, published
from tritonkit.repository.python_model.values import PythonAnswer, PythonRequest

__all__ = ["PythonModel"]


class PythonModel:
    """A `model.py` that answers in this process, for its unit tests. Leaving its block finalizes it.

    Args:
        file: the `model.py`; modules next to it can be imported by name.
        config: the model's configuration, as JSON has it, or as the text of a config.pbtxt.
        parameters: the configuration's parameters, in addition to those that it has.
        calls: models that its Python calls (BLS), by name: each a function that takes the inputs by name and returns
            the outputs, a generator function for a decoupled model, or another `PythonModel`.
        instance: the number of this instance, in its name.
        patience_s: seconds to wait for responses that a decoupled model sends after `execute` has returned.

    Raises:
        ServerStartError: the model cannot be loaded; Triton would say the same.
    """

    def __init__(
        self,
        file: Path | str,
        config: Mapping[str, Any] | str,
        *,
        parameters: Mapping[str, str] | None = None,
        calls: Mapping[str, Callee] | None = None,
        instance: int = 0,
        patience_s: float = 10.0,
    ) -> None:
        self.patience_s = patience_s
        self._open(ModelSource.of_file(Path(file), config), parameters or {}, calls or {}, instance)

    @classmethod
    def of_project(
        cls,
        name: str,
        root: Path | str = ".",
        *,
        parameters: Mapping[str, str] | None = None,
        calls: Mapping[str, Callee] | None = None,
    ) -> Self:
        """A Triton model of a project, such as `digits_clean` for the step `clean` of models/digits.

        It has the configuration that a build would write; nothing is built.

        Raises:
            UsageError: the project has no such model, or it is not Python.
        """
        return cls._of(of_project(name, Path(root)), parameters, calls)

    @classmethod
    def published(
        cls,
        folder: Path | str,
        *,
        parameters: Mapping[str, str] | None = None,
        calls: Mapping[str, Callee] | None = None,
    ) -> Self:
        """A model of a repository, such as `model_repository/digits_clean`: its newest version."""
        return cls._of(published(Path(folder)), parameters, calls)

    @classmethod
    def _of(cls, source: ModelSource, parameters: Mapping[str, str] | None, calls: Mapping[str, Callee] | None) -> Self:
        model = cls.__new__(cls)
        model.patience_s = 10.0
        model._open(source, parameters or {}, calls or {}, 0)
        return model

    def _open(
        self, source: ModelSource, parameters: Mapping[str, str], calls: Mapping[str, Callee], instance: int
    ) -> None:
        self.config = source.with_parameters(parameters)
        """The configuration, as the model's Python gets it."""
        self.name: str = self.config["name"]
        self._instance = f"{self.name}_0_{instance}"
        self._responder = Responder(calls)
        folder = source.place(Path(tempfile.mkdtemp(prefix="tritonkit-model-")))
        version = folder / "1"
        self._modules = PlainModules([version, *source.folders])
        self._model: Any = None
        self._close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        arguments = {
            "model_config": json.dumps(self.config),
            "model_name": self.name,
            "model_repository": str(folder),
            "model_version": "1",
            "model_instance_name": self._instance,
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
        }
        own = version / OWN_MODEL
        self._file = version / "model.py"
        with self._loading(), self._modules.inside():
            triton = self._triton = self._modules.load_triton()
            later = {name: vars(triton).pop(name) for name in triton.SET_AFTER_IMPORT}
            module = self._modules.load("model", own if own.is_file() else version / "model.py")
            vars(triton).update(later)
            model = module.TritonPythonModel()
            if hasattr(model, "initialize"):
                model.initialize(arguments)
        self._model = model

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            self._close()
            words = str(error) if type(error).__name__ == "TritonModelException" else f"{type(error).__name__}: {error}"
            raise ServerStartError(f"model {self.name}", found=words, wanted="a model.py that loads") from error

    @property
    def decoupled(self) -> bool:
        """Whether it may give any number of responses to a request."""
        return bool(self.config.get("model_transaction_policy", {}).get("decoupled", False))

    def execute(self, requests: Sequence[PythonRequest]) -> list[PythonAnswer]:
        """One call of the model's `execute` with these requests; an answer for each.

        Raises:
            InvalidInput: Triton would refuse a request before it reached the model.
        """
        with self._modules.inside():
            given = [self._request(request) for request in requests]
            triton = self._triton
            before, triton.responder = triton.responder, self._responder.bound(triton, self.name)
            try:
                error = self._run(given) or self._await_ends(given)
            finally:
                triton.responder = before
            if error:
                failed = triton.InferenceResponse(error=triton.TritonError(error))
                for request in given:
                    if not request.get_response_sender().closed.is_set():
                        request.get_response_sender().sent.append(failed)
            return [self._answer(request, wanted) for request, wanted in zip(given, requests, strict=True)]

    def predict(self, *, parameters: Mapping[str, bool | int | str] | None = None, **inputs: Any) -> Mapping[str, Any]:
        """The outputs of one request.

        Raises:
            InferenceError: the model answers with an error.
        """
        [answer] = self.execute([PythonRequest(inputs, parameters=parameters or {})])
        return answer.outputs

    def finalize(self) -> None:
        """Let the model free what it holds, as at the end of a server."""
        model, self._model = self._model, None
        if model is not None:
            with self._modules.inside():
                getattr(model, "finalize", lambda: None)()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.finalize()

    def _request(self, request: PythonRequest) -> Any:
        triton = self._triton
        arrays = read_inputs(self.config, request.inputs)
        arrays |= sequence_controls(self.config, request, arrays)
        outputs = [tensor["name"] for tensor in self.config.get("output", [])]
        return triton.InferenceRequest(
            request_id=request.request_id,
            correlation_id=request.sequence_id,
            inputs=[triton.Tensor(name, array) for name, array in arrays.items()],
            requested_output_names=list(request.outputs or outputs),
            model_name=self.name,
            model_version=1,
            flags=request.sequence_start | request.sequence_end << 1,
            timeout=request.timeout_us,
            parameters=request.parameters,
            sender=triton.ResponseSender(self.decoupled, lambda: request.cancelled),
        )

    def _run(self, requests: Sequence[Any]) -> str:
        """Run `execute` and hand its responses to the requests; the error of the whole call in Triton's words."""
        try:
            if not hasattr(self._model, "execute"):
                return self._failed(f"Python model {self._file} does not implement `execute` method.")
            returned = self._model.execute(list(requests))
            if inspect.iscoroutine(returned):
                returned = asyncio.run(returned)
            wrong = self._take(returned, requests)
        except (KeyboardInterrupt, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            wrong = f"{type(error).__name__}: {error}\n\nAt:\n{_calls(error)}"
        return wrong and self._failed(wrong)

    def _failed(self, words: str) -> str:
        return f"Failed to process the request(s) for model '{self._instance}', message: {words}"

    def _await_ends(self, requests: Sequence[Any]) -> str:
        """Wait until a decoupled model has said that each answer is complete, which another thread may do."""
        until = time.monotonic() + self.patience_s
        for request in requests if self.decoupled else ():
            if not request.get_response_sender().closed.wait(max(0.0, until - time.monotonic())):
                return (
                    f"model '{self.name}' sent no TRITONSERVER_RESPONSE_COMPLETE_FINAL within {self.patience_s:g} s:"
                    " a caller of Triton would wait for ever"
                )
        return ""

    def _take(self, returned: Any, requests: Sequence[Any]) -> str:
        """Give each request its response; the reason why that cannot be, in Triton's words."""
        if returned is None:
            return ""
        if self.decoupled:
            mode = "is using the decoupled mode and the execute function must return None."
            return f"Python model '{self._instance}' {mode}"
        if not isinstance(returned, list):
            return f"Expected a list in the execute return, found type '{type(returned)}'."
        if len(returned) != len(requests):
            return (
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects."
                f" InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        for response, request in zip(returned, requests, strict=True):
            sender = request.get_response_sender()
            if response is None and sender.sent:
                continue
            if not isinstance(response, self._triton.InferenceResponse):
                return (
                    "Expected an 'InferenceResponse' object in the execute function return list, found type"
                    f" '{type(response)}'."
                )
            sender.send(response, 1)
        return ""

    def _answer(self, request: Any, given: PythonRequest) -> PythonAnswer:
        sender = request.get_response_sender()
        names = request.requested_output_names()
        responses: list[Mapping[str, Any]] = []
        for response in sender.sent:
            if response.has_error():
                error = response.error()
                where = f"model {self.name}" + (f", request {given.request_id}" if given.request_id else "")
                return PythonAnswer(
                    tuple(responses), InferenceError(where, found=error.message()), _code(error, self._triton)
                )
            responses.append(arrays_of(response.output_tensors(), names))
        if not self.decoupled and not responses:
            missing = "execute gave no response, and a caller of Triton would wait for ever"
            return PythonAnswer((), InferenceError(f"model {self.name}", found=missing), "INTERNAL")
        return PythonAnswer(tuple(responses))


def _calls(error: BaseException) -> str:
    """The calls that led to an error, innermost first, as Triton writes them."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"  {code.co_filename}({trace.tb_lineno}): {code.co_name}\n")
        trace = trace.tb_next
    return "".join(reversed(places[1:]))


def _code(error: Any, triton: Any) -> str:
    names = [name for name in dir(triton.TritonError) if name.isupper()]
    return next((name for name in names if getattr(triton.TritonError, name) == error.code()), "")
