"""From what a request says to token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from deployments.errors import ApiError
from deployments.openai_api import CompletionRequest, Message, Prompt
from models.tokenizer import Tokenizer

R = TypeVar("R")

# Tokenising more characters than this takes a millisecond and up: it goes to a thread, so that streams keep flowing.
_LARGE_TEXT = 4096


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """`text` is what `echo` gives back; empty without it, where the ids were given."""

    token_ids: tuple[int, ...]
    text: str


async def tokenize_chat(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Ids of the chat in the checkpoint's own template, up to where the assistant speaks.

    Raises:
        ApiError: 400 when the template does not take these messages.
    """
    turns = [_turn(message) for message in messages]
    size = sum(len(str(turn["content"])) for turn in turns)
    try:
        return await _in_thread_if_large(size, lambda: tokenizer.encode_chat(turns))
    except ValueError as error:
        raise ApiError(400, str(error), param="messages", code="invalid_value") from None


async def tokenize_text(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    return await _in_thread_if_large(len(text), lambda: tokenizer.encode(text, add_special_tokens))


async def detokenize(tokenizer: Tokenizer, token_ids: Sequence[int], *, param: str) -> str:
    """Text of the ids, special tokens written out.

    Raises:
        ApiError: 400 for an id the model does not have.
    """
    bad = next((token_id for token_id in token_ids if not 0 <= token_id < tokenizer.vocab_size), None)
    if bad is not None:
        message = f"{param} has token id {bad}; the model's ids are 0 to {tokenizer.vocab_size - 1}."
        raise ApiError(400, message, param=param, code="invalid_value")
    return await _in_thread_if_large(len(token_ids), lambda: tokenizer.decode(token_ids, skip_special_tokens=False))


async def completion_prompts(tokenizer: Tokenizer, request: CompletionRequest) -> list[TokenizedPrompt]:
    """The prompts of a completion request, in its order.

    Raises:
        ApiError: 400 for no prompt, one without tokens, or ids the model does not have.
    """
    prompts = [await _completion_prompt(tokenizer, request, prompt) for prompt in _as_list(request.prompt)]
    if not prompts or not all(prompt.token_ids for prompt in prompts):
        raise ApiError(400, "The prompt is empty.", param="prompt", code="invalid_value")
    return prompts


async def _completion_prompt(
    tokenizer: Tokenizer, request: CompletionRequest, prompt: str | list[int]
) -> TokenizedPrompt:
    if isinstance(prompt, str):
        token_ids = await tokenize_text(tokenizer, prompt, add_special_tokens=request.add_special_tokens)
        return TokenizedPrompt(tuple(token_ids), prompt)
    return TokenizedPrompt(tuple(prompt), await detokenize(tokenizer, prompt, param="prompt") if request.echo else "")


def _as_list(prompt: Prompt) -> list[str | list[int]]:
    """A list of prompts, from any of the four ways to write them."""
    if isinstance(prompt, str):
        return [prompt]
    token_ids = [item for item in prompt if isinstance(item, int)]
    return [token_ids] if token_ids else [item for item in prompt if not isinstance(item, int)]


def _turn(message: Message) -> dict[str, object]:
    """A message as chat templates read it. `developer` is OpenAI's newer name for what models know as `system`."""
    content = message.content or ""
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content)
    turn: dict[str, object] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": content,
    }
    if message.name is not None:
        turn["name"] = message.name
    return turn


async def _in_thread_if_large(size: int, work: Callable[[], R]) -> R:
    return await asyncio.to_thread(work) if size > _LARGE_TEXT else work()
