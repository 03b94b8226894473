"""The shipped steps after a network, in C++ and in Python: one table of requests, asked of both in a real Triton."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.server.onnx_models import BATCH, step, tensors
from tests.server.raw import Running, ask_together
from tests.server.shared.test_native_steps import AT_ONCE, outcome, stubs_of
from tests.server.sharing import SharedBackends

CLASSES, WIDTH = 12, 4
LABELS = [f" label {place} é\r" for place in range(CLASSES - 1)] + ["last"]
LOGITS = tensors("input", logits="FP32 [-1]")
TOKENS = tensors("input", last_hidden_state=f"FP32 [-1,{WIDTH}]", attention_mask="INT64 [-1]")
FIELDS = {
    "labels": LOGITS + tensors("output", label="STRING [$k]", score="FP32 [$k]", count="INT32 [1]"),
    "activation": LOGITS + tensors("output", scores="FP32 [-1]"),
    "pool": TOKENS + tensors("output", embedding="FP32 [$truncate_to]"),
    "normalize": tensors("input", embedding=f"FP32 [{WIDTH}]") + tensors("output", embedding="FP32 [$truncate_to]"),
}
UNBATCHED = "unbatched"
IN_PYTHON = {
    "labels_huge": "a number that float has",
    "labels_strange": "parameter beam is not known to the step labels",
}
"""Models that C++ leaves to Python, and why."""

MODELS: dict[str, tuple[str, dict[str, str]]] = {
    "labels_all": ("labels", {"k": str(CLASSES), "function": "softmax", "threshold": "0.05"}),
    "labels_sigmoid": ("labels", {"k": "5", "function": "sigmoid", "threshold": "0.5"}),
    "labels_none": ("labels", {"k": "4", "function": "none", "threshold": "-1.5"}),
    "labels_tiny": ("labels", {"k": "4", "function": "none", "threshold": "1e-50"}),
    "labels_unbatched": ("labels", {"k": "2"}),
    "labels_huge": ("labels", {"k": "2", "function": "sigmoid", "threshold": "1e39"}),
    "labels_strange": ("labels", {"k": "2", "beam": "3"}),
    **{f"scores_{name}": ("activation", {"function": name}) for name in ("sigmoid", "argmax", "none")},
    "scores_cool": ("activation", {"function": "softmax", "temperature": "0.25"}),
    "scores_hot": ("activation", {"function": "sigmoid", "temperature": "3"}),
    "scores_above": ("activation", {"function": "threshold", "threshold": "0.1", "temperature": "2"}),
    **{f"pool_{mode}": ("pool", {"mode": mode}) for mode in ("mean", "cls", "max", "last", "weighted")},
    "pool_max_cut": ("pool", {"mode": "max", "truncate_to": "3", "normalize": "false"}),
    "pool_mean_cut": ("pool", {"mode": "mean", "truncate_to": "1", "normalize": "false"}),
    "pool_unbatched": ("pool", {"mode": "last", "truncate_to": "3", "normalize": "false"}),
    "normal": ("normalize", {}),
    "normal_cut": ("normalize", {"truncate_to": "3"}),
}
Case = dict[str, np.ndarray]


def write_pairs(root: Path) -> None:
    """Each model twice: as it is published, and without the parameter that names its step."""
    for name, (kind, given) in MODELS.items():
        parameters = dict(given)
        if kind in ("pool", "normalize"):
            parameters = {"dimension": str(WIDTH), "truncate_to": str(WIDTH), **parameters}
        if kind == "labels":
            parameters["labels"] = "labels.txt"
        fields = FIELDS[kind]
        for key, value in parameters.items():
            fields = fields.replace(f"${key}", value)
        for model, other in ((name, {}), (f"{name}_python", {"tritonkit.step": ""})):
            version = step(root / model, kind, fields, AT_ONCE, **parameters, **other)
            if kind == "labels":
                (version.parent / "labels.txt").write_text("\n".join(LABELS) + "\n")
            if UNBATCHED in name:
                config = version.parent / "config.pbtxt"
                text = config.read_text().replace(AT_ONCE, "")
                config.write_text(text.replace(f"max_batch_size: {BATCH}", "max_batch_size: 0"))


@pytest.fixture(scope="module")
def triton(native_server: SharedBackends) -> Iterator[Running]:
    """The native backends with both kinds of each model."""
    with native_server.serving(write_pairs) as running:
        yield running


def rows(*values: Any) -> np.ndarray:
    """A row float32 [CLASSES] for each value: a list that is filled up with falling numbers, or one number."""
    made = np.empty((len(values), CLASSES), np.float32)
    for row, value in zip(made, values, strict=True):
        listed = value if isinstance(value, list) else [value] * CLASSES
        row[:] = [*listed, *(-2.5 - np.arange(CLASSES - len(listed)))]
    return made


def logits() -> dict[str, Case]:
    """Requests to classifiers' steps."""
    chance = np.random.default_rng(1)
    plain = chance.normal(0, 5, (5, CLASSES)).astype(np.float32)
    nan, inf, most = np.nan, np.inf, float(np.finfo(np.float32).max)
    arrays = {
        "plain": plain,
        "far apart": plain * 40,
        "close together": plain * np.float32(1e-6),
        "ties": rows([1, 1, 1], [0, 1, 0, 1], 0.25),
        "zeros with signs": rows([0.0, -0.0, 0.0, -0.0]),
        "at a threshold": rows([0, 0.2, -1.5, 0.1, 0.19999999], [0.4, -1.5]),
        "all the same": rows(1 / CLASSES, 100),
        "minus infinity": rows([3, -inf, 1, -inf]),
        "infinity": rows([3, inf, 1, inf]),
        "only minus infinity": rows(-inf),
        "one NaN": rows([1, nan]),
        "NaN in the second item": rows([1, 2], [2, nan], [nan, inf]),
        "the largest numbers": rows([most, -most, most, 1]),
        "small numbers": rows([1e-38, -1e-40, 1e-45, 0]),
        "large numbers": rows([88.5, -88.5, 104, -104, 1000, -1000]),
        "one class": plain[:1, :1],
        "too many classes": np.concatenate([plain, plain], axis=1),
        "no class": np.empty((1, 0), np.float32),
        "no item": np.empty((0, CLASSES), np.float32),
    }
    return {name: {"logits": array} for name, array in arrays.items()}


