"""The server's certificate, read again when its files change."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from tritonkit.errors import UsageError

__all__ = ["ServedCertificate"]

_log = logging.getLogger("tritonkit.openai")


class ServedCertificate:
    """A certificate with its key, for new connections; open ones keep theirs.

    Args:
        certificate: PEM, with the chain to an authority that callers trust.
        key: PEM without a password, which only its owner can read.

    Raises:
        UsageError: one of them is wrong.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._last_state = self._state()
        self._context = _made(certificate, key)

    def context(self) -> ssl.SSLContext:
        """The next connection's context. Wrong files change nothing while this runs; the log reports them once."""
        if (state := self._state()) != self._last_state:
            self._last_state = state
            try:
                self._context = _made(*self._files)
            except UsageError as error:
                _log.warning("the certificate stays as it was: %s", error)
        return self._context

    def _state(self) -> list[tuple[int, ...]]:
        states: list[tuple[int, ...]] = []
        for file in self._files:
            try:
                state = file.stat()
            except OSError:
                states.append(())
            else:
                states.append((state.st_ino, state.st_size, state.st_mtime_ns, state.st_mode))
        return states


def _made(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, for HTTP/1.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _check_readable(certificate, "a certificate in PEM")
    _check_readable(key, f"the key of {certificate}")
    _check_private(key)
    try:
        # Without a password here, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                str(key),
                found=f"it is not the key of {certificate}",
                wanted="its key",
                todo="put back the pair that was made together",
            ) from None
        raise UsageError(
            f"{certificate}, {key}",
            found=f"no certificate with its key: {error.reason or error.strerror}",
            wanted="PEM, without a password",
        ) from None
    return context


def _check_readable(file: Path, expected: str) -> None:
    try:
        with file.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UsageError(str(file), found=f"it cannot be read: {problem}", wanted=expected) from None


def _check_private(key: Path) -> None:
    """Check the key's permissions, as the gateway does."""
    state = key.stat()
    # A volume of Kubernetes gives its files to root, and to the pod's group for reading.
    mounted = state.st_uid == 0 != os.getuid()
    if state.st_mode & (0o037 if mounted else 0o077):
        raise UsageError(
            str(key),
            found="others than its owner can read it",
            wanted="a private key",
            todo=f"make another one if somebody may have seen it, or: chmod 600 {key}",
        )
