"""Label every picture of a folder: concurrent requests, results in order, and bad files reported.

tritonkit serve &
python examples/images.py models/digits/examples
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tritonkit.client import Adaptive, Client
from tritonkit.errors import ClientError


def main() -> int:
    """Print each file's best label; return 1 if the model could not read one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--address", default="127.0.0.1:8001")
    parser.add_argument("--model", default="digits")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")

    files = sorted(file for file in options.folder.iterdir() if file.is_file())
    failed = 0
    # Concurrent single items travel as one request.
    with Client(options.address, batching=Adaptive()) as client:
        contents = (file.read_bytes() for file in files)  # each file is read when its turn comes
        replies = client.model(options.model).try_many(contents, concurrency=16)
        for file, reply in zip(files, replies, strict=True):
            if isinstance(reply, ClientError):
                failed += 1
                print(f"{file.name}: {reply.found}")
            else:
                label, score = reply["label"][0, 0].decode(), reply["score"][0, 0]
                print(f"{file.name}: {label} ({score:.2f})")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
