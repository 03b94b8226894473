"""The settings of a language model, and what is refused with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino_genai
import pytest
from backend_config import ModelError
from llm_config import BLOCK, block_bytes, read_settings
from llm_engine import pipeline_maker
from openvino import Tensor

from tests.python_backends.llm_network import CONTEXT, EOS, VOCABULARY, write_model
from tritonkit.perf.diagnose.configuration import DEFAULTS
from tritonkit.repository.render.language import cached_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's files, which no test changes."""
    return write_model(tmp_path_factory.mktemp("llm") / "1")


def config(**parameters: str) -> dict[str, Any]:
    """A configuration with these parameters."""
    texts = {key: {"string_value": value} for key, value in parameters.items()}
    return {"parameters": texts, "model_transaction_policy": {"decoupled": True}}


def test_diagnose_knows_the_defaults(folder: Path) -> None:
    """`tritonkit diagnose` reads the same configuration, and takes the same where it is silent."""
    settings = read_settings(config(), folder)
    assert {key: getattr(settings, key) for key in DEFAULTS} == DEFAULTS


def test_defaults_come_from_the_files(folder: Path) -> None:
    """The context is the network's, the stop token that of config.json."""
    settings = read_settings(config(), folder)
    assert settings.context == CONTEXT
    assert settings.stop_tokens == {EOS}
    assert settings.vocabulary == VOCABULARY
    assert not settings.static
    assert settings.prefix_cache


def test_parameters_are_read(folder: Path) -> None:
    """Each parameter has its field."""
    parameters = {
        "context": "128",
        "max_tokens": "9",
        "cache_mib": "1",
        "max_sequences": "3",
        "max_batched_tokens": "40",
        "prefix_cache": "false",
        "threads": "2",
        "max_waiting": "0",
        "batching": "static",
        "cache_precision": "u8",
    }
    settings = read_settings(config(**parameters), folder)
    assert (settings.context, settings.max_tokens, settings.max_sequences, settings.threads) == (128, 9, 3, 2)
    assert (settings.max_batched_tokens, settings.max_waiting, settings.static) == (40, 0, True)
    assert (settings.prefix_cache, settings.cache_precision) == (False, "u8")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("context", "257"),
        ("context", "0"),
        ("context", "x"),
        ("context", "-1"),
        ("max_tokens", "256"),
        ("cache_mib", "0"),
        ("max_batched_tokens", "8"),
        ("prefix_cache", "yes"),
        ("batching", "fast"),
        ("threads", "0"),
        ("cache_precision", "u4"),
        ("max_sequences", "99999999999"),
        ("context", "٣"),
    ],
)
def test_parameters_that_do_not_fit(folder: Path, key: str, value: str) -> None:
    """The message names the parameter and what was found."""
    with pytest.raises(ModelError, match=f"parameter {key}: found {value}, wanted"):
        read_settings(config(**{key: value}), folder)


def test_a_cache_without_room(folder: Path, tmp_path: Path) -> None:
    """A network whose block of the cache is larger than the cache is refused with the size it needs."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    network = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 1000}
    (tmp_path / "config.json").write_text(json.dumps(network))
    with pytest.raises(ModelError, match=r"cache_mib: found 1, wanted room for two blocks, 7\.8 MiB"):
        read_settings(config(cache_mib="1"), tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_batch_size": 4}, "max_batch_size"),
        ({"model_transaction_policy": {}}, "decoupled"),
        ({"instance_group": [{"count": 2}]}, "instance_group"),
    ],
)
def test_shapes_that_cannot_stream(folder: Path, change: dict[str, Any], says: str) -> None:
    """A batch axis, single answers and several instances are refused."""
    with pytest.raises(ModelError, match=says):
        read_settings(config() | change, folder)


@pytest.mark.parametrize(
    ("tokens", "expected"), [([1, 5], {1, 5}), (7, {7}), (None, {EOS})], ids=["list", "one", "none"]
)
def test_stop_tokens_of_the_generation_config(tmp_path: Path, tokens: Any, expected: set[int]) -> None:
    """Stop tokens of the generation config come before those of config.json; there may be several."""
    folder = write_model(tmp_path / "1")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokens}))
    assert read_settings(config(), folder).stop_tokens == expected


@pytest.mark.parametrize("text", ["{", "[]", '{"eos_token_id": "two"}'])
def test_broken_files(tmp_path: Path, text: str) -> None:
    """A file that is not a JSON object, or has no token IDs, is refused."""
    folder = write_model(tmp_path / "1")
    (folder / "generation_config.json").write_text(text)
    with pytest.raises(ModelError, match=r"generation_config\.json|eos_token_id"):
        read_settings(config(), folder)


def test_a_missing_file(tmp_path: Path) -> None:
    """The message names the file."""
    folder = write_model(tmp_path / "1")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        read_settings(config(), folder)


@pytest.mark.parametrize(
    "network",
    [
        {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3},
        {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        {
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
    ],
    ids=["grouped", "all heads", "own head size"],
)
@pytest.mark.parametrize("mib", [1, 5, 256])
def test_a_build_counts_the_cache_as_the_server_does(network: dict[str, int], mib: int) -> None:
    """The build refuses the same sizes as the server."""
    blocks = mib * 2**20 // block_bytes(network, "f16")
    assert cached_tokens(network, mib) == (BLOCK * blocks if blocks > 1 else 0)


def test_blocks_are_counted_as_the_engine_has_them(folder: Path) -> None:
    """The engine's own count is the same, for both precisions."""
    network = json.loads((folder / "config.json").read_text())
    for precision in ("f16", "u8"):
        configuration = config(cache_precision=precision, cache_mib="1", threads="1")
        settings = read_settings(configuration, folder)
        pipeline = pipeline_maker(settings, str(folder))()
        one = openvino_genai.GenerationConfig(max_new_tokens=1, ignore_eos=True)
        handle = pipeline.add_request(0, Tensor(np.array([[5, 6]], np.int64)), one)
        pipeline.step()
        size = pipeline.get_metrics().cache_size_in_bytes
        assert size == settings.blocks * block_bytes(network, precision)
        assert handle.can_read()
