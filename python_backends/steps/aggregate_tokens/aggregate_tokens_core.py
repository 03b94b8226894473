"""Join the labels of tokens to entities, as the token classification of transformers does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from step_scores import check_logits, softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

STRATEGIES = ("simple", "first", "average", "max")
WORDS = ("tokenizer", "spaces")


@dataclass(frozen=True)
class Settings:
    """The step's parameters; step.yaml explains each."""

    k: int = 64
    strategy: str = "simple"
    words: str = "tokenizer"
    outside: str = "O"
    windows: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for values that the step cannot use."""
        if self.k < 1:
            raise ValueError(f"parameter k: found {self.k}, wanted at least 1")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"parameter strategy: found '{self.strategy}', wanted one of {', '.join(STRATEGIES)}")
        if self.words not in WORDS:
            raise ValueError(f"parameter words: found '{self.words}', wanted tokenizer or spaces")


class Entity(NamedTuple):
    """Characters start to stop of a text, and their label without B- or I-."""

    label: str
    score: float
    start: int
    stop: int


class _Tag(NamedTuple):
    """A label as the joining reads it."""

    begins: bool
    kind: str
    name: str


class Aggregator:
    """The labels of a network, and how they are joined."""

    def __init__(self, labels: np.ndarray, settings: Settings) -> None:
        """Keep the labels, object [classes] of bytes."""
        self._settings = settings
        self._tags = [_tag(label.decode()) for label in labels]

    def entities(
        self, logits: np.ndarray, offsets: np.ndarray, sequence_ids: np.ndarray, word_ids: np.ndarray, text: str
    ) -> list[Entity]:
        """The entities of one text in their order.

        Args:
            logits: float32 [tokens, classes].
            offsets: int32 [tokens, 2], the characters of each token.
            sequence_ids: int32 [tokens], 0 where a token belongs to the text.
            word_ids: int32 [tokens], the word of each token.
            text: the text.
        """
        own = np.flatnonzero(sequence_ids == 0)
        if not len(own):
            return []
        scores, offsets = softmax(logits[own]), offsets[own]
        if self._settings.strategy == "simple":
            first = last = np.arange(len(own))
            classes = np.argmax(scores, axis=1)
            best = scores[first, classes]
        else:
            first = np.flatnonzero(self._begins(offsets, word_ids[own], text))
            last = np.append(first[1:], len(own)) - 1
            classes, best = self._words(scores, first, last)
        spans = zip(offsets[first, 0].tolist(), offsets[last, 1].tolist(), strict=True)
        return self._joined(classes.tolist(), best.tolist(), list(spans))

    def _begins(self, offsets: np.ndarray, word_ids: np.ndarray, text: str) -> np.ndarray:
        """Whether a word begins at each token."""
        if self._settings.words == "tokenizer":
            return np.append(True, word_ids[1:] != word_ids[:-1])
        starts = offsets[:, 0].tolist()
        begins = [start == 0 or text[start - 1].isspace() or text[start : start + 1].isspace() for start in starts]
        return np.array([True, *begins[1:]])

    def _words(self, scores: np.ndarray, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Class and score of each word, of scores [tokens, classes]."""
        if self._settings.strategy == "average":
            totals = np.add.reduceat(scores, first, axis=0)
            rows = totals / (last - first + 1)[:, None].astype(np.float32)
        elif self._settings.strategy == "max":
            highest = scores.max(axis=1)
            pairs = zip(first.tolist(), last.tolist(), strict=True)
            rows = scores[[start + int(np.argmax(highest[start : stop + 1])) for start, stop in pairs]]
        else:
            rows = scores[first]
        classes = np.argmax(rows, axis=1)
        return classes, rows[np.arange(len(rows)), classes]

    def _joined(self, classes: list[int], scores: list[float], spans: list[tuple[int, int]]) -> list[Entity]:
        """Neighbors of one kind become one entity, unless the later one begins another; those outside are left out."""
        entities: list[Entity] = []
        group: list[int] = []
        for index, number in enumerate([*classes, None]):
            tag = self._tags[number] if number is not None else None
            if group and not (tag and tag.kind == self._tags[classes[group[-1]]].kind and not tag.begins):
                name = self._tags[classes[group[0]]].name
                if name != self._settings.outside:
                    score = sum(scores[member] for member in group) / len(group)
                    entities.append(Entity(name, score, spans[group[0]][0], spans[group[-1]][1]))
                group = []
            group.append(index)
        return entities


def _tag(label: str) -> _Tag:
    prefixed = label.startswith(("B-", "I-"))
    return _Tag(label.startswith("B-"), label[2:] if prefixed else label, label.split("-", 1)[-1])


def without_overlaps(windows: Sequence[Sequence[Entity]]) -> list[Entity]:
    """The entities of a text, of those of its windows.

    The rule is transformers' (`aggregate_overlapping_entities`): of entities that overlap the longest stays, and of
    those as long the one with the best score.
    """
    entities = sorted((entity for window in windows for entity in window), key=lambda entity: entity.start)
    if len(windows) < 2 or not entities:
        return entities
    kept, previous = [], entities[0]
    for entity in entities[1:]:
        if not previous.start <= entity.start < previous.stop:
            kept.append(previous)
            previous = entity
        elif (entity.stop - entity.start, entity.score) > (previous.stop - previous.start, previous.score):
            previous = entity
    return [*kept, previous]


def check_tokens(logits: np.ndarray, sequence_ids: np.ndarray, classes: int) -> None:
    """Refuse logits [batch, tokens, classes] of tokens of the text that have no scores; names item and token."""
    own = (sequence_ids == 0)[:, :, None]
    check_logits(np.where(own, logits, np.float32(0)), classes, softmax=True)


def padded(batch: list[list[Entity]], texts: list[str], k: int) -> dict[str, np.ndarray]:
    """The step's outputs: the first k entities of each text, with fewer the rest empty, and how many it has.

    The number does not depend on the other texts, so that a text has one answer, alone and in a batch.
    """
    shape = (len(batch), k)
    names, words = np.full(shape, b"", dtype=object), np.full(shape, b"", dtype=object)
    scores, spans = np.zeros(shape, np.float32), np.zeros((*shape, 2), np.int32)
    for row, (entities, text) in enumerate(zip(batch, texts, strict=True)):
        for column, entity in enumerate(entities[:k]):
            names[row, column] = entity.label.encode()
            words[row, column] = text[entity.start : entity.stop].encode()
            scores[row, column] = entity.score
            spans[row, column] = entity.start, entity.stop
    counts = np.array([[len(entities)] for entities in batch], np.int32)
    return {"entity": names, "score": scores, "span": spans, "word": words, "count": counts}
