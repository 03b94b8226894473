"""The server's models that OpenAI's API has a path for, recognized by their inputs and outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tritonkit.client.language_models import text_tensors
from tritonkit.errors import ClientError, InferenceError, ModelNotFound
from tritonkit.openai.problems import Problem, has_status, invalid
from tritonkit.openai.scores import score_of
from tritonkit.openai.templates import Chats

if TYPE_CHECKING:
    from tritonkit.client import AsyncClient, AsyncModel
    from tritonkit.client.wire.signature import ModelSignature

__all__ = ["Catalog", "tasks_of"]


def tasks_of(signature: ModelSignature, *, templated: bool = False) -> frozenset[str]:
    """Any of `chat`, `completion`, `embedding`, `rerank`, `classify` and `transcription`; none for another kind.

    Args:
        signature: the model's inputs and outputs.
        templated: whether it has a known chat template.
    """
    inputs = {name for name, tensor in signature.inputs.items() if tensor.datatype == "BYTES"}
    tensors = text_tensors(signature)
    if tensors is not None:
        by_task = {"chat": tensors.messages or (tensors.text if templated else ""), "completion": tensors.text}
        return frozenset(task for task, name in by_task.items() if name in inputs)
    needed = {name for name, tensor in signature.inputs.items() if not tensor.optional}
    outputs = {name: tensor.datatype for name, tensor in signature.outputs.items()}
    tasks = set()
    if outputs.get("embedding") == "FP32" and _takes_texts(signature, inputs, needed):
        tasks.add("embedding")
    if needed <= {"text", "text_pair"} <= inputs and score_of(signature) and "label" not in outputs:
        tasks.add("rerank")
    if needed <= {"text"} <= inputs and (outputs.get("label"), outputs.get("score")) == ("BYTES", "FP32"):
        tasks.add("classify")
    if needed <= {"audio"} <= inputs and outputs.get("text") == "BYTES":
        tasks.add("transcription")
    return frozenset(tasks)


def _takes_texts(signature: ModelSignature, inputs: set[str], needed: set[str]) -> bool:
    """Whether each call needs a text, or a list of tokens, and nothing else."""
    tokens = signature.inputs.get("tokens")
    accepted = {"text"} & inputs
    if tokens is not None and tokens.datatype in ("INT32", "INT64"):
        accepted |= {"tokens"}
    # Each call gives one of them; the other is optional, or absent.
    return bool(accepted) and needed <= accepted and len(needed) < 2


class Catalog:
    """The models that callers may name. The client keeps their signatures and reads an outdated one again.

    Args:
        client: the server's client.
        names: the only models that are listed and called; empty: all that the server has.
        chats: templates of models that take only text.
        keyed: whether the client calls a gateway, where its key may not use every model.
    """

    def __init__(
        self,
        client: AsyncClient,
        names: Sequence[str] = (),
        *,
        chats: Chats = Chats({}),  # noqa: B008 - frozen
        keyed: bool = False,
    ) -> None:
        self._client = client
        self._names = tuple(names)
        self._chats = chats
        self._keyed = keyed
        self._met: dict[str, None] = {}

    async def find(self, name: str, task: str) -> tuple[AsyncModel, ModelSignature]:
        """The signature of a model for a task.

        Raises:
            Problem: there is no such model, or it does not do this task.
            ClientError: the server does not report the signature.
        """
        model = await self._model(name)
        signature = await model.signature()
        tasks = tasks_of(signature, templated=self._chats.of(name) is not None)
        if task not in tasks:
            lacks = " (this server has no chat template for it)" if "completion" in tasks else ""
            raise invalid(f"model: {name!r} cannot be used for this: {task}{lacks}", "model", "model_not_supported")
        self._met[name] = None
        return model, signature

    async def _model(self, name: str) -> AsyncModel:
        missing = Problem(404, f"the model {name!r} does not exist", param="model", code="model_not_found")
        if self._names and name not in self._names:
            raise missing
        try:
            return await self._client.model(name)
        except ModelNotFound as error:
            if type(error) is ModelNotFound:
                raise missing from None
            raise

    async def names(self) -> list[str]:
        """Names of the models that are ready for some task.

        If the server lists its models only with its key, these are the models that were called so far.
        """
        names = self._names or await self._listed()
        return [name for name in names if await self.has(name)]

    async def has(self, name: str) -> bool:
        """Whether there is a model of this name, for some task."""
        try:
            return bool(tasks_of(await (await self._model(name)).signature()))
        except (Problem, ModelNotFound):
            return False
        except InferenceError as error:
            if self._keyed and has_status(error, "PERMISSION_DENIED"):
                return False
            raise

    async def _listed(self) -> Sequence[str]:
        if self._keyed:
            return await self._counted()
        with contextlib.suppress(InferenceError):
            return sorted({model.name for model in await self._client.models() if model.ready})
        return list(self._met)

    async def _counted(self) -> Sequence[str]:
        """Models with statistics: a gateway lists models to no caller, but gives statistics to keys for all models."""
        try:
            return sorted({row.name for row in await self._client.statistics("")})
        except InferenceError as error:
            if not has_status(error, "PERMISSION_DENIED"):
                raise
        return list(self._met)

    async def ready(self) -> bool:
        """Whether the server takes requests."""
        try:
            return await self._client.is_ready()
        except ClientError:
            return False
