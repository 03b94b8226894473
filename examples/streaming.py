"""Read a decoupled model's answers as they come, and stop early without leaving work behind.

tritonkit serve --repository examples/model_repository &
python examples/streaming.py "the words come one by one"
"""

from __future__ import annotations

import argparse

from tritonkit.client import Client


def main() -> None:
    """Print each word when it arrives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--address", default="127.0.0.1:8001")
    parser.add_argument("--most", type=int, default=100, help="stop after this many words (100)")
    options = parser.parse_args()

    # Leaving the block before the last answer tells the server to stop.
    with Client(options.address) as client, client.model("words").stream(text=options.text) as replies:
        for count, reply in enumerate(replies, start=1):
            print(reply["word"][0].decode(), flush=True)
            if count == options.most:
                break


if __name__ == "__main__":
    main()
