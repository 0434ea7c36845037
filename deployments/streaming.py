"""Server-sent events, and work that ends when its client goes away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from deployments.errors import ApiError, internal_error
from deployments.generation import Event, require_delta

logger = logging.getLogger(__name__)

T = TypeVar("T")
C = TypeVar("C", bound=Mapping[str, object])


class ClientGoneError(Exception):
    """The client closed its connection: there is no one left to answer."""


async def until_disconnect(receive: Receive, work: Coroutine[object, object, T]) -> T:
    """The result of `work`, which is cancelled as soon as the client goes away. The body must have been read.

    Serve's proxy also cancels the whole request then; this holds under any ASGI server.

    Raises:
        ClientGoneError: it went away.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def begin(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """The same events, once the first is there, so that a refusal still gets a status of its own.

    Raises:
        ApiError: it was refused.
    """
    try:
        first = require_delta(await anext(events))
    except BaseException:
        await events.aclose()
        raise
    return _rejoined(first, events)


async def _rejoined(first: Event, rest: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    async with aclosing(rest):
        yield first
        async for event in rest:
            yield event


async def server_sent(chunks: AsyncGenerator[C, None]) -> AsyncGenerator[bytes, None]:
    """The chunks as lines of an event stream, ended by [DONE], or by an error in the API's shape in its place."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield _line(chunk)
    except ApiError as error:
        yield _line(error.body)
    except Exception:
        logger.exception("a stream failed")
        yield _line(internal_error().body)
    else:
        yield b"data: [DONE]\n\n"


def _line(data: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class EventStreamResponse(StreamingResponse):
    """Sends `lines`, and closes `source`, where they come from, however it ends: even before the first line."""

    def __init__(self, lines: AsyncGenerator[bytes, None], source: AsyncGenerator[Event, None]) -> None:
        super().__init__(lines, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._lines = lines
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self.stream_response(send))
        except (ClientGoneError, OSError):  # OSError: from a server that tells of a lost client when sending
            logger.debug("the client left its stream")
        finally:
            await self._lines.aclose()
            await self._source.aclose()
