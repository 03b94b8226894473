"""A real Redis for each test that asks for one."""

from __future__ import annotations

from tests.client.cache.conftest import RedisServer, start_redis

__all__ = ["RedisServer", "start_redis"]
