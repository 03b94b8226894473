"""The language model that ships: trained at build, held to its bar, and it goes on as Python's documentation does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tritonkit.client import Client
from tritonkit.repository.export import load_hook
from tritonkit.repository.modelspec import load
from tritonkit.repository.pipeline import Repository, build_repository
from tritonkit.serve import serve

PROMPTS = ("Return the", "If the", "Create a new")
NEW = 40


@pytest.fixture(scope="module")
def built(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The model as `tritonkit build story` makes it."""
    return build_repository(project, ("story",), out=tmp_path_factory.mktemp("story") / "repository")


@pytest.fixture(scope="module")
def model(built: Repository) -> Iterator[Any]:
    """The model, served."""
    with serve(built.path, grpc_port=0, metrics_port=0) as endpoint, Client(endpoint.grpc) as client:
        yield client.model("story")


def test_the_held_out_texts_are_none_it_was_trained_on(project: Path) -> None:
    """They are some of all texts, and training takes the others."""
    spec = load(project / "models" / "story", project)
    held, every = (load_hook(spec, f"texts:{name}", "test")() for name in ("held_out", "documents"))
    is_held_out = load_hook(spec, "texts:is_held_out", "test")
    assert set(held) < {text for text in every if is_held_out(text)} < set(every)


def test_it_keeps_its_bar_with_fewer_bits(built: Repository) -> None:
    """The log-likelihood of held-out texts, of the weights in INT8, is above the bar and near PyTorch's."""
    [result] = built.results
    assert (result.variant, built.served) == ("llm-int8", {"story": "llm-int8"})
    assert result.artifact is not None
    quality = result.artifact.quality
    assert quality is not None
    assert quality.metric == "log_likelihood"
    assert quality.value > -5.0
    assert abs(quality.value - quality.reference) < 0.03


def test_it_goes_on_as_the_documentation_does(project: Path, model: Any) -> None:
    """A third of its sequences of three words stand in the texts it was trained on: words by chance never do."""
    spec = load(project / "models" / "story", project)
    trained = set(triples(" ".join(load_hook(spec, "texts:documents", "test")())))
    answers = [prompt + answer(model, prompt, repetition_penalty=1.2) for prompt in PROMPTS]
    spoken = [triple for text in answers for triple in triples(text)]
    assert len(spoken) > 30
    assert sum(triple in trained for triple in spoken) > len(spoken) / 3, answers


def test_a_seed_gives_the_same_story_again(model: Any) -> None:
    """And another one gives another."""
    drawn = [answer(model, "The", temperature=0.9, seed=seed) for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]


def answer(model: Any, prompt: str, **options: Any) -> str:
    """Its text after a prompt."""
    options = {"max_tokens": NEW, "ignore_eos": True} | options
    replies = list(model.stream(text=prompt, **options))
    assert replies[-1]["finish_reason"][0] == b"length"
    return b"".join(reply["text"][0] for reply in replies).decode()


def triples(text: str) -> list[tuple[str, ...]]:
    """All runs of three words of a text, in lower case."""
    words = re.findall(r"[a-z]+", text.lower())
    return list(zip(words, words[1:], words[2:], strict=False))