def hidden_states() -> dict[str, Case]:
    """Requests to steps that pool."""
    chance = np.random.default_rng(2)
    cases: dict[str, Case] = {}
    for tokens in (1, 7, 64):
        vectors = chance.normal(size=(3, tokens, WIDTH)).astype(np.float32)
        mask = chance.integers(0, 2, (3, tokens))
        mask[0], mask[1] = 0, 1
        broken = vectors.copy()
        broken[2, 0, 1] = np.nan
        endless = vectors.copy()
        endless[1, tokens // 2] = -np.inf
        behind = vectors.copy()
        behind[..., 3] = np.inf
        for kind, array in {
            "plain": vectors,
            "large": vectors * np.float32(1e20),
            "largest": np.full_like(vectors, 3e38),
            "small": vectors * np.float32(1e-39),
            "zeros": np.zeros_like(vectors) * np.float32(-1),
            "NaN": broken,
            "minus infinity": endless,
            "infinity in the last number": behind,
        }.items():
            cases[f"{kind}, {tokens} tokens"] = {"last_hidden_state": array, "attention_mask": mask}
        odd = {
            "no token counts": mask * 0,
            "padding before": np.triu(np.ones_like(mask)),
            "weights": mask * 3,
            "large weights": mask * (1 << 40),
            "the largest weights": mask * np.iinfo(np.int64).max,
            "weights below zero": 1 - 2 * mask,
            "one token too few": mask[:, 1:],
        }
        cases |= {
            f"{kind}, {tokens} tokens": {"last_hidden_state": vectors, "attention_mask": array}
            for kind, array in odd.items()
        }
    wide = np.ones((1, 2, WIDTH), np.float32)
    cases["no token"] = {"last_hidden_state": wide[:, :0], "attention_mask": np.ones((1, 0), np.int64)}
    cases["no item"] = {"last_hidden_state": wide[:0], "attention_mask": np.ones((0, 2), np.int64)}
    cases["one number too few"] = {"last_hidden_state": wide[:, :, 1:], "attention_mask": np.ones((1, 2), np.int64)}
    return cases


def vectors() -> dict[str, Case]:
    """Requests to the step that scales."""
    plain = np.random.default_rng(3).normal(size=(4, WIDTH)).astype(np.float32)
    broken, endless, behind = plain.copy(), plain.copy(), plain.copy()
    broken[2, 1], endless[1, 0], behind[:, 3] = np.nan, -np.inf, np.nan
    arrays = {
        "plain": plain,
        "zeros": np.concatenate([plain * 0, plain]),
        "the largest numbers": np.full((2, WIDTH), np.finfo(np.float32).max),
        "large": plain * np.float32(1e20),
        "small": plain * np.float32(1e-30),
        "the smallest numbers": np.full((1, WIDTH), 1e-45, np.float32),
        "NaN": broken,
        "minus infinity": endless,
        "NaN in the last number": behind,
        "another width": plain[:, 1:],
        "no item": plain[:0],
    }
    return {name: {"embedding": array} for name, array in arrays.items()}


CASES = {"labels": logits(), "activation": logits(), "pool": hidden_states(), "normalize": vectors()}
"""The requests, by step."""


def same(native: dict[str, np.ndarray] | str, python: dict[str, np.ndarray] | str, case: str) -> bool:
    """Check that two answers, or errors, are the same, floats to their last bits; whether they are answers."""
    if isinstance(native, str) or isinstance(python, str):
        assert native == python, case
        return False
    assert native.keys() == python.keys(), case
    for name, array in native.items():
        expected = python[name]
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape), case
        if array.dtype == np.float32:
            np.testing.assert_allclose(array, expected, rtol=4e-6, atol=1e-37, err_msg=f"{case}: {name}")
        else:
            assert array.tolist() == expected.tolist(), case
    return True


