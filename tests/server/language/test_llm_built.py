"""From a Hugging Face folder to a stream of a real Triton: what was built is what the network itself says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from tests.cli.running import failed, tritonkit_here
from tests.repository.optimize.checkpoints import write_checkpoint
from tritonkit.client import Client
from tritonkit.errors import ClientError
from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.pipeline import build_repository
from tritonkit.serve import serve
from tritonkit.text import printable

PROMPT, NEW = "the cat sat", 20


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_checkpoint_is_built_served_and_streamed(tmp_path: Path, name: str) -> None:
    """Greedy answers token by token as transformers has them; a refusal names its status and leaves the model be."""
    folder = tmp_path / "models" / "chat"
    checkpoint = write_checkpoint(folder / "checkpoint", name)
    (folder / "model.yaml").write_text(
        "name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\n"
        "serving: {generation: {cache_mib: 16}, parameters: {cache_precision: f16}}\n"
    )
    done = build_repository(tmp_path, cores=2)
    again = build_repository(tmp_path, cores=2, dry_run=True)
    assert [(change.model, change.action) for change in again.changes] == [("chat", "unchanged")]
    ids = torch.tensor([Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode(PROMPT).ids])
    expected = (
        read_checkpoint(checkpoint)
        .load()
        .generate(ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)[0, ids.shape[1] :]
    )
    with serve(done.path, grpc_port=0, metrics_port=0) as endpoint, Client(endpoint.grpc, timeout_s=90) as client:
        model = client.model("chat")
        replies = list(model.stream(text=PROMPT, max_tokens=NEW, ignore_eos=True, temperature=0.0))
        tokens = [token for reply in replies for token in reply["tokens"].tolist()]
        assert tokens == expected.tolist()
        assert replies[-1]["finish_reason"][0] == b"length"
        assert replies[-1]["prompt_tokens"][0] == ids.shape[1]
        with pytest.raises(ClientError, match="INVALID_ARGUMENT: max_tokens"):
            list(model.stream(text=PROMPT, max_tokens=0))
        assert list(model.stream(text=PROMPT, max_tokens=1))
        check_command(endpoint.grpc, b"".join(reply["text"][0] for reply in replies).decode(), tokens)


def check_command(address: str, text: str, tokens: list[int]) -> None:
    """`call --stream` shows the text as it is, or the replies; without it, it says how to."""
    command = ["call", "chat", "--address", address, "--timeout-s", "90", "--input", f"text={PROMPT}"]
    command += ["--input", f"max_tokens={NEW}", "--input", "ignore_eos=true", "--input", "temperature=0"]
    done = tritonkit_here(*command, "--stream")
    assert done.stdout == printable(text) + "\n"
    assert "the first after" in done.stderr
    lines = tritonkit_here(*command, "--stream", "--json").stdout.splitlines()
    shown = [json.loads(line)["outputs"]["tokens"] for line in lines]
    assert [token for row in shown for token in row] == tokens
    assert "--stream" in failed(tritonkit_here(*command), 5)
