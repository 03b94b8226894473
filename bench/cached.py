"""A cached answer against a served one: `python -m bench.cached ADDRESS --redis URL`, JSON out."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from tritonkit.client import Cache, Client

__all__ = ["main"]

MODEL, TEXT = "sentences", "How far is it from the earth to the moon?"
WARM = 20


def main() -> None:
    """Median seconds of a call that is served, cached in this process, or cached in Redis."""
    parser = argparse.ArgumentParser(prog="python -m bench.cached", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--redis", required=True, metavar="URL")
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    here = Cache(ttl_s=600, redis_ttl_s=600)
    # An answer stays in this process for a microsecond, so each call finds it only in Redis.
    there = Cache(ttl_s=1e-6, redis=options.redis, redis_ttl_s=600)
    print(
        json.dumps(
            {
                "served_us": _median(options, "server"),
                "l1_us": _median(options, "l1", cache=here),
                "l2_us": _median(options, "l2", cache=there),
            }
        )
    )


def _median(options: argparse.Namespace, origin: str, **settings: Any) -> float:
    with Client(options.address, **settings) as client:
        model = client.model(MODEL)
        for _ in range(WARM):
            model.predict(text=TEXT)
        times = []
        for _ in range(options.calls):
            started = time.perf_counter()
            reply = model.predict(text=TEXT)
            times.append(time.perf_counter() - started)
            if reply.origin != origin:
                raise SystemExit(f"an answer from {reply.origin}, wanted one from {origin}")
    return 1e6 * float(np.median(times))


if __name__ == "__main__":
    main()