def single(model: str, case: Case) -> Case:
    """A request without a batch axis for a model that has none."""
    return {name: array[0] for name, array in case.items()} if UNBATCHED in model else case


@pytest.mark.parametrize("model", MODELS)
def test_both_forms_answer_the_same(client: grpc.InferenceServerClient, model: str) -> None:
    """The whole table: numbers of every kind, empty axes, and shapes that do not fit."""
    answered = 0
    for name, case in CASES[MODELS[model][0]].items():
        if UNBATCHED in model and not len(next(iter(case.values()))):
            continue
        both = (outcome(client, one, **single(model, case)) for one in (model, f"{model}_python"))
        answered += same(*both, name)
    assert answered >= 5


@pytest.mark.parametrize("model", [model for model in MODELS if UNBATCHED not in model])
def test_requests_that_come_together_have_their_own_answers(client: grpc.InferenceServerClient, model: str) -> None:
    """Triton hands over requests of several shapes, good ones next to bad ones; each is answered as if alone."""
    cases = list(CASES[MODELS[model][0]].values())
    expected = [outcome(client, f"{model}_python", **case) for case in cases]
    for answer, alone in zip(ask_together(client, model, cases), expected, strict=True):
        one = answer.replace(f"'{model}'", "") if isinstance(answer, str) else answer
        same(one, alone, model)


def test_plain_requests_need_no_stub(triton: Running, client: grpc.InferenceServerClient) -> None:
    """While the steps' processes stand still plain requests are answered."""
    models = [model for model in MODELS if model not in IN_PYTHON]
    stubs = [stub for model in models for stub in stubs_of(triton, model)]
    assert len(stubs) == len(models)
    plain = {kind: next(iter(cases.values())) for kind, cases in CASES.items()}
    for stub in stubs:
        os.kill(stub, signal.SIGSTOP)
    try:
        answers = {model: outcome(client, model, **single(model, plain[MODELS[model][0]])) for model in models}
    finally:
        for stub in stubs:
            os.kill(stub, signal.SIGCONT)
    assert not {model: answer for model, answer in answers.items() if isinstance(answer, str)}


def test_parameters_unknown_in_cpp_leave_a_step_to_python(triton: Running) -> None:
    """The log names the model and the reason, and no model whose parameters are known."""
    marked = {}
    for line in triton.log.read_text(errors="replace").splitlines():
        head, found, reason = line.partition("' is served by Python alone: ")
        if found:
            marked[head.rpartition("'")[2]] = reason
    marked = {model: reason for model, reason in marked.items() if model in MODELS}
    assert marked.keys() == IN_PYTHON.keys()
    assert all(IN_PYTHON[model] in reason for model, reason in marked.items())
