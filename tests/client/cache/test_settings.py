"""Settings of a cache."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tritonkit.client.cache import Cache, PredictionCache
from tritonkit.errors import UsageError


@pytest.mark.parametrize(
    "wrong",
    [
        {"l1": 0},
        {"l1": True},
        {"l1": 1.5},
        {"ttl_s": 0},
        {"ttl_s": float("nan")},
        {"ttl_s": float("inf")},
        {"redis_ttl_s": -1},
        {"redis_ttl_s": 0.0001},
        {"redis_timeout_s": 0},
        {"redis_timeout_s": 60},
        {"l1_bytes": 0},
        {"l1": 100, "l1_bytes": 99},
        {"namespace": "a\nb"},
        {"namespace": "x" * 101},
        {"redis": "localhost:6379"},
        {"redis": "http://localhost"},
        {"redis": "redis://host:port/0"},
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any]) -> None:
    """Values out of range and addresses that are not Redis URLs are usage errors naming the setting."""
    with pytest.raises(UsageError, match=rf"Cache\b.*\b{list(wrong)[-1]}="):
        Cache(**wrong)


def test_the_password_is_in_no_text() -> None:
    """Neither `repr` nor any message about a URL shows what is in it."""
    assert "hunter2" not in repr(Cache(redis="redis://:hunter2@localhost:6379/0"))
    for bad in ("http://:hunter2@localhost", "redis://:hunter2@localhost:hunter2", "redis://[:hunter2@localhost"):
        with pytest.raises(UsageError) as caught:
            Cache(redis=bad)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("options", ["no_such_option=1", "socket_timeout=soon"])
def test_a_url_the_client_refuses_is_told_at_once(options: str) -> None:
    """An option redis-py does not know fails when the cache is made, not silently at each call."""
    with pytest.raises(UsageError, match="Redis client refuses") as caught:
        PredictionCache(Cache(redis=f"redis://:hunter2@localhost/0?{options}"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("package", ["cachetools", "redis"])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Without cachetools or redis, the error says what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"{package}[\s\S]*pip install 'tritonkit\[cache\]'"):
        PredictionCache(Cache(redis="redis://localhost"))


def test_importing_the_cache_loads_no_library() -> None:
    """cachetools and redis are loaded when a cache is made, redis only if it is used."""
    program = (
        "import sys; import tritonkit.client.cache as cache; "
        "assert not {'redis', 'cachetools'} & set(sys.modules); "
        "cache.PredictionCache(cache.Cache()); "
        "assert 'cachetools' in sys.modules and 'redis' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
