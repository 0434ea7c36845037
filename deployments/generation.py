"""Runs all choices of one HTTP request at once and merges what they say, in the order in which it comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from deployments.backend import Backend, Refusal
from deployments.errors import ApiError
from deployments.ledger import LedgerEntry
from engine import FinishReason, TextDelta, TextStream, TokenDelta, TokenLogprobs
from models.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What one step added to choice `index`: for the reader (`text`), and as the engine said it (`tokens`)."""

    index: int
    text: TextDelta
    tokens: TokenDelta


Event = ChoiceDelta | Refusal


async def run_choices(
    backend: Backend, tokenizer: Tokenizer, entries: Sequence[LedgerEntry], timeout_s: float
) -> AsyncGenerator[Event, None]:
    """Every delta of every entry, until each has had its finish reason; a Refusal of one ends them all.

    Entries are booked as they go. Closing the generator aborts what still runs.
    """
    events: asyncio.Queue[Event] = asyncio.Queue()
    deadline = asyncio.get_running_loop().time() + timeout_s
    tasks = [
        asyncio.create_task(_Choice(index, entry, backend, events).run(tokenizer, deadline))
        for index, entry in enumerate(entries)
    ]
    unfinished = len(tasks)
    try:
        while unfinished:
            event = await events.get()
            if isinstance(event, Refusal):
                yield event
                return
            entries[event.index].record(event.tokens, event.text)  # now, not when it came: the ids the client has
            yield event
            unfinished -= event.text.finish_reason is not None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Brings the deltas of one entry to the queue that all share."""

    index: int
    entry: LedgerEntry
    backend: Backend
    events: asyncio.Queue[Event]

    async def run(self, tokenizer: Tokenizer, deadline: float) -> None:
        """`deadline` is in the event loop's time."""
        try:
            async with asyncio.timeout_at(deadline):
                self.events.put_nowait(await self._follow(TextStream(tokenizer, self.entry.request.params)))
        except TimeoutError:
            self.events.put_nowait(Refusal(504, "timeout", "The request took longer than this server allows."))
        except Exception:
            logger.exception("request %s failed", self.entry.request.request_id)
            self.events.put_nowait(
                Refusal(500, "internal_error", "The server had an error while processing your request.")
            )

    async def _follow(self, text_stream: TextStream) -> Event:
        """Queue everything but the last event, which is returned."""
        async with aclosing(self.backend.generate(self.entry.request)) as stream:
            async for item in stream:
                refusal = _refusal(item)
                if refusal is not None:
                    return refusal
                assert isinstance(item, TokenDelta)
                text = text_stream.push(item)
                event = ChoiceDelta(self.index, text, item)
                if text.finish_reason is not None:  # perhaps by a stop string, which the engine does not know of
                    return event
                self.events.put_nowait(event)
        return Refusal(503, "stream_ended", "The model stopped answering.", retry_after_s=1)


def _refusal(item: TokenDelta | Refusal) -> Refusal | None:
    """An engine that gives up on a request says so in a delta."""
    if isinstance(item, Refusal):
        return item
    if item.finish_reason == "error":
        logger.error("request %s failed: %s", item.request_id, item.error)
        return Refusal(500, "engine_error", "The model failed while answering this request.")
    if item.finish_reason == "abort":
        return Refusal(503, "aborted", "The server ended this request.", retry_after_s=1)
    return None


@dataclass(slots=True)
class FinishedChoice:
    """All that was said in one choice."""

    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    finish_reason: FinishReason = "stop"
    stop_reason: int | str | None = None


async def collect(events: AsyncGenerator[Event, None], num_choices: int) -> list[FinishedChoice]:
    """Wait for every choice to end.

    Raises:
        ApiError: the request was refused, at once or on the way.
    """
    choices = [FinishedChoice() for _ in range(num_choices)]
    async with aclosing(events):
        async for event in events:
            delta = require_delta(event)
            choice = choices[delta.index]
            choice.text += delta.text.text
            choice.logprobs += delta.text.logprobs or ()
            choice.prompt_logprobs = choice.prompt_logprobs or delta.tokens.prompt_logprobs or ()
            choice.finish_reason = delta.text.finish_reason or choice.finish_reason
            choice.stop_reason = delta.text.stop_reason
    return choices


def require_delta(event: Event) -> ChoiceDelta:
    if isinstance(event, Refusal):
        raise ApiError.from_refusal(event)
    return event
