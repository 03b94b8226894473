"""Certificates made by openssl for one test run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["authority", "certified", "openssl"]

OPENSSL = shutil.which("openssl") or "openssl"


def openssl(folder: Path, *args: str) -> None:
    """Run openssl in a folder."""
    subprocess.run([OPENSSL, *args], cwd=folder, check=True, capture_output=True)


def certified(folder: Path, name: str, extra: str = "subjectAltName=DNS:localhost") -> None:
    """A key and a certificate of the folder's authority `ca`."""
    openssl(
        folder,
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        f"{name}.key",
        "-subj",
        f"/CN={name}",
        "-addext",
        extra,
        "-out",
        f"{name}.csr",
    )
    openssl(
        folder,
        "x509",
        "-req",
        "-in",
        f"{name}.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-copy_extensions",
        "copy",
        "-out",
        f"{name}.pem",
    )


def authority(folder: Path, name: str) -> None:
    """A key and a certificate that vouches for others."""
    openssl(
        folder,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        f"{name}.key",
        "-subj",
        f"/CN={name}",
        "-days",
        "2",
        "-out",
        f"{name}.pem",
    )
