"""The arguments of entry.py, and the variables that stand for them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

__all__ = ["parser"]


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of entry.py's options; unknown arguments go to tritonserver."""
    made = argparse.ArgumentParser(prog="entry.py", description=description)
    made.add_argument("--repository", type=Path, default=Path("/models"))
    made.add_argument("--key-file", type=Path, default=Path("/handover/admin-key"))
    made.add_argument("--needs", type=Path, default=Path("/handover/needs.json"))
    made.add_argument(
        "--backend",
        default=os.environ.get("TRITON_BACKEND") or "auto",
        help="backends of ONNX Runtime and OpenVINO: auto (native if possible), native or python",
    )
    made.add_argument("--shared-memory", action="store_true", help="let clients with the key register shared memory")
    made.add_argument("--no-verify", action="store_true", help="do not check the files against their manifests")
    made.add_argument("--own-key", action="store_true", help="without a key file, use a key that nobody knows")
    made.add_argument(
        "--connection-age-s",
        default=os.environ.get("TRITON_CONNECTION_AGE_S", ""),
        help="seconds after which callers are asked to reconnect; never if unset",
    )
    made.add_argument(
        "--pin",
        default=os.environ.get("TRITON_PIN", ""),
        help="1: pin to cores of its own if the quota is smaller than the machine",
    )
    made.add_argument("--no-http", action="store_true", help="gRPC and metrics only")
    made.add_argument(
        "--http-hosts",
        default=os.environ.get("TRITON_HTTP_HOSTS", ""),
        help="names by which callers know this server, in addition to loopback's",
    )
    made.add_argument(
        "--http-origins", default=os.environ.get("TRITON_HTTP_ORIGINS", ""), help="origins of web pages that may call"
    )
    made.add_argument(
        "--trace-url",
        default=os.environ.get("TRITON_TRACE_URL", ""),
        help="address for spans, OTLP over HTTP; no tracing by default",
    )
    made.add_argument(
        "--trace-rate", default=os.environ.get("TRITON_TRACE_RATE") or "1000", help="trace one request in this many"
    )
    return made
