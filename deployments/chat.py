"""Answers of /v1/chat/completions, whole and in chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from deployments.generation import ChoiceDelta, Event, FinishedChoice, collect, require_delta
from deployments.job import Job
from deployments.logprobs import chat_logprobs, prompt_logprobs
from deployments.responses import ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatDelta, Usage
from models.tokenizer import Tokenizer


async def whole_chat(events: AsyncGenerator[Event, None], job: Job, tokenizer: Tokenizer) -> ChatCompletion:
    finished = await collect(events, len(job.entries))
    wants_logprobs = job.entries[0].request.params.logprobs is not None
    answer: ChatCompletion = {
        "id": job.id,
        "object": "chat.completion",
        "created": job.created,
        "model": job.model,
        "choices": [_choice(tokenizer, index, done, wants_logprobs) for index, done in enumerate(finished)],
        "usage": job.usage,
    }
    if finished[0].prompt_logprobs:
        answer["prompt_logprobs"] = prompt_logprobs(tokenizer, finished[0].prompt_logprobs)
    return answer


def _choice(tokenizer: Tokenizer, index: int, done: FinishedChoice, wants_logprobs: bool) -> ChatChoice:
    return {
        "index": index,
        "message": {"role": "assistant", "content": done.text, "refusal": None},
        "logprobs": chat_logprobs(tokenizer, done.logprobs) if wants_logprobs else None,
        "finish_reason": done.finish_reason,
        "stop_reason": done.stop_reason,
    }


async def chat_chunks(
    events: AsyncGenerator[Event, None], job: Job, tokenizer: Tokenizer
) -> AsyncGenerator[ChatChunk, None]:
    """For each choice: one chunk with the role, those with text, one with the finish reason; perhaps one with usage.

    Raises:
        ApiError: the request was refused on the way.
    """
    begun: set[int] = set()
    async with aclosing(events):
        async for event in events:
            delta = require_delta(event)
            if delta.index not in begun:
                begun.add(delta.index)
                yield _chunk(job, _chunk_choice(delta.index, {"role": "assistant", "content": ""}))
            # With logprobs a token is told of even while its text is held back.
            if delta.text.text or delta.text.logprobs:
                yield _chunk(job, _text_choice(tokenizer, delta))
            if delta.text.finish_reason is not None:
                end = _chunk_choice(delta.index, {})
                end["finish_reason"] = delta.text.finish_reason
                end["stop_reason"] = delta.text.stop_reason
                yield _chunk(job, end)
    if job.usage_chunk:
        yield _envelope(job, [], job.usage)


def _text_choice(tokenizer: Tokenizer, delta: ChoiceDelta) -> ChatChunkChoice:
    choice = _chunk_choice(delta.index, {"content": delta.text.text})
    if delta.text.logprobs is not None:
        choice["logprobs"] = chat_logprobs(tokenizer, delta.text.logprobs)
    return choice


def _chunk_choice(index: int, delta: ChatDelta) -> ChatChunkChoice:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _chunk(job: Job, choice: ChatChunkChoice) -> ChatChunk:
    return _envelope(job, [choice], job.usage_now())


def _envelope(job: Job, choices: list[ChatChunkChoice], usage: Usage | None) -> ChatChunk:
    chunk: ChatChunk = {
        "id": job.id,
        "object": "chat.completion.chunk",
        "created": job.created,
        "model": job.model,
        "choices": choices,
    }
    if job.wants_usage:
        chunk["usage"] = usage
    return chunk
