"""Chat templates: those of checkpoints, as the backend `llm` reads them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed, tritonkit_here
from tests.python_backends import conftest  # puts what runs inside Triton on the path
from tritonkit.errors import UsageError
from tritonkit.openai.problems import Problem
from tritonkit.openai.templates import Chat, find_checkpoints, read_chat, read_chats

assert conftest.ROOT.is_dir()

ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "<a> & é"}]
LOOP = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
TEMPLATES = [
    LOOP,
    "{{ bos_token }}{{ messages | tojson }}{{ eos_token }}{% if add_generation_prompt %}go{% endif %}",
    "{% for m in messages %}\n  {% if loop.first %}{% continue %}{% endif %}\n  {{ m['content'] }}\n{% endfor %}",
    "{{ messages | tojson(indent=1) }}{% if tools is none and documents is none %}none{% endif %}",
    "{{ raise_exception('no') }}",
    "{{ messages[7].content }}",
    "{{ 1 / 0 }}",
    "{{ messages.append(1) }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{% set ns = namespace(x=0) %}{% for m in messages %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}",
]


def write_tokenizer(folder: Path, template: Any, **more: Any) -> Path:
    """A checkpoint's folder, as far as chats go."""
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template} | more
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_means_what_it_means_to_the_backend(tmp_path: Path, template: str) -> None:
    """The same prompt, or both refuse it."""
    from llm_chat import ChatError
    from llm_chat import read_chat as read_there

    folder = write_tokenizer(tmp_path, template)
    there = read_there(folder)
    assert there is not None
    here = read_chat(folder)
    refused, expected = "", ""
    try:
        expected = there.prompt(ASKED)
    except ChatError as error:
        refused = str(error)
    if not refused:
        assert here.prompt(ASKED) == expected
        return
    with pytest.raises(Problem) as problem:
        here.prompt(ASKED)
    assert (problem.value.status, problem.value.message) == (400, f"messages: {refused}")


def test_where_a_template_is_found(tmp_path: Path) -> None:
    """In a file of its own first, else the one named default, else none."""
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    folder = write_tokenizer(tmp_path / "a", several)
    assert read_chat(folder).prompt(ASKED) == "d"
    (folder / "chat_template.jinja").write_text("j")
    assert read_chat(folder).prompt(ASKED) == "j"
    assert read_chat(folder / "chat_template.jinja").prompt(ASKED) == "j"
    with pytest.raises(UsageError, match="neither"):
        read_chat(write_tokenizer(tmp_path / "b", None))


@pytest.mark.parametrize(
    ("more", "processor", "prompt"),
    [
        ({}, None, "<s>x"),
        ({"add_bos_token": True}, None, "x"),
        ({"add_bos_token": False}, "<s>", "<s>x"),
        ({}, "<s>", "x"),
        ({}, "<other>", "<s>x"),
    ],
)
def test_the_first_token_is_there_once(
    tmp_path: Path, more: dict[str, Any], processor: str | None, prompt: str
) -> None:
    """Whether the engine's tokenizer puts it there, its two files say."""
    folder = write_tokenizer(tmp_path, "{{ bos_token }}x", **more)
    if processor is not None:
        single = [{"SpecialToken": {"id": processor, "type_id": 0}}, {"Sequence": {"id": "A"}}]
        parts = [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": single}]
        text = json.dumps({"post_processor": {"type": "Sequence", "processors": parts}})
        (folder / "tokenizer.json").write_text(text)
    assert read_chat(folder).prompt(ASKED) == prompt


def test_templates_have_their_models(tmp_path: Path) -> None:
    """One named for a model goes before the project's, and that before the one for all."""
    (tmp_path / "all").write_text("all")
    (tmp_path / "own").write_text("own")
    project = {"b": write_tokenizer(tmp_path / "b", "project"), "c": tmp_path / "nowhere"}
    chats = read_chats([str(tmp_path / "all"), f"a={tmp_path / 'own'}"], project)
    prompts = [chat.prompt(ASKED) if (chat := chats.of(name)) else None for name in "abcd"]
    assert prompts == ["own", "project", "all", "all"]
    assert read_chats([], {}).of("a") is None
    with pytest.raises(UsageError, match="a second one"):
        read_chats([str(tmp_path / "all")] * 2, {})


def test_a_project_s_checkpoints_are_found(tmp_path: Path) -> None:
    """Folders that cannot be read as a model are left out."""
    for name, text in {"chat": "name: chat\nnetwork: {llm: {checkpoint: here}}\n", "wrong": "name: other\n"}.items():
        (tmp_path / "models" / name / "here").mkdir(parents=True)
        (tmp_path / "models" / name / "here" / "config.json").write_text("{}")
        (tmp_path / "models" / name / "model.yaml").write_text(text)
    assert find_checkpoints(tmp_path) == {"chat": tmp_path / "models" / "chat" / "here"}
    assert find_checkpoints(tmp_path / "nowhere") == {}


def test_an_empty_prompt_is_refused() -> None:
    """The engine would fail over it."""
    with pytest.raises(Problem) as refused:
        Chat("<s>", {}, "<s>").prompt(ASKED)
    assert (refused.value.status, refused.value.param) == (400, "messages")


@pytest.mark.parametrize(
    ("text", "message"), [(None, "cannot be read"), (b"\xff", "not UTF-8"), (b"{% if %}", "does not compile")]
)
def test_a_file_without_a_template_is_said(tmp_path: Path, text: bytes | None, message: str) -> None:
    """At the start, by the command too."""
    file = tmp_path / "template"
    if text is not None:
        file.write_bytes(text)
    assert message in failed(tritonkit_here("openai", "--chat-template", str(file), "--port", "0"), 2)
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(UsageError, match="no JSON"):
        read_chat(tmp_path)


def test_a_checkpoint_s_link_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    """Else the file's content would be in the prompt that a caller's messages make."""
    (tmp_path / "secret").write_text("SECRET")
    folder = write_tokenizer(tmp_path / "a", "t")
    (folder / "chat_template.jinja").symlink_to("../secret")
    with pytest.raises(UsageError, match=r"a link to \.\./secret, out of"):
        read_chat(folder)


def test_a_template_without_an_end_is_a_400(tmp_path: Path) -> None:
    """Not a server that answers nobody else."""
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(Problem) as refused:
        Chat(loops).prompt(ASKED)
    assert (refused.value.status, "steps" in refused.value.message) == (400, True)
