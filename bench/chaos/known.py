"""Requests whose answers are known, from the stack itself while it was calm."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.chaos.stack import COUNTED
from bench.programs import ROOT
from tritonkit.client import AsyncClient, Client
from tritonkit.errors import ClientError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.chaos.stack import Running

__all__ = ["STREAM", "Known", "Question", "learn", "learned", "streamed"]

STREAM = "count"
_AT_ONCE, _TIMES = 16, 6
_ROUNDING = 4.0
"""Factor on the largest difference that a calm server showed between a question alone and in a batch."""
_TEXTS = (
    "Where is my parcel?",
    "The invoice has the wrong address, and nobody answers the telephone.",
    "Thank you!",
    "How do I return a pair of shoes that I bought in another country three weeks ago?",
)


@dataclass(frozen=True)
class Question:
    """A request to a model: the input's name, and the item."""

    model: str
    input: str
    item: Any


@dataclass(frozen=True)
class Known:
    """The right answers.

    Args:
        answers: to each question, by output. off: how far a float of a model may be from that, by output.
    """

    questions: Sequence[Question]
    answers: Sequence[Mapping[str, NDArray[Any]]]
    off: Mapping[tuple[str, str], float]

    def right(self, number: int, reply: Mapping[str, Any]) -> bool:
        """Whether a reply to this question is right: texts and counts to the byte, floats as far as rounding goes."""
        question, answer = self.questions[number], self.answers[number]
        return reply.keys() == answer.keys() and all(
            _alike(value, np.asarray(reply[name]), self.off[question.model, name]) for name, value in answer.items()
        )

    def of(self, model: str) -> list[int]:
        """The numbers of a model's questions."""
        return [number for number, question in enumerate(self.questions) if question.model == model]


def streamed(x: NDArray[Any]) -> list[NDArray[Any]]:
    """The right answers of a stream."""
    return [x + number for number in range(COUNTED)]


def learn(running: Running) -> Known:
    """Ask each replica each question alone, then many at a time, so that batches of many sizes form.

    Raises:
        ClientError: the replicas differ by more than rounding, or a model gives no answer.
    """
    questions = _questions()
    alone = [_alone(facts["grpc"], questions) for facts in running.replicas().values()]
    among = [
        answer for facts in running.replicas().values() for answer in asyncio.run(_among(facts["grpc"], questions))
    ]
    return learned(questions, alone[0], [*_numbered(alone), *among])


def learned(
    questions: Sequence[Question],
    answers: Sequence[Mapping[str, NDArray[Any]]],
    replies: Sequence[tuple[int, Mapping[str, NDArray[Any]]]],
) -> Known:
    """Answers known beforehand, and all replies of a calm server with the numbers of their questions.

    Raises:
        ClientError: they differ by more than rounding.
    """
    truth = Known(questions, answers, _spread(questions, answers, replies))
    for number, reply in replies:
        if not truth.right(number, reply):
            raise ClientError(
                questions[number].model,
                found="its answers differ on a calm server",
                wanted="equal labels, and floats that differ by rounding alone",
            )
    return truth


def _numbered(runs: Sequence[Sequence[Mapping[str, NDArray[Any]]]]) -> list[tuple[int, Mapping[str, NDArray[Any]]]]:
    """Replies with the numbers of their questions."""
    return [answer for run in runs for answer in enumerate(run)]


def _questions() -> list[Question]:
    random = np.random.default_rng(7)
    images = [_image(random) for _ in range(8)]
    images.append((ROOT / "models" / "digits" / "examples" / "seven.png").read_bytes())
    questions = [Question("digits", "image", image) for image in images]
    questions += [Question("digits_network", "pixels", random.random((1, 1, 8, 8), dtype=np.float32)) for _ in range(8)]
    questions += [Question("sentences", "text", text) for text in _TEXTS]
    questions += [Question("echo", "x", random.random((1, 4), dtype=np.float32).astype(np.float32)) for _ in range(8)]
    return questions


def _image(random: np.random.Generator) -> bytes:
    """A random 8 x 8 picture as PNG; the calm server decides which digit it is."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (8, 8), np.uint8)).save(file, "PNG")
    return file.getvalue()


def _alone(address: str, questions: Sequence[Question]) -> list[Mapping[str, NDArray[Any]]]:
    with Client(address) as client:
        return [client.model(q.model).predict(**{q.input: q.item}).outputs for q in questions]


async def _among(address: str, questions: Sequence[Question]) -> list[tuple[int, Mapping[str, NDArray[Any]]]]:
    """Ask the questions of each model in changing order, several at a time."""
    random = np.random.default_rng(11)
    answers = []
    async with AsyncClient(address) as client:
        for _ in range(_TIMES):
            order = random.permutation(np.repeat(np.arange(len(questions)), 2))
            size = int(random.integers(2, _AT_ONCE + 1))
            for start in range(0, len(order), size):
                some = [int(number) for number in order[start : start + size]]
                replies = await asyncio.gather(*(_ask(client, questions[number]) for number in some))
                answers += list(zip(some, replies, strict=True))
    return answers


async def _ask(client: AsyncClient, question: Question) -> Mapping[str, NDArray[Any]]:
    model = await client.model(question.model)
    return (await model.predict(**{question.input: question.item})).outputs


def _spread(
    questions: Sequence[Question],
    answers: Sequence[Mapping[str, NDArray[Any]]],
    replies: Sequence[tuple[int, Mapping[str, NDArray[Any]]]],
) -> dict[tuple[str, str], float]:
    """The deviation that floats may have by model and output: that of a calm server, and at least a few roundings."""
    off: dict[tuple[str, str], float] = {}
    for number, reply in replies:
        for name, answer in answers[number].items():
            place = questions[number].model, name
            off.setdefault(place, 0.0)
            if answer.dtype.kind == "f" and questions[number].model != "echo":
                rounding = float(np.spacing(np.abs(answer).max()))
                deviation = float(np.abs(reply[name] - answer).max())
                off[place] = max(off[place], _ROUNDING * deviation, _ROUNDING * rounding)
    return off


def _alike(one: NDArray[Any], other: NDArray[Any], off: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f":
        return bool((one == other).all())
    return bool((np.abs(one - other) <= off).all())
