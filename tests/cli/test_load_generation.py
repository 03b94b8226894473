"""Options of `tritonkit load` for language models: what does not go together, or is for models of another kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit_here


@pytest.fixture
def chat(root: Path) -> Path:
    """A project whose model `chat` is a language model that was never built, and `plain` is none."""
    folder = root / "models" / "chat" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder.parent / "model.yaml").write_text("name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\n")
    (root / "models" / "plain").mkdir()
    (root / "models" / "plain" / "model.yaml").write_text("name: plain\nnetwork:\n  onnx: net.onnx\n")
    (root / "models" / "plain" / "net.onnx").write_bytes(b"")
    (root / "loadtest").mkdir()
    (root / "loadtest" / "thresholds.yaml").write_text("models: {chat: {p98_ms: 1}}\n")
    (root / "trace.csv").write_text("prompt_tokens,output_tokens,seconds\n5,5,2\n")
    return root


RATE = ["--rate", "5", "--slo", "ttft_p99=1s"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*RATE, "--processes", "2"], "--processes: it does not go with the other options"),
        ([*RATE, "--users", "3"], "wanted: a closed loop"),
        (["--users", "3", "--rest"], "wanted: a model that is not a language model"),
        (["--users", "3", "--think-time", "1s"], "wanted: a model that is not a language model"),
        (["--users", "3", "--slo", "p99=1s", "--arrivals", "bursty"], "wanted: --rate or --find-rate"),
        (["--users", "3", "--slo", "p99=1s", "--shape", "daily"], "wanted: --rate or --find-rate"),
        ([*RATE, "--cv", "2"], "wanted: --arrivals bursty"),
        ([*RATE, "--tier", "batch"], "wanted: no --slo"),
        ([*RATE, "--trace", "trace.csv", "--cv", "2"], "not with a trace"),
        (["--trace", "trace.csv", "--slo", "p99=1s", "--warm-up", "1s"], "not with a trace"),
        (["--trace", "trace.csv", "--slo", "p99=1s", "--duration", "1s"], "no request in its first"),
        ([*RATE, "--trace", "trace.csv", "--prompt-tokens", "5"], "wanted: no --trace"),
        ([*RATE, "--trace", "none.csv"], "it cannot be read"),
        (["--trace", "trace.csv", "--slo", "p99=1s", "--arrivals", "bursty"], "--arrivals: no --rate"),
        ([*RATE, "--prompt-tokens", "many"], "--prompt-tokens: 'many'"),
        ([*RATE, "--output-tokens", "9-3"], "--output-tokens: '9-3'"),
        ([*RATE, "--timeout", "5"], "--timeout"),
        (["--rate", "5", "--slo", "tpot_p99=1s"], "such as p99=20ms, or ttft_p99=500ms"),
        (["--rate", "0.01", "--slo", "p99=1s", "--duration", "1ms"], "no request falls into it"),
        (["--find-rate", "--slo", "p99=1s", "--shape", "daily"], "wanted: a steady rate"),
        (["--rate", "5"], "unknown key 'p98_ms'"),
        ([*RATE, "plain"], "chat, a language model, and others"),
    ],
)
def test_one_message_before_a_server_is_started(chat: Path, options: list[str], message: str) -> None:
    """With the exit code of a mistake on the command line or in a file."""
    assert message in failed(tritonkit_here("load", "chat", *options, cwd=chat), 2)


def test_a_search_without_a_target(chat: Path) -> None:
    """Limits of the thresholds file would be one; there are none of times."""
    (chat / "loadtest" / "thresholds.yaml").write_text("models: {chat: {min_rate: 1}}\n")
    done = tritonkit_here("load", "chat", "--find-rate", cwd=chat)
    assert "no limit of times in the thresholds file" in failed(done, 2)


@pytest.mark.parametrize(
    "options", [["--prompt-tokens", "5"], ["--output-tokens", "5"], ["--trace", "trace.csv"], ["--shared-prefix", "5"]]
)
def test_options_of_language_models_for_another(options: list[str]) -> None:
    """In both loops."""
    for loop in (["--rate", "5"], ["--users", "2"]):
        done = tritonkit_here("load", "digits", *loop, *options)
        assert f"{options[0]}: it does not go" in failed(done, 2)
        assert "wanted: a language model" in done.stderr


def test_targets_of_tokens_for_another() -> None:
    """Its answers come in one piece."""
    done = tritonkit_here("load", "digits", "--rate", "5", "--slo", "ttft_p99=1s")
    assert "times of a language model's tokens" in failed(done, 2)
