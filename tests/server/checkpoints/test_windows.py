"""Long documents in windows: answers and entities are those that transformers finds with a stride."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bench.families.checkpoints import TEXTS, text_checkpoint
from tests.server.checkpoints.serving import served
from tritonkit import Client
from tritonkit.errors import InferenceError, InvalidInput

LENGTH, STRIDE, MOST = 64, 20, 12
SEVERAL = 4
QUESTION = "Who was surprised?"
WORDS = " ".join(TEXTS[:4]).split()
DOCUMENTS = [
    " ".join(WORDS[place * (place + step) // 3 % len(WORDS)] for place in range(count))
    for step, counts in ((1, (3, 150, 9, 40)), (5, (60, 0, 200, 1)), (7, (12, 190, 30)), (11, (90, 20, 250)))
    for count in counts
]
"""Documents of 1 to 12 windows in which the same words follow each other differently, short ones next to long ones."""
NAMES = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def in_windows(spec: Path) -> None:
    """Add windows to the steps, as the comment in model.yaml says."""
    settings = yaml.safe_load(spec.read_text())
    for part in settings["pipeline"]:
        if part != "network":
            part["parameters"]["windows"] = True
            if part["step"] == "best_span":
                part["parameters"]["k"] = SEVERAL
    settings["pipeline"][0]["parameters"] |= {"stride": STRIDE, "max_windows": MOST}
    spec.write_text(yaml.safe_dump(settings, sort_keys=False))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A network that answers questions, and one that finds names."""
    folder = tmp_path_factory.mktemp("checkpoints")
    labels = {"id2label": NAMES, "label2id": {name: number for number, name in NAMES.items()}}
    return {
        "answers": text_checkpoint(folder / "answers", "bert", "ForQuestionAnswering"),
        "names": text_checkpoint(folder / "names", "distilbert", "ForTokenClassification", **labels),
    }


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path]) -> Iterator[Client]:
    """A client of a server with both."""
    with served(tmp_path_factory.mktemp("project"), checkpoints, in_windows) as client:
        yield client


def ask(client: Client, model: str, callers: int, items: list[dict[str, str]]) -> list[Any]:
    """A request for each item, from a number of callers."""
    called = client.model(model)
    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(lambda item: called.predict(**{name: [text] for name, text in item.items()}), items))


def answers_of(folder: Path, question: str, contexts: list[str]) -> list[dict[str, float]]:
    """Each context's likeliest answers with their scores, by a plain loop over windows and spans.

    transformers 5 has no pipeline for this task; until then its pipeline read the windows in this way.
    """
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    cut = {"truncation": "only_second", "max_length": LENGTH, "stride": STRIDE, "return_overflowing_tokens": True}
    found = []
    for context in contexts:
        encoded = tokenizer(question, context, return_offsets_mapping=True, **cut)
        answers: dict[str, float] = {}
        for window in range(len(encoded["input_ids"])):
            given = {name: torch.tensor([encoded[name][window]]) for name in tokenizer.model_input_names}
            with torch.inference_mode():
                output = network(**given)
            inside = [place for place, number in enumerate(encoded.sequence_ids(window)) if number == 1]
            starts, ends = (
                dict(zip([0, *inside], logits[0, [0, *inside]].softmax(0).tolist(), strict=True))
                for logits in (output.start_logits, output.end_logits)
            )
            spans = [
                (starts[one] * ends[other], one, other) for one in inside for other in inside if one <= other < one + 15
            ]
            words, places = encoded.word_ids(window), encoded["offset_mapping"][window]
            for score, one, other in sorted(spans, reverse=True)[: 2 * SEVERAL + 10]:
                first = min(place for place in inside if words[place] == words[one])
                last = max(place for place in inside if words[place] == words[other])
                text = context[places[first][0] : places[last][1]].lower()
                answers[text] = answers.get(text, 0.0) + score
        found.append(answers)
    return found


