"""A request's inputs as a checked prompt and its sampling; every refusal names the place, the value and the expected
one."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_chat import ChatError
from llm_schema import MOST_BYTES, SchemaError
from llm_tools import call_grammar, format_grammar, read_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from llm_chat import Chat
    from llm_config import Settings
    from tokenizers import Tokenizer

_MOST_STOPS = 16
_LONGEST_STOP = 256
_SEEDS = 2**63 - 1


class RequestError(Exception):
    """The caller's request cannot be answered; the text says why."""


@dataclass(frozen=True)
class Task:
    """One checked request.

    Args:
        prompt: token IDs.
        max_tokens: most tokens of the answer.
        min_tokens: tokens before which the answer does not end.
        temperature: 0 for the most likely token.
        top_p: tokens are drawn from the most likely ones that together have this probability.
        top_k: tokens are drawn from this many; 0: all.
        repetition_penalty: 1: none.
        presence_penalty: 0: none.
        frequency_penalty: 0: none.
        seed: seed of the drawing; None: it differs with each request.
        stop: strings before the first of which the text ends.
        ignore_eos: whether the answer goes on to `max_tokens` in any case.
        logprobs: whether the answer has each token's log probability.
        grammar: rules that the answer's text follows; empty: none.
        has_tools: whether the chat offers tools.
    """

    prompt: list[int]
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    logprobs: bool
    grammar: str = ""
    has_tools: bool = False


