"""A signature over everything a repository holds: Ed25519 (RFC 8032) over the hashes of all files of all models.

It lies in `signature.json` next to the models' folders; Triton reads folders only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import PublishError, UsageError
from tritonkit.extras import need_package
from tritonkit.operate.store.contents import SHA256, Contents, StoredFile, is_file_of_a_model, read_contents
from tritonkit.operate.store.keys import REQUIREMENT, fingerprint
from tritonkit.repository.publish.damage import damage
from tritonkit.repository.publish.integrity import Damage, Progress, compiled, open_file, verify
from tritonkit.repository.publish.staging import MODEL_NAME

__all__ = ["FILE", "RepositorySignature", "check", "differences", "parse", "read", "sign", "write"]

FILE = "signature.json"

_FORMAT = "tritonkit signature 1"
_MOST_BYTES = 1 << 26
_TODO = "restore the repository, or look at what has changed and sign it: tritonkit sign --key FILE"


@dataclass(frozen=True)
class RepositorySignature:
    """A repository's signature: signed hashes and the signer's key.

    Args:
        models: model -> path -> SHA-256 of the file.
        key: the fingerprint of the public key; not trustworthy before `check`.
        signature: the signature, 64 bytes.
    """

    models: Mapping[str, Mapping[str, str]]
    key: str
    signature: bytes

    def to_text(self) -> str:
        """The text of `signature.json`."""
        signature = base64.b64encode(self.signature).decode()
        facts = {"format": _FORMAT, "key": self.key, "signature": signature, "models": self.models}
        return json.dumps(facts, indent=1, sort_keys=True) + "\n"


def sign(repository: Path, key: Any, *, progress: Progress = lambda done, total: None) -> RepositorySignature:
    """Sign a repository that is as it was published.

    Args:
        repository: a folder of models.
        key: an `Ed25519PrivateKey`.
        progress: called with the number of bytes hashed so far and in all.

    Raises:
        UsageError: the repository has no model.
        ServerError: a file is not as it was published.
        PublishError: the signature cannot be written.
    """
    if findings := verify(repository):
        raise damage(findings)
    contents = read_contents(repository, progress=progress)
    if not contents:
        raise UsageError(str(repository), found="there is no model in it", todo="tritonkit build")
    if findings := [finding for name in contents for finding in compiled(repository / name)]:
        raise damage(findings)
    models = _hashes(contents)
    made = RepositorySignature(models, fingerprint(key.public_key()), key.sign(_signed_bytes(models)))
    write(repository, made.to_text())
    return made


def write(repository: Path, text: str) -> None:
    """Write a signature into the repository that it is for."""
    try:
        write_whole(repository / FILE, text.encode())
    except OSError as error:
        raise unwritable(repository, error, PublishError) from error


def read(repository: Path) -> str | None:
    """The text of a repository's signature; None if it is missing or cannot be read."""
    try:
        with open_file(repository / FILE) as file:
            data = file.read(_MOST_BYTES + 1)
        return data.decode("utf-8") if len(data) <= _MOST_BYTES else None
    except (OSError, ValueError):
        return None


def parse(text: str) -> RepositorySignature:
    """A signature from its text; ValueError if the text is not one. The signature is not checked yet."""
    try:
        facts = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        raise ValueError(f"it is not of the format {_FORMAT!r}")
    models, key, signature = (facts.get(name) for name in ("models", "key", "signature"))
    if not isinstance(models, dict) or not isinstance(key, str) or not isinstance(signature, str):
        raise ValueError("models, key or signature is missing")
    for name, files in models.items():
        if not MODEL_NAME.fullmatch(name) or not isinstance(files, dict):
            raise ValueError("a model without a proper name or files")
        for path, digest in files.items():
            if not is_file_of_a_model(path) or not isinstance(digest, str):
                raise ValueError("a file without a valid path or hash")
            if not SHA256.fullmatch(digest):
                raise ValueError("an invalid hash")
    return RepositorySignature(models, key, base64.b64decode(signature, validate=True))


def check(
    contents: Contents, text: str | None, public_key: Any, place: Path, models: Sequence[str] = ()
) -> list[Damage]:
    """The differences between `contents` and what the owner of the key has signed; empty if there are none.

    Args:
        contents: the files that are there.
        text: the signature's text; None if there is no signature.
        public_key: an `Ed25519PublicKey`.
        place: the folder or file that findings name.
        models: names of the models to check; by default all, and then none may be missing or unsigned.
    """
    if text is None:
        return [_finding(place / FILE, "there is no signature", "one by this key")]
    try:
        signature = parse(text)
    except ValueError as error:
        return [_finding(place / FILE, f"it is not a valid signature: {error}", "one by this key")]
    expected_key = fingerprint(public_key)
    if signature.key != expected_key:
        problem = f"it was signed with another key, {signature.key!r}"
        return [_finding(place / FILE, problem, f"one by the key {expected_key}")]
    invalid = need_package("cryptography.exceptions", REQUIREMENT).InvalidSignature
    try:
        public_key.verify(signature.signature, _signed_bytes(signature.models))
    except invalid:
        problem = "the signature does not hold: what it says was changed after signing"
        return [_finding(place / FILE, problem, f"one by the key {expected_key}")]
    return list(differences(signature.models, contents, place, models))


def differences(
    signed: Mapping[str, Mapping[str, str]], contents: Contents, place: Path, models: Sequence[str]
) -> Iterator[Damage]:
    """Differences between contents and signed hashes; the key is not checked."""
    for model in models or sorted({*signed, *contents}):
        if model not in contents:
            yield _finding(place / model, "the model is missing", "what was signed", model)
        elif model not in signed:
            problem = "the model was added after signing, or is not signed"
            yield _finding(place / model, problem, "signed models only", model)
        else:
            yield from _of_model(signed[model], contents[model], place / model)


def _of_model(signed: Mapping[str, str], entries: Sequence[StoredFile], folder: Path) -> Iterator[Damage]:
    there = {entry.path: entry.sha256 for entry in entries}
    for path in sorted({*signed, *there}):
        if path not in there:
            problem, expected = "it is missing", "what was signed"
        elif path not in signed:
            problem, expected = "it was added after signing", "signed files only"
        elif there[path] != signed[path]:
            problem, expected = f"sha256 {there[path][:12]}...", f"{signed[path][:12]}..., as signed"
        else:
            continue
        yield _finding(folder / path, problem, expected, folder.name)


def _hashes(contents: Contents) -> dict[str, dict[str, str]]:
    return {model: {entry.path: entry.sha256 for entry in entries} for model, entries in contents.items()}


def _signed_bytes(models: Mapping[str, Mapping[str, str]]) -> bytes:
    """The bytes to sign: one canonical form, regardless of order and spaces in the file."""
    text = json.dumps(models, sort_keys=True, separators=(",", ":"))
    return f"{_FORMAT}\n{text}".encode()


def _finding(file: Path, found: str, wanted: str, model: str = "") -> Damage:
    return Damage(model, file, found, wanted, _TODO)
