"""One client for many servers: calls go to servers with room, and avoid a server that has died.

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
    """Call many times, and print the servers that answered and the number of retries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+", help="host:port, or dns:host:port for all addresses of a name")
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()

    answered: Counter[str] = Counter()
    again = 0
    # Hedging also sends the slowest twentieth to a second server, within the budget of retries. The model's
    # configuration allows that by declaring it idempotent.
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
