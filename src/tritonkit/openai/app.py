"""The application: OpenAI's paths over one asynchronous client."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tritonkit.client import AsyncModel
from tritonkit.errors import ClientError
from tritonkit.openai.answers import Completion
from tritonkit.openai.bodies import ChatBody, ClassifyBody, CompletionBody, EmbeddingBody, RerankBody, read_body
from tritonkit.openai.callers import Callers
from tritonkit.openai.catalog import Catalog
from tritonkit.openai.dialects import OWN, Dialect, dialect_of
from tritonkit.openai.embeddings import embed
from tritonkit.openai.events import DONE, Events, attended, event
from tritonkit.openai.forms import read_form, transcribe
from tritonkit.openai.gate import Room, body_of, gate, refusal
from tritonkit.openai.generation import choices, generate
from tritonkit.openai.piece import Piece
from tritonkit.openai.problems import Problem, problem_of
from tritonkit.openai.scores import classify, rerank
from tritonkit.openai.settings import OpenAISettings

__all__ = ["make_app"]

_log = logging.getLogger("tritonkit.openai")


def make_app(settings: OpenAISettings, callers: Callers, ready: Callable[[], object] = lambda: None) -> Starlette:
    """The application.

    Args:
        settings: see `OpenAISettings`.
        callers: see `Callers`.
        ready: called once the application takes requests.
    """
    server = _Server(settings, callers)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        ready()
        yield

    return Starlette(
        routes=[
            Route("/v1/chat/completions", _held(server, server.chat), methods=["POST"]),
            Route("/v1/completions", _held(server, server.complete), methods=["POST"]),
            Route("/v1/embeddings", _held(server, server.embed), methods=["POST"]),
            Route("/v1/rerank", _held(server, server.rerank), methods=["POST"]),
            Route("/v1/classify", _held(server, server.classify), methods=["POST"]),
            Route("/v1/audio/transcriptions", _held(server, server.transcribe), methods=["POST"]),
            Route("/v1/models", _held(server, server.models)),
            Route("/v1/models/{name}", _held(server, server.model)),
            Route("/health", server.health),
        ],
        middleware=[Middleware(functools.partial(gate, settings=settings))],
        exception_handlers={HTTPException: _no_path, Problem: _refused, Exception: _broken},
        lifespan=lifespan,
    )


class _Server:
    """The handlers and their common state."""

    def __init__(self, settings: OpenAISettings, callers: Callers) -> None:
        self._settings = settings
        self.callers = callers
        self.room = Room(settings.max_requests)
        self._started = int(time.time())

    async def chat(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/chat/completions`."""
        body = read_body(ChatBody, await self._body(request))
        await self._answer(catalog, body, "chat", request, send)

    async def complete(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/completions`."""
        body = read_body(CompletionBody, await self._body(request))
        await self._answer(catalog, body, "completion", request, send)

    async def embed(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/embeddings`."""
        body = read_body(EmbeddingBody, await self._body(request))

        async def embedded() -> dict[str, Any]:
            model, signature = await catalog.find(body.model, "embedding")
            shortens = body.model in self._settings.matryoshka
            return await embed(model, signature, body, self._settings.timeout_s, matryoshka=shortens)

        await _send(JSONResponse(await attended(request.receive, embedded())), request, send)

    async def rerank(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/rerank`."""
        body = read_body(RerankBody, await self._body(request))

        async def ranked() -> dict[str, Any]:
            model, signature = await catalog.find(body.model, "rerank")
            return await rerank(model, signature, body, self._settings.timeout_s)

        await _send(JSONResponse(await attended(request.receive, ranked())), request, send)

    async def classify(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/classify`."""
        body = read_body(ClassifyBody, await self._body(request))

        async def classified() -> dict[str, Any]:
            model, _ = await catalog.find(body.model, "classify")
            return await classify(model, body, self._settings.timeout_s, int(time.time()))

        await _send(JSONResponse(await attended(request.receive, classified())), request, send)

    async def transcribe(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/audio/transcriptions`."""
        body, sound = await read_form(request, self._settings.max_body_kib << 10)

        async def transcribed() -> str:
            model, _ = await catalog.find(body.model, "transcription")
            return await transcribe(model, sound, self._settings.timeout_s)

        text = await attended(request.receive, transcribed())
        as_text = body.response_format == "text"
        await _send(PlainTextResponse(f"{text}\n") if as_text else JSONResponse({"text": text}), request, send)

    async def models(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/models`."""
        data = [self._shown(name) for name in await catalog.names()]
        await _send(JSONResponse({"object": "list", "data": data}), request, send)

    async def model(self, catalog: Catalog, request: Request, send: Send) -> None:
        """`/v1/models/NAME`."""
        name = request.path_params["name"]
        if not await catalog.has(name):
            raise Problem(404, f"the model {name!r} does not exist", code="model_not_found")
        await _send(JSONResponse(self._shown(name)), request, send)

    async def health(self, _: Request) -> Response:
        """Whether the server behind takes requests."""
        is_ready = await self.callers.ready()
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    def problem(self, error: ClientError | Problem) -> Problem:
        """The problem for the caller; the log also gets a fault of this server or the one behind it."""
        if isinstance(error, Problem):
            return error
        problem = problem_of(error, self._settings.forward_keys)
        if problem.status >= 500:
            _log.warning("%s", error)
        return problem

    def _shown(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "tritonkit"}

    async def _body(self, request: Request) -> bytes:
        return await body_of(request, self._settings.max_body_kib << 10)

    async def _answer(
        self, catalog: Catalog, body: ChatBody | CompletionBody, task: str, request: Request, send: Send
    ) -> None:
        """An answer of a language model, whole or as events."""
        if body.stream:
            events = Events(send)
            await attended(request.receive, self._streamed(catalog, body, task, events))
            await events.end()
            return
        made = await attended(request.receive, self._whole(catalog, body, task))
        await _send(JSONResponse(made), request, send)

    async def _asked(
        self, catalog: Catalog, body: ChatBody | CompletionBody, task: str
    ) -> tuple[AsyncModel, Dialect, list[dict[str, Any]]]:
        """The model, its kind, and the inputs of each choice."""
        settings = self._settings
        model, signature = await catalog.find(body.model, task)
        dialect = dialect_of(signature) or OWN
        chat = None if dialect.tensors.messages else settings.chats.of(body.model)
        made = functools.partial(choices, body, signature, dialect=dialect, chat=chat, max_tokens=settings.max_tokens)
        # A template may take a second or two: other requests continue meanwhile.
        return model, dialect, made() if chat is None else await asyncio.to_thread(made)

    async def _whole(self, catalog: Catalog, body: ChatBody | CompletionBody, task: str) -> dict[str, Any]:
        model, dialect, inputs = await self._asked(catalog, body, task)
        answer = _answer_to(body, len(inputs))

        async def take(piece: Piece) -> None:
            answer.add(piece)

        await generate(model, inputs, self._settings.timeout_s, take, dialect, _tools_of(body))
        return answer.whole()

    async def _streamed(self, catalog: Catalog, body: ChatBody | CompletionBody, task: str, events: Events) -> None:
        """Events until the end, or until an error, which is then the last one."""
        model, dialect, inputs = await self._asked(catalog, body, task)
        answer = _answer_to(body, len(inputs))

        async def take(piece: Piece) -> None:
            answer.add(piece)
            await events.write(event(answer.chunk(piece, body.with_usage())))

        try:
            await generate(model, inputs, self._settings.timeout_s, take, dialect, _tools_of(body))
        except (ClientError, Problem) as error:
            if not events.begun:
                raise
            await events.write(event(self.problem(error).body()))
            return
        if body.with_usage():
            await events.write(event(answer.last()))
        await events.write(DONE)


async def _send(response: Response, request: Request, send: Send) -> None:
    await response(request.scope, request.receive, send)


def _tools_of(body: ChatBody | CompletionBody) -> frozenset[str]:
    offered = body.offered if isinstance(body, ChatBody) else []
    return frozenset(tool.function.name for tool in offered)


def _answer_to(body: ChatBody | CompletionBody, many: int) -> Completion:
    return Completion(
        body.model,
        chat=isinstance(body, ChatBody),
        choices=many,
        per_prompt=body.n,
        logprobs=body.logprobs is not None and body.logprobs is not False,
        keep=not body.stream,
    )


def _held(server: _Server, handler: Any) -> Any:
    """An endpoint that sends its own response and holds a place while it works."""

    async def endpoint(request: Request) -> Any:
        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            authorization = request.headers.get("authorization", "").encode("latin-1")
            # A caller that has left gets no response.
            with server.room.taken(), contextlib.suppress(ClientDisconnect):
                try:
                    async with server.callers.catalog(authorization) as catalog:
                        await handler(catalog, request, send)
                except ClientError as error:
                    raise server.problem(error) from None

        return respond

    return endpoint


def _refused(_: Request, error: Any) -> Response:
    return refusal(error)


def _no_path(_: Request, error: Any) -> Response:
    messages = {404: "there is nothing at this path", 405: "this path takes another method"}
    message = messages.get(error.status_code, error.detail)
    return refusal(Problem(error.status_code, message, code="not_found"))


def _broken(*_: Any) -> Response:
    return refusal(Problem(500, "the server failed", code="failed"))
