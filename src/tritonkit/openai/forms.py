"""Recorded sound in a form, and the text that a model hears in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from tritonkit.openai.bodies import StrictBody, checked_body
from tritonkit.openai.gate import received
from tritonkit.openai.problems import Problem, invalid, within

if TYPE_CHECKING:
    from tritonkit.client import AsyncModel

__all__ = ["TranscriptionBody", "read_form", "transcribe"]

_TYPE = "multipart/form-data"
_MOST_FIELDS = 32
_REFUSED: Mapping[str, tuple[str, ...]] = {
    "chunking_strategy": (),
    "include": (),
    "known_speaker_names": (),
    "known_speaker_references": (),
    "language": ("",),
    "prompt": ("",),
    "stream": ("false", "False"),
    "temperature": ("0", "0.0"),
    "timestamp_granularities": (),
}
"""Fields that no model of one network can follow, each with its values that have no effect."""


class TranscriptionBody(StrictBody):
    """The fields of `/v1/audio/transcriptions`, without the file."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    response_format: Literal["json", "text"] = "json"


async def read_form(request: Request, most: int) -> tuple[TranscriptionBody, bytes]:
    """The fields of a form, and its file.

    A page in a browser may send forms anywhere, so one that a browser marks with its origin is refused.

    Raises:
        Problem: the body is too large, too slow, not a form, lacks the file, or has a wrong field.
    """
    if "origin" in request.headers:
        raise Problem(403, "forms of pages in a browser are refused", code="wrong_origin")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise Problem(415, f"the content type is not {_TYPE}", code="invalid_content_type")
    data = await received(request, most)

    async def parts() -> AsyncGenerator[bytes, None]:
        yield data

    parser = MultiPartParser(
        request.headers, parts(), max_files=1, max_fields=_MOST_FIELDS, max_part_size=max(len(data), 1)
    )
    parser.spool_max_size = len(data) + 1  # it is in memory already, and a caller's sound is not written to the disk
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        message = getattr(error, "message", None) or "it cannot be read"
        raise invalid(f"the form is wrong: {message}", code="invalid_form") from None
    try:
        fields = _single(form.multi_items())
        file = fields.pop("file", None)
        if not isinstance(file, UploadFile):
            raise invalid("file: it is missing", "file", "missing_required_parameter")
        sound = await file.read()
    finally:
        await form.close()
    if not sound:
        raise invalid("file: it is empty", "file", "invalid_value")
    return checked_body(TranscriptionBody, fields, _REFUSED), sound


def _single(items: list[tuple[str, str | UploadFile]]) -> dict[str, Any]:
    """The fields by their names; a field of a list ends in [], as the openai package writes it."""
    fields: dict[str, Any] = {}
    for name, value in items:
        bare = name.removesuffix("[]")
        if bare in fields:
            raise invalid(f"{bare}: it is given twice", bare, "invalid_value")
        fields[bare] = value
    return fields


async def transcribe(model: AsyncModel, sound: bytes, timeout_s: float) -> str:
    """The text of a recording.

    Raises:
        ClientError: the call failed.
        Problem: it takes too long, or there is no text.
    """
    async with within(timeout_s):
        reply = await model.predict(audio=[sound], timeout_s=timeout_s)
    texts: list[bytes] = reply["text"].ravel().tolist()
    if len(texts) != 1:
        raise Problem(500, "the model gave no text", code="model_failed")
    return texts[0].decode("utf-8", "replace")