@pytest.mark.parametrize("callers", [1, 16])
def test_answers_are_those_of_all_windows(client: Client, checkpoints: dict[str, Path], callers: int) -> None:
    """The best answer of a document, wherever it stands, whoever else asks at the same time."""
    documents = DOCUMENTS * (1 if callers == 1 else 4)
    replies = ask(client, "answers", callers, [{"text": QUESTION, "text_pair": text} for text in documents])
    expected = answers_of(checkpoints["answers"], QUESTION, DOCUMENTS) * (1 if callers == 1 else 4)
    far = 0  # characters of a window are fewer
    for context, reply, answers in zip(documents, replies, expected, strict=True):
        count = reply["count"].item()
        assert count == min(len(answers), SEVERAL)
        best = sorted(answers.values(), reverse=True)[:count]
        np.testing.assert_allclose(reply["score"][:count], best, **CLOSE)
        for answer, score, (start, end) in zip(reply["answer"][:count], best, reply["span"][:count], strict=True):
            assert answer.decode() == context[start:end]
            np.testing.assert_allclose(answers[answer.decode().lower()], score, **CLOSE)
            far += bool(start > 400)
    assert far, "no answer is behind the first window"


@pytest.mark.parametrize("callers", [1, 16])
def test_entities_are_those_of_all_windows(client: Client, checkpoints: dict[str, Path], callers: int) -> None:
    """Each entity of a document once, as transformers' pipeline with a stride joins them."""
    from transformers import pipeline

    reference = pipeline(
        "token-classification", model=str(checkpoints["names"]), aggregation_strategy="simple", stride=STRIDE
    )
    reference.tokenizer.model_max_length = LENGTH
    documents = [text for text in DOCUMENTS if text]
    expected = [reference(text) for text in documents]
    times = 1 if callers == 1 else 4
    replies = ask(client, "names", callers, [{"text": text} for text in documents * times])
    for text, reply, entities in zip(documents * times, replies, expected * times, strict=True):
        assert reply["count"].item() == len(entities)
        entities = entities[: len(reply["entity"])]
        count = len(entities)
        spans = reply["span"][:count].tolist()
        assert [name.decode() for name in reply["entity"][:count]] == [entity["entity_group"] for entity in entities]
        assert spans == [[entity["start"], entity["end"]] for entity in entities]
        assert [word.decode() for word in reply["word"][:count]] == [text[start:end] for start, end in spans]
        np.testing.assert_allclose(reply["score"][:count], [entity["score"] for entity in entities], **CLOSE)
    assert max(map(len, expected)) > 2


def test_the_network_runs_each_window_once(client: Client, checkpoints: dict[str, Path]) -> None:
    """The windows are the network's batch, whichever documents share it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoints["answers"])
    cut = {"truncation": "only_second", "max_length": LENGTH, "stride": STRIDE, "return_overflowing_tokens": True}
    windows = sum(len(tokenizer(QUESTION, text, **cut)["input_ids"]) for text in DOCUMENTS)
    [before] = client.statistics("answers_network")
    ask(client, "answers", 16, [{"text": QUESTION, "text_pair": text} for text in DOCUMENTS])
    [after] = client.statistics("answers_network")
    assert windows > 3 * len(DOCUMENTS)
    assert after.inference_count - before.inference_count == windows


def test_a_document_of_too_many_windows_is_refused_alone(client: Client) -> None:
    """The message counts the windows and names the parameter; others are answered at the same time."""
    items = [{"text": text} for text in (TEXTS[0], "word " * 2000, TEXTS[2])]
    with ThreadPoolExecutor(3) as pool:
        model = client.model("names")
        first, large, last = (pool.submit(model.predict, text=[item["text"]]) for item in items)
        with pytest.raises(InferenceError, match=f"found 2000 tokens, .*at most {MOST} .parameter max_windows"):
            large.result()
        assert first.result()["count"].shape == last.result()["count"].shape == (1,)


def test_a_long_question_leaves_no_room(client: Client) -> None:
    """A question that fills a window is refused with the room that it leaves."""
    with pytest.raises(InferenceError, match=r"leave room for 1 tokens in a window of 64; .*the 20 that windows share"):
        client.model("answers").predict(text=["word " * 60], text_pair=["word " * 60])


def test_a_request_is_one_document(client: Client) -> None:
    """A batch of documents is refused before it is sent, with the shape that is wanted."""
    with pytest.raises(InvalidInput, match=r"(?s)text.*\[2\]"):
        client.model("names").predict(text=["one", "two"])
