"""A client that goes away, seen through ASGI: `receive` says http.disconnect, as under any server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from starlette.types import ASGIApp, Message

from tests.unit.deployments.conftest import MakeClient
from tests.unit.deployments.scripted_backend import ScriptedBackend, say

LIMIT_S = 10.0


async def call(app: ASGIApp, path: str, body: Mapping[str, object], gone: asyncio.Event) -> list[Message]:
    """What the app sends to a client that closes its connection when `gone` is set."""
    sent: list[Message] = []
    received = iter([{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}])

    async def receive() -> Message:
        message = next(received, None)
        if message is None:
            await gone.wait()
            return {"type": "http.disconnect"}
        return message

    async def send(message: Message) -> None:
        sent.append(message)
        if message.get("body"):
            gone.set()

    headers = [(b"content-type", b"application/json")]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": headers, "scheme": "http", "server": ("test", 80), "client": None, "root_path": "",
        "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
    }  # fmt: skip
    await asyncio.wait_for(app(scope, receive, send), LIMIT_S)
    return sent


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [[], say("ab", finish_reason=None)], ids=["before a token", "after some"])
def test_its_requests_end(make_client: MakeClient, path: str, stream: bool, script: list[object]) -> None:
    backend = ScriptedBackend(script)  # type: ignore[arg-type]
    app = make_client(backend).app
    body = {"model": "demo", "n": 3, "stream": stream}
    body |= {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hi"}

    async def scenario() -> list[Message]:
        gone = asyncio.Event()
        task = asyncio.create_task(call(app, path, body, gone))
        await asyncio.wait_for(backend.started.wait(), LIMIT_S)
        assert len(backend.open) == 3
        if not (stream and script):  # else the first text that is sent makes it go
            gone.set()
        return await task

    sent = asyncio.run(scenario())
    assert len(backend.requests) == 3
    assert not backend.open
    assert not any(b"[DONE]" in message.get("body", b"") for message in sent)


def test_a_cancelled_request_ends_its_choices(make_client: MakeClient) -> None:
    """Serve's proxy cancels the task that runs the app."""
    backend = ScriptedBackend([])
    app = make_client(backend).app

    async def scenario() -> None:
        body = {"model": "demo", "prompt": "hi"}
        task = asyncio.create_task(call(app, "/v1/completions", body, asyncio.Event()))
        await asyncio.wait_for(backend.started.wait(), LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert len(backend.requests) == 1
    assert not backend.open
