"""The end of a container (Kubernetes' preStop): make it unready, and go on answering for a while.

    stop.py [SECONDS]

In that time the callers learn that it leaves: the cluster takes its address from the lists of endpoints, and with
TRITON_CONNECTION_AGE_S below these seconds every connection made before is asked to end (HTTP/2's GOAWAY), so that no
caller is left with a connection to a server that unloads its models. Standard library only.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

__all__ = ["main"]

RUN = Path("/tmp/tritonkit")  # noqa: S108 (a tmpfs of the container's own)
STOPPING = "stopping"
"""The file there that health.py looks for."""
SECONDS = 15.0


def main(arguments: list[str]) -> int:
    """Say so, and wait."""
    try:
        seconds = float(arguments[0]) if arguments else SECONDS
        os.umask(0o077)
        (RUN / STOPPING).write_text("")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n  do: stop.py SECONDS, in a container that serves\n")
        return 2
    time.sleep(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
