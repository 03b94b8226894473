"""A server that is told what to read and to send: the guard is tried on it.

`python receiver.py ADDRESS`, a port of 127.0.0.1 or a path. For each line on stdin it accepts one connection and
takes the line's steps, a JSON list: a number reads that many bytes into two buffers, a list of
hexadecimal texts sends these in one go. It prints what came of each reading, and closes.
"""

from __future__ import annotations

import json
import socket
import sys


def listen(address: str) -> socket.socket:
    """A listening socket."""
    if address.startswith("/"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(address)))
    listener.listen()
    return listener


def read(peer: socket.socket, count: int) -> str:
    """Exactly `count` bytes, unless the connection ends before; hexadecimal, or the error's name."""
    room = bytearray(count)
    view = memoryview(room)
    half = count // 2
    try:
        got = peer.recvmsg_into([view[:half], view[half:]], 0, socket.MSG_WAITALL)[0]
    except OSError as error:
        return type(error).__name__
    return room[:got].hex()


def send(peer: socket.socket, parts: list[str]) -> None:
    """All of it: what one call does not take is sent by the next, as every server does it."""
    rest = [bytearray.fromhex(part) for part in parts]
    while any(rest):
        sent = peer.sendmsg(rest)
        while sent:
            part = min(sent, len(rest[0]))
            del rest[0][:part]
            sent -= part
            if not rest[0]:
                rest.pop(0)


def main() -> None:
    """Serve until stdin ends."""
    listener = listen(sys.argv[1])
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        peer, _ = listener.accept()
        came = []
        for step in json.loads(line):
            if isinstance(step, int):
                came.append(read(peer, step))
            else:
                send(peer, step)
        peer.close()
        print(json.dumps(came), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
