"""`python -m tests.client.wire.fuzz --frames 10_000_000`: ends with the figures, or with the episode that failed."""

from __future__ import annotations

import argparse
import json
import sys

from tests.client.wire.fuzz.campaign import fuzz


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


parser = argparse.ArgumentParser(prog="python -m tests.client.wire.fuzz")
parser.add_argument("--frames", type=lambda text: int(text.replace("_", "")), default=100_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--first", type=int, default=0, help="the number of the episode to begin with")
parser.add_argument("--json", action="store_true", help="the figures alone, for programs")
options = parser.parse_args()
counts = fuzz(options.frames, options.seed, options.first, (lambda line: None) if options.json else _say)
if options.json:
    _say(json.dumps(counts))
else:
    for name, count in sorted(counts.items()):
        _say(f"{count:12,}  {name}")
