"""Call digits and sentences until a line comes on standard input, and print the counts as JSON.

    caller.py ADDRESS [--rate 100] [--seconds 900] [--sentences 0.05] [--ca FILE --key-file FILE]

It runs in a pod of the cluster, in the image `tools`, next to picture.png. Calls begin at the times that the rate
sets, independent of answers; at a rate of 0 each worker calls without a pause.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonkit.client import TLS, Client, Secret
from tritonkit.errors import TritonkitError

WORKERS = 24
TEXT = "The quick brown fox jumps over the lazy dog."


class Tally:
    """Counts of calls by result."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.versions: dict[str, set[str]] = {"digits": set(), "sentences": set()}
        self.endpoints: set[str] = set()
        self.resent = 0
        self.slowest_s = 0.0
        self.wrong = 0

    def add(self, model: str, reply: Any, error: Exception | None, seconds: float) -> None:
        """Count a call."""
        with self.lock:
            self.calls[model] += 1
            self.slowest_s = max(self.slowest_s, seconds)
            if error is not None:
                self.errors[f"{model}: {type(error).__name__}: {str(error).splitlines()[0]}"] += 1
                return
            self.versions[model].add(str(reply.version))
            self.endpoints.add(str(reply.endpoint))
            self.resent += reply.attempts - 1
            self.wrong += not right(model, reply)

    def to_dict(self, seconds: float) -> dict[str, Any]:
        """For JSON."""
        return {
            "calls": sum(self.calls.values()),
            "by_model": self.calls,
            "failed": sum(self.errors.values()),
            "wrong": self.wrong,
            "errors": dict(self.errors.most_common(20)),
            "slowest_s": round(self.slowest_s, 3),
            "seconds": round(seconds, 1),
            "resent": self.resent,
            "versions": {name: sorted(versions) for name, versions in self.versions.items()},
            "endpoints": sorted(self.endpoints),
        }


def right(model: str, reply: Any) -> bool:
    """Whether an answer is what the model must say."""
    if model == "digits":
        return bool(reply["label"][0, 0] == b"7")
    return bool(reply["embedding"].shape == (1, 384))


def work(client: Client, number: int, options: argparse.Namespace, stop: threading.Event, tally: Tally) -> None:
    """Call at this worker's share of the rate."""
    picture = (Path(__file__).parent / "picture.png").read_bytes()
    pause = WORKERS / options.rate if options.rate else 0.0
    every = round(1 / options.sentences) if options.sentences else 0
    due, count = time.monotonic() + pause * number / WORKERS, number
    while not stop.wait(max(0.0, due - time.monotonic())):
        # Late by more than a pause: those calls are left out, or a stall would be followed by a burst.
        due = max(due + pause, time.monotonic() - pause)
        count += 1
        model = "sentences" if every and count % every == 0 else "digits"
        inputs: dict[str, Any] = {"text": TEXT} if model == "sentences" else {"image": picture}
        reply, error, began = None, None, time.monotonic()
        try:
            reply = client.model(model).predict(**inputs)
        except TritonkitError as caught:
            error = caught
        tally.add(model, reply, error, time.monotonic() - began)


def ended(wait: Callable[[], object], stop: threading.Event) -> None:
    """Stop after a wait."""
    wait()
    stop.set()


def main() -> None:
    """Call, and say what came of it."""
    parser = argparse.ArgumentParser(prog="caller.py", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--rate", type=float, default=100.0, help="calls a second, all workers together")
    parser.add_argument("--seconds", type=float, default=900.0, help="at most so long")
    parser.add_argument("--sentences", type=float, default=0.05, help="their share of the calls")
    parser.add_argument("--ca")
    parser.add_argument("--key-file", type=Path)
    options = parser.parse_args()
    settings: dict[str, Any] = {"tls": TLS(ca=options.ca)} if options.ca else {}
    if options.key_file:
        settings["api_key"] = Secret.from_file(options.key_file)
    stop, tally, began = threading.Event(), Tally(), time.monotonic()
    for wait in (lambda: os.read(0, 1), lambda: time.sleep(options.seconds)):
        threading.Thread(target=ended, args=(wait, stop), daemon=True).start()
    with Client(options.address, **settings) as client:
        threads = [
            threading.Thread(target=work, args=(client, number, options, stop, tally)) for number in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        print("calling", flush=True)  # noqa: T201
        for thread in threads:
            thread.join()
    print(json.dumps(tally.to_dict(time.monotonic() - began)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
