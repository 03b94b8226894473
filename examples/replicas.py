"""One client over many servers: calls go where there is room, and around a server that has died.

tritonkit serve --grpc-port 8001 &
tritonkit serve --grpc-port 9001 --http-port 9000 --metrics-port 9002 &
python examples/replicas.py 127.0.0.1:8001 127.0.0.1:9001 --image models/digits/examples/seven.png
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import repeat
from pathlib import Path

from tritonkit.client import Client, Hedge


def main() -> None:
    """Call many times, and print who answered and how many requests were sent again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+", help="host:port, or dns:host:port for all of a name")
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()

    answered: Counter[str] = Counter()
    again = 0
    # Hedging sends the slowest twentieth to a second server too, within the budget of retries. The model
    # declares in its configuration that it may: it is idempotent.
    with Client(options.addresses, timeout_s=5.0, hedge=Hedge()) as client:
        items = repeat(options.image.read_bytes(), options.calls)
        for reply in client.model("digits").predict_many(items, concurrency=16):
            answered[reply.endpoint] += 1
            again += reply.attempts - 1
    for address, count in sorted(answered.items()):
        print(f"{address}: {count}")
    print(f"sent again: {again}")


if __name__ == "__main__":
    main()
