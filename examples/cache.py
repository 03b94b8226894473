"""Keep answers in this process and in Redis: the same text is computed once for all processes.

redis-server &
tritonkit serve &
python examples/cache.py "How far is the moon?"
"""

from __future__ import annotations

import argparse

from tritonkit.client import Cache, Client


def main() -> None:
    """Call three times, the last time like another process, with an empty cache of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--address", default="127.0.0.1:8001")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379")
    options = parser.parse_args()

    cache = Cache(l1=10_000, ttl_s=5, redis=options.redis, redis_ttl_s=30)
    for calls in (2, 1):
        with Client(options.address, cache=cache) as client:
            for _ in range(calls):
                reply = client.model("sentences").predict(text=options.text)
                print(f"{reply.origin:6} {reply.timing.total_s * 1000:8.3f} ms")


if __name__ == "__main__":
    main()
