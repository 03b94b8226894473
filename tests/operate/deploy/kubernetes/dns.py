"""A name server whose names have changing addresses, as headless Services have."""

from __future__ import annotations

import socket
import threading

__all__ = ["NameServer"]

_A, _OK, _NO_SUCH_NAME = 1, 0, 3


class NameServer:
    """Answers on a port of loopback until `close`.

    Args:
        addresses: by name, without dots; change the lists.
    """

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        self.addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """The thread ends with an empty message."""
        self._socket.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while (received := self._socket.recvfrom(512))[0]:
            query, caller = received
            self._socket.sendto(self._answer(query), caller)

    def _answer(self, query: bytes) -> bytes:
        end = query.index(b"\x00", 12) + 5
        question, kind = query[12:end], int.from_bytes(query[end - 4 : end - 2])
        name = question[1:-5].decode()  # after its length, before a zero, type and class
        addresses = list(self.addresses.get(name, []))
        answers = addresses if kind == _A else []
        # An answer's name points at the question's.
        records = b"".join(
            b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04" + socket.inet_aton(address) for address in answers
        )
        flags = (0x8580 | (_OK if addresses else _NO_SUCH_NAME)).to_bytes(2)
        counts = b"\x00\x01" + len(answers).to_bytes(2) + bytes(4)
        return query[:2] + flags + counts + question + records
