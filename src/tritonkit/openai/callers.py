"""Callers of the server behind this one: one for all requests, or each request under its caller's own key."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tritonkit.client import TLS, AsyncClient, Secret
from tritonkit.errors import ClientError, InferenceError, UsageError
from tritonkit.openai.catalog import Catalog
from tritonkit.openai.problems import Problem, has_status
from tritonkit.openai.settings import OpenAISettings

__all__ = ["MOST_CLIENTS", "Callers", "KeyedCallers", "OneCaller", "callers_of"]

_log = logging.getLogger("tritonkit.openai")

MOST_CLIENTS = 256
"""Keys whose clients are kept, each with its own connection; beyond that, the least recently used one is closed."""
_MOST_UNKNOWN = 64
"""Keys under check at the gateway; one more is refused, so that strangers do not delay known callers."""
_SOME_MODEL = "-"
"""A model whose state is requested, which counts for no key's rate; it need not exist."""
_LONGEST_KEY = 8192
"""Bytes of a key; a JSON Web Token is one, too."""


class OneCaller:
    """One client for all requests, which go out as this server's own.

    Args:
        settings: see `OpenAISettings`.
    """

    def __init__(self, settings: OpenAISettings) -> None:
        self._client = AsyncClient(settings.address, **settings.client)
        self._catalog = Catalog(self._client, settings.names, chats=settings.chats)

    @contextlib.asynccontextmanager
    async def catalog(self, authorization: bytes) -> AsyncIterator[Catalog]:
        """The models, for one request."""
        yield self._catalog

    async def ready(self) -> bool:
        """Whether the server behind takes requests."""
        return await self._catalog.ready()

    async def check(self) -> None:
        """Do nothing: there is nothing to check before the first request."""

    async def aclose(self) -> None:
        """Free the connection."""
        await self._client.close()


@dataclass(slots=True)
class _Kept:
    """A key's client: requests that use it, and whether the gateway knows the key."""

    client: AsyncClient
    catalog: Catalog
    users: int = 0
    good: bool = False


class KeyedCallers:
    """One client for each key: a request goes to the gateway with the key that it came with.

    Memory is bounded: a client without a request is kept only if the gateway knows its key. Only
    hashes of keys are kept.

    Args:
        settings: see `OpenAISettings`.
        most: the number of concurrent clients.

    Raises:
        UsageError: the client's settings are wrong, or keys would travel in plain text.
    """

    def __init__(self, settings: OpenAISettings, most: int = MOST_CLIENTS) -> None:
        self._settings = settings
        self._most = most
        self._options = settings.client.copy()
        if not self._options.get("tls") and settings.address.startswith("grpcs://"):
            self._options["tls"] = TLS()  # read once, not for each key
        self._kept: dict[bytes, _Kept] = {}
        self._stranger = AsyncClient(settings.address, **self._options)
        self._asks = False
        self._client("none")  # reports wrong settings at the start

    def __len__(self) -> int:
        """Clients of keys that the gateway knows."""
        return sum(caller.good for caller in self._kept.values())

    def _client(self, key: str) -> AsyncClient:
        return AsyncClient(self._settings.address, **self._options | {"bearer": Secret(key, where="a caller's key")})

    @contextlib.asynccontextmanager
    async def catalog(self, authorization: bytes) -> AsyncIterator[Catalog]:
        """The models as this key sees them, for one request.

        Raises:
            Problem: no key, no room for one more, or the server behind this one is not a gateway.
            ClientError: the gateway cannot be reached.
        """
        key = _key_in(authorization)
        if not self._asks and not await self.asks_for_keys():
            _log.warning("%s answers without a key: it is not a gateway", self._settings.address)
            raise Problem(502, "the server behind this one requires no key", code="no_gateway")
        digest = hashlib.sha256(key.encode()).digest()
        kept = self._taken(digest, key)
        kept.users += 1
        try:
            if not kept.good:
                await self._admit(kept)
                await self._make_room(kept)
            yield kept.catalog
        except ClientError as error:
            if has_status(error, "UNAUTHENTICATED"):
                kept.good = False
            raise
        finally:
            kept.users -= 1
            if not kept.users and not kept.good:
                self._kept.pop(digest, None)
                await kept.client.close()

    async def _admit(self, kept: _Kept) -> None:
        """Let the gateway check a key before the rest of its request is read.

        Raises:
            ClientError: the gateway does not know it.
        """
        name = self._settings.names[0] if self._settings.names else _SOME_MODEL
        try:
            await kept.client.is_ready(name)
        except InferenceError as error:
            if not has_status(error, "PERMISSION_DENIED"):
                raise
        kept.good = True

    def _taken(self, digest: bytes, key: str) -> _Kept:
        """The key's client, which becomes the most recently used one."""
        kept = self._kept.pop(digest, None)
        if kept is None:
            if len(self._kept) - len(self) >= _MOST_UNKNOWN:
                raise _too_many()
            client = self._client(key)
            settings = self._settings
            catalog = Catalog(client, settings.names, chats=settings.chats, keyed=True)
            kept = _Kept(client, catalog)
        self._kept[digest] = kept
        return kept

    async def _make_room(self, new: _Kept) -> None:
        """Close the least recently used client if there are too many."""
        if len(self) <= self._most:
            return
        entries = self._kept.items()
        idle = next((name for name, caller in entries if caller.good and not caller.users), None)
        if idle is None:
            new.good = False
            raise _too_many()
        await self._kept.pop(idle).client.close()

    async def asks_for_keys(self) -> bool:
        """Whether the server behind this one refuses calls without a key: otherwise all callers would be admitted.

        Raises:
            ClientError: the server does not answer.
        """
        try:
            await self._stranger.server_metadata()
        except InferenceError as error:
            if not has_status(error, "UNAUTHENTICATED"):
                raise
            self._asks = True
            return True
        return False

    async def ready(self) -> bool:
        """Whether the gateway answers; without a key it reports nothing about the servers behind it."""
        try:
            return await self.asks_for_keys()
        except ClientError:
            return False

    async def check(self) -> None:
        """Check at the start, if it answers by then, that it requires a key.

        Raises:
            UsageError: the server answers calls without a key.
        """
        try:
            asks = await self.asks_for_keys()
        except ClientError:
            return
        if not asks:
            raise UsageError(
                f"--address {self._settings.address}",
                found="it answers without a key",
                wanted="a gateway that requires a key of each caller (docs/gateway.md), with --forward-keys",
                todo="give the gateway's address; for a Triton without one, replace --forward-keys by --key-file FILE",
            )

    async def aclose(self) -> None:
        """Free all connections."""
        for kept in [*self._kept.values()]:
            await kept.client.close()
        self._kept.clear()
        await self._stranger.close()


Callers = OneCaller | KeyedCallers


def callers_of(settings: OpenAISettings) -> Callers:
    """The callers for these settings."""
    return KeyedCallers(settings) if settings.forward_keys else OneCaller(settings)


def _too_many() -> Problem:
    return Problem(429, "too many callers", kind="rate_limit_error", code="overloaded")


def _key_in(authorization: bytes) -> str:
    scheme, _, key = authorization.decode("latin-1").partition(" ")
    key = key.strip()
    fits = key.isascii() and key.isprintable() and " " not in key and len(key) <= _LONGEST_KEY
    if scheme.lower() != "bearer" or not key or not fits:
        raise Problem(401, "no API key: send one as Bearer", code="invalid_api_key")
    return key
