"""The application on a socket, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from tritonkit.errors import ServerStartError
from tritonkit.extras import need_package
from tritonkit.openai.settings import OpenAISettings, shown_host

__all__ = ["run_openai"]

_REQUIREMENT = "tritonkit[openai]"
_END_S = 10
"""Seconds for requests under way at the end."""


def run_openai(settings: OpenAISettings, ready: Callable[[str], object] = lambda url: None) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        settings: see `OpenAISettings`.
        ready: called with the server's URL once it takes requests.

    Raises:
        UsageError: a package is missing, or the client's settings are wrong.
        ServerStartError: the address cannot be taken.
    """
    need_package("starlette.applications", _REQUIREMENT)
    uvicorn = need_package("uvicorn", _REQUIREMENT)
    from tritonkit.openai.app import make_app
    from tritonkit.openai.callers import MOST_CLIENTS, callers_of
    from tritonkit.openai.connection import BACKLOG, MOST_HANDSHAKES, BoundedProtocol, allow_connections

    BoundedProtocol.certificate = settings.certificate
    BoundedProtocol.most = allow_connections(
        (MOST_CLIENTS if settings.forward_keys else 0) + (MOST_HANDSHAKES if settings.certificate else 0)
    )

    async def serve() -> None:
        async with contextlib.aclosing(callers_of(settings)) as callers:
            await callers.check()
            app = make_app(settings, callers, lambda: ready(url))
            await uvicorn.Server(uvicorn.Config(app, **options)).serve(sockets=[listening])

    with _bound(settings, BACKLOG) as listening:
        scheme = "https" if settings.certificate else "http"
        url = f"{scheme}://{shown_host(settings.host)}:{listening.getsockname()[1]}"
        options = {
            "access_log": False,
            "backlog": BACKLOG,
            "h11_max_incomplete_event_size": 64 << 10,
            "http": BoundedProtocol,
            "lifespan": "on",
            "log_config": None,
            "proxy_headers": False,
            "server_header": False,
            "timeout_graceful_shutdown": _END_S,
            "ws": "none",
        }
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve())


def _bound(settings: OpenAISettings, backlog: int) -> socket.socket:
    where = (settings.host, settings.port)
    try:
        family = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(where, family=family, backlog=backlog)
    except OSError as error:
        raise ServerStartError(
            f"http://{shown_host(settings.host)}:{settings.port}",
            found=f"it cannot listen there: {error.strerror or error}",
            wanted="a free address of this machine",
            todo="name another port with --port",
        ) from None