class Reader:
    """Reads requests for one model.

    Args:
        settings: the model's limits.
        tokenizer: object that turns text into tokens.
        chat: object that turns messages into text; None if the model has no chat template.
        holds: whether the engine can hold an answer to a grammar.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer, chat: Chat | None, holds: bool = False) -> None:
        self._holds = holds
        self._settings = settings
        self._tokenizer = tokenizer
        self._chat = chat
        # A token stands for at most the bytes of its name, so longer texts need not be tokenized.
        widest = max((len(name.encode()) for name in tokenizer.get_vocab()), default=1)
        self._most_bytes = widest * settings.longest

    def read(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Task:
        """Check all inputs of a request, by name; absent ones have their defaults.

        Raises:
            RequestError: an input is wrong; the message names the first one.
        """
        given = _Inputs(inputs)
        try:
            tools = self._tools(given)
            grammar = self._grammar(given, tools)
        except SchemaError as refused:
            raise RequestError(str(refused)) from None
        prompt = self._prompt(given, tools)
        most = self._max_tokens(given, len(prompt))
        return Task(
            prompt=prompt,
            max_tokens=most,
            min_tokens=given.whole("min_tokens", 0, 0, most),
            temperature=given.number("temperature", 0.0, lambda x: 0 <= x <= 100, "0 to 100"),
            top_p=given.number("top_p", 1.0, lambda x: 0 < x <= 1, "above 0, at most 1"),
            top_k=given.whole("top_k", 0, 0, 2**31 - 1),
            repetition_penalty=given.number("repetition_penalty", 1.0, lambda x: 0 < x <= 100, "above 0, at most 100"),
            presence_penalty=given.number("presence_penalty", 0.0, lambda x: abs(x) <= 2, "-2 to 2"),
            frequency_penalty=given.number("frequency_penalty", 0.0, lambda x: abs(x) <= 2, "-2 to 2"),
            seed=given.whole("seed", 0, 0, _SEEDS) if "seed" in inputs else None,
            stop=given.stops(),
            ignore_eos=given.switch("ignore_eos"),
            logprobs=given.switch("logprobs"),
            grammar=grammar,
            has_tools=tools is not None,
        )

    def _tools(self, given: _Inputs) -> list[Any] | None:
        if "tools" not in given:
            if "tool_choice" in given:
                raise _unfit("tool_choice", "no tools", "tools with it")
            return None
        if "messages" not in given:
            raise _unfit("tools", "a prompt as text", "messages, into whose template tools go")
        return read_tools(given.text("tools", MOST_BYTES))

    def _grammar(self, given: _Inputs, tools: list[Any] | None) -> str:
        """The grammar of the answer; empty if it is free."""
        name, grammar = "response_format", ""
        if name in given:
            grammar = format_grammar(given.text(name, 2 * MOST_BYTES))
        if tools is not None and "tool_choice" in given and self._chat is not None:
            choice = given.text("tool_choice", 1024)
            called = call_grammar(choice, tools, self._chat.call_form)
            name, grammar = ("tool_choice" if called else name), called or grammar
        if grammar and tools is not None and name == "response_format":
            raise _unfit(name, "tools with it", "text, or tool_choice none")
        if grammar and not self._holds:
            raise _unfit(name, "a model whose tokens are not pieces of text, or have no end", "text or auto")
        for other in ("ignore_eos", "min_tokens") if grammar else ():
            if other in given and given.one(other):
                raise _unfit(other, f"{name} with it", "the end where the answer is complete")
        return grammar

    def _prompt(self, given: _Inputs, tools: list[Any] | None) -> list[int]:
        if ("text" in given) == ("messages" in given):
            present = "both" if "text" in given else "none of them"
            raise _unfit("text, messages", present, "exactly one of the two")
        name = "text" if "text" in given else "messages"
        text = given.text(name, self._most_bytes)
        if name == "messages":
            text = self._chat_prompt(text, tools)
        if not text:
            raise _unfit(name, "an empty prompt", "at least one character")
        if len(_bytes(name, text)) > self._most_bytes:
            raise self._too_long(name, f"{len(text)} characters")
        # A template writes the special tokens itself.
        tokens = self._tokens(name, text)
        if not tokens:
            raise _unfit(name, "a prompt without tokens", "at least one token")
        if len(tokens) >= self._settings.longest:
            raise self._too_long(name, f"{len(tokens)} tokens")
        if max(tokens) >= self._settings.vocabulary:
            limit = f"tokens below the {self._settings.vocabulary} that the network knows"
            raise _unfit(name, f"token {max(tokens)}", limit)
        return list(tokens)

    def _tokens(self, name: str, text: str) -> list[int]:
        """The text's tokens. A tokenizer's expressions give up on a text that would take them forever."""
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=name == "text").ids)
        except BaseException as error:  # the library's panics are not instances of Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            message = str(error)[:200] or type(error).__name__
            raise RequestError(f"{name}: the tokenizer cannot cut it into tokens: {message}") from None

    def _too_long(self, name: str, length: str) -> RequestError:
        expected = f"fewer than {self._settings.longest} tokens"
        return _unfit(name, f"a prompt of {length}", f"{expected}, so that an answer has room")

    def _chat_prompt(self, text: str, tools: list[Any] | None) -> str:
        if self._chat is None:
            raise _unfit("messages", "a tokenizer without a chat template", "the prompt as text")
        messages = _messages(text)
        try:
            return self._chat.prompt(messages, tools)
        except ChatError as refused:
            name = "messages" if tools is None else "tools"
            raise RequestError(f"{name}: the chat template refuses them: {refused}") from refused

    def _max_tokens(self, given: _Inputs, prompt: int) -> int:
        room = self._settings.longest - prompt
        if "max_tokens" not in given:
            return min(self._settings.max_tokens, room)
        return given.whole("max_tokens", 0, 1, room, f" with a prompt of {prompt} tokens")


class _Inputs:
    """The inputs of a request, by name; all except `stop` have one value."""

    def __init__(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._inputs = inputs

    def __contains__(self, name: str) -> bool:
        return name in self._inputs

    def one(self, name: str) -> Any:
        """The only value of an input."""
        values = self._inputs[name].reshape(-1)
        if len(values) != 1:
            raise _unfit(name, f"{len(values)} values", "one")
        return values[0]

    def text(self, name: str, most_bytes: int) -> str:
        return _utf8(name, self.one(name), most_bytes)

    def whole(self, name: str, default: int, least: int, most: int, why: str = "") -> int:
        if name not in self._inputs:
            return default
        value = int(self.one(name))
        if not least <= value <= most:
            raise _unfit(name, value, f"{least} to {most}{why}")
        return value

    def number(self, name: str, default: float, fits: Callable[[float], bool], expected: str) -> float:
        if name not in self._inputs:
            return default
        value = float(self.one(name))
        if not math.isfinite(value) or not fits(value):
            raise _unfit(name, value, expected)
        return value

    def switch(self, name: str) -> bool:
        return name in self._inputs and bool(self.one(name))

    def stops(self) -> tuple[str, ...]:
        if "stop" not in self._inputs:
            return ()
        values = self._inputs["stop"].reshape(-1)
        if len(values) > _MOST_STOPS:
            raise _unfit("stop", f"{len(values)} strings", f"at most {_MOST_STOPS}")
        strings = tuple(_utf8("stop", value, 4 * _LONGEST_STOP) for value in values)
        for string in strings:
            if not 1 <= len(string) <= _LONGEST_STOP:
                raise _unfit("stop", f"a string of {len(string)} characters", f"1 to {_LONGEST_STOP}")
        return strings


def _messages(text: str) -> list[Any]:
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unfit("messages", f"no JSON ({error})", "a list of messages") from error
    if not isinstance(messages, list) or not messages:
        kind = "an empty list" if messages == [] else type(messages).__name__
        raise _unfit("messages", kind, 'a list of {"role": ..., "content": ...}')
    for number, message in enumerate(messages):
        is_object = isinstance(message, dict)
        if not is_object or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise _unfit(f"messages[{number}]", "another value", "an object whose role and content are texts")
    return messages


def _utf8(name: str, value: Any, most_bytes: int) -> str:
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    if len(data) > most_bytes:
        raise _unfit(name, f"{len(data)} bytes", f"at most {most_bytes}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unfit(name, f"invalid UTF-8 at byte {error.start}", "UTF-8") from error


def _bytes(name: str, text: str) -> bytes:
    """The text in UTF-8, which has no encoding for the halves of characters that JSON can name."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _unfit(name, f"half a character at {error.start}", "whole characters") from error


def _unfit(name: str, found: object, wanted: str) -> RequestError:
    return RequestError(f"{name}: found {found}, wanted {wanted}")
