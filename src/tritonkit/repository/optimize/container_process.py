"""Run a command of docker, and end its container with the build: `container.py` runs this file in a process of its own.

However the build ends, killed too, its end of this process's standard input closes. The program in a container is its
first process, which the kernel lets ignore SIGINT and SIGTERM, so signals do not end it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Thread

__all__ = ["main"]


def main(docker: str, name: str, *command: str) -> int:
    """Run the command; return its exit code, or docker's for a container that was ended.

    Args:
        name: the container's.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as client:
        end = Thread(target=_end, args=(docker, name, client), daemon=True)
        end.start()
        code = client.wait()
    if code < 0:
        end.join()
    return code


def _end(docker: str, name: str, client: subprocess.Popen[bytes]) -> None:
    """Remove the container once the build has ended."""
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written there
    client.kill()  # first: it would start a container that it has just created
    subprocess.run([docker, "rm", "--force", name], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
